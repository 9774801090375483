"""schemathesis against our own description of the API: what it generates never finds a fault of the server.

It lives in an environment of its own, which tests/setup.sh makes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.thread import ServerThread
from tests.server.bundles import bundle_files, write_bundle

OWN = Path(__file__).parents[2] / ".bench/schemathesis/bin/schemathesis"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_generated_requests_find_no_fault(tmp_path: Path) -> None:
    if not OWN.exists():
        pytest.fail("schemathesis is not installed: tests/setup.sh")
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}
    with ServerThread(create_app(models)) as server:
        command = [str(OWN), "run", f"{server.url}/openapi.json", "--checks", CHECKS, "--no-color"]
        command += ["--max-examples", "5", "--seed", "7", "--phases", "examples,coverage,fuzzing"]
        # Unloading the only model would leave nothing to test.
        command += ["--exclude-path-regex", "unload$"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
