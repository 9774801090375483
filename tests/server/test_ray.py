"""The server on a local Ray, in an environment of its own that tests/setup.sh makes, or in this one if it has Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from edge_infer.errors import DeviceLost, InputError, ServingError
from edge_infer.server import ray_app
from edge_infer.server.ray_app import application
from tests.support.server.bundles import bundle_files, write_bundle

if TYPE_CHECKING:
    from edge_infer.server.app import Application

ROOT = Path(__file__).parents[2]
OWN = ROOT / ".bench/ray/bin/python"
#: How long Ray may take to start, to answer, and to replace a replica.
TIMEOUT_S = 580
#: Beside a busy machine's: Ray's agent of metrics takes longer to start than its raylet waits for it.
QUIET = {
    "RAY_enable_metrics_collection": "false",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # On a busy machine its proxy takes longer to start than the 5 s after which Ray kills it.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
}


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


def test_a_replica_opens_its_models_at_its_start_and_closes_them_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_INFER_BUNDLES", str(write_bundle(tmp_path / "tiny", bundle_files())))
    with TestClient(ray_app.replica()) as client:
        (app,) = ray_app._running
        assert client.post("/v2/repository/index").json()[0]["state"] == "READY"
        assert client.get("/readyz").json() == {"ready": True}
        (model,) = app.engine.active()
        ray_app.check_devices()
        app.engine.dispatchers["default"].lost = DeviceLost("CUDA failure 719")
        with pytest.raises(DeviceLost, match="719"):
            ray_app.check_devices()
    assert ray_app._running == []
    assert app.engine.is_draining
    with pytest.raises(InputError, match="closed"):
        model.session.run({"x": [[1.0, 2.0, 3.0]]})


@pytest.mark.long
@pytest.mark.ray
def test_the_same_requests_are_answered_on_ray_serve(tmp_path: Path) -> None:
    """By two replicas, over HTTP, event streams and WebSockets; one that loses its device is replaced."""
    python = str(OWN) if OWN.exists() else sys.executable if find_spec("ray") else ""
    if not python:
        pytest.skip("Ray is not installed: tests/setup.sh")
    bundle = write_bundle(tmp_path / "tiny", bundle_files())
    # Sockets lie there, whose paths may have 107 bytes.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, **QUIET, "EDGE_INFER_BUNDLES": str(bundle), "RAY_TMPDIR": folder}
        environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(
            [python, "-m", "tests.support.server.on_ray"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if "NO RAY:" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.stdout.endswith("DONE\n"), done.stdout + done.stderr
