"""schemathesis against our own description of the API: what it generates never finds a fault of the server.

It lives in an environment of its own:

    uv venv .bench/schemathesis && uv pip install --python .bench/schemathesis schemathesis
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.thread import ServerThread
from tests.server.bundles import bundle_files, write_bundle

OWN = Path(__file__).parents[2] / ".bench/schemathesis/bin/schemathesis"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_generated_requests_find_no_fault(tmp_path: Path) -> None:
    tool = str(OWN) if OWN.exists() else shutil.which("schemathesis")
    if tool is None:
        pytest.skip("schemathesis is not installed: see the top of this file")
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}
    with ServerThread(create_app(models)) as server:
        command = [tool, "run", f"{server.url}/openapi.json", "--checks", CHECKS, "--max-examples", "5", "--seed", "7"]
        command += ["--phases", "examples,coverage,fuzzing", "--no-color"]
        # Unloading the only model would leave nothing to test.
        command += ["--exclude-path-regex", "unload$"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
