"""The server on a local Ray, in an environment of its own: `.bench/ray`, or this one where Ray is installed.

    uv venv .bench/ray && uv pip install --python .bench/ray 'ray[serve]' \\
      onnxruntime numpy msgspec prometheus-client brotli zstandard httptools uvloop websockets
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import ServingError
from edge_infer.server.ray_app import application
from tests.server.bundles import bundle_files, write_bundle

if TYPE_CHECKING:
    from edge_infer.server.app import Application

ROOT = Path(__file__).parents[2]
OWN = ROOT / ".bench/ray/bin/python"
SCRIPT = """
import json, socket, sys, urllib.request
import ray
from ray import serve
from edge_infer.server.ray_app import make_deployment

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
try:
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
except Exception as error:
    print("NO RAY:", error)
    sys.exit()
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(make_deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.5}), route_prefix="/")
body = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()
url = f"http://127.0.0.1:{port}/v2/models/tiny"
request = urllib.request.Request(f"{url}/infer", body, {"Content-Type": "application/json"})
print("ANSWER:", json.loads(urllib.request.urlopen(request, timeout=60).read())["outputs"][0]["data"])
print("METADATA:", json.loads(urllib.request.urlopen(url, timeout=60).read())["name"])
serve.shutdown()
"""


def test_a_replica_serves_the_bundles_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    monkeypatch.setenv("EDGE_INFER_BUNDLES", str(folder))
    app: Application = application()
    assert app.engine.repository.names() == ["tiny"]
    app.engine.close()
    monkeypatch.delenv("EDGE_INFER_BUNDLES")
    with pytest.raises(ServingError, match="No bundle is named"):
        application()


@pytest.mark.ray
def test_the_same_requests_are_answered_on_ray_serve(tmp_path: Path) -> None:
    python = str(OWN) if OWN.exists() else sys.executable if find_spec("ray") else ""
    if not python:
        pytest.skip("Ray is not installed: see the top of this file")
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    # Ray's agent of metrics takes longer to start on a busy machine than its raylet waits for it.
    environment = {**os.environ, "EDGE_INFER_BUNDLES": str(folder), "PYTHONPATH": str(ROOT)}
    environment |= {"RAY_enable_metrics_collection": "false", "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [python, "-c", SCRIPT], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    if "NO RAY:" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert "ANSWER: [1.0, 2.0, 3.0]" in done.stdout, done.stdout + done.stderr
    assert "METADATA: tiny" in done.stdout
