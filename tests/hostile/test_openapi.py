"""schemathesis against our own description of the API: what it generates never finds a fault of the server.

It lives in an environment of its own, which tests/setup.sh makes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from starlette.routing import Route

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.openapi import openapi
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.texts import text_bundle, use_fakes
from tests.support.soak import rounds

OWN = Path(__file__).parents[2] / ".bench/schemathesis/bin/schemathesis"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


#: What is described elsewhere: the files of pages and packages, and Triton's extensions that are refused by name.
UNDESCRIBED = (
    "/src/",
    "/vendor/",
    "/demo/",
    "/studio/",
    "/models/{name}/{path",
    "/indexes/{name}/{path",
    "/simple",
    "/wheels",
    "/dashboard/",
    "/favicon",
)
REFUSED = ("/v2/logging", "/v2/trace", "/v2/systemsharedmemory", "/v2/cudasharedmemory", "/v2/models/{name}/trace")


def test_every_route_is_described_with_its_body_and_its_headers(tmp_path: Path) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    routes = {route.path.replace(":path", "") for route in app._routes.routes if isinstance(route, Route)}
    app.engine.close()
    described = openapi()["paths"]
    left = {path for path in routes - described.keys() if not path.startswith((*UNDESCRIBED, *REFUSED))}
    streams = {f"/v2/models/{{name}}{version}/stream" for version in ("", "/versions/{version}")}
    assert left == {"/", "/blank.html"} | streams  # OpenAPI has no words for WebSockets
    for path in ("infer_stream", "infer", "versions/{version}/infer"):
        names = {one["name"] for one in described[f"/v2/models/{{name}}/{path}"]["post"]["parameters"]}
        assert {"X-Priority", "X-Timeout-Ms", "X-Request-Id", "traceparent"} <= names
    for path, methods in described.items():
        for method, operation in methods.items():
            assert ("requestBody" in operation) == (method == "post"), path
            assert {"408", "431"} <= operation["responses"].keys(), path


@pytest.mark.long
def test_generated_requests_find_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not OWN.exists():
        pytest.fail("schemathesis is not installed: tests/setup.sh")
    use_fakes(monkeypatch)
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files()), "chat": text_bundle(tmp_path / "chat")}
    with ServerThread(create_app(models)) as server:
        command = [str(OWN), "run", f"{server.url}/openapi.json", "--checks", CHECKS, "--no-color"]
        command += ["--max-examples", str(rounds(10, 40)), "--seed", "7", "--phases", "examples,coverage,fuzzing"]
        # Unloading the only model would leave nothing to test.
        command += ["--exclude-path-regex", "unload$"]
        # A timeout of a few milliseconds is rightly answered with 504.
        command += ["--header", "X-Timeout-Ms: 600000"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1100, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
