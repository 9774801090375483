"""Models are loaded at the start, and the server is ready once that is over."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from threading import Event
from typing import TYPE_CHECKING, Any

from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings
from edge_infer.server.execution.canary import Canary
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.execution.routing import Pool, Route, RoutingTable
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.shares import Tenant
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client
from tests.support.server.operators import two_versions
from tests.support.server.process import started
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

AT_THE_START = Limits(is_lazy=False)


def states(get: Client) -> dict[str, str]:
    found = json.loads(get("/v2/repository/index", "POST", b"").body)
    return {f"{entry['name']} {entry['version']}": entry["state"] for entry in found}


def wait_until_ready(get: Client) -> None:
    wait_until(lambda: get("/readyz").status == 200)


def test_the_server_is_ready_once_every_model_has_loaded_or_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = Event()
    load = ServedModel.loaded

    def slow(self: ServedModel, *place: Any) -> Any:
        assert release.wait(60)
        return load(self, *place)

    monkeypatch.setattr(ServedModel, "loaded", slow)
    models = {name: write_bundle(tmp_path / name, bundle_files(name)) for name in ("bad", "good")}
    (models["bad"] / "onnx/model.onnx").write_bytes(b"no model")
    with ServerThread(create_app(models, limits=AT_THE_START)) as server:
        get = Client(server.url)
        for path in ("/readyz", "/v2/health/ready"):
            answer = get(path)
            assert (answer.status, json.loads(answer.body)) == (503, {"ready": False, "starting": ["bad", "good"]})
        assert get("/livez").status == 200
        release.set()
        wait_until_ready(get)
        assert json.loads(get("/readyz").body) == {"ready": True, "failed": {"bad": "integrity_error"}}
        assert states(get) == {"bad 1": "UNAVAILABLE", "good 1": "READY"}
        assert "the manifest says" in json.loads(get("/v2/repository/index", "POST", b"").body)[0]["reason"]
        assert get("/v2/models/bad/ready").status == 500
        assert get("/v2/models/good/ready").status == 200
    assert caplog.text.count("was not loaded") == caplog.text.count("Model bad was not loaded") == 1


def test_the_highest_version_and_the_one_being_tried_are_loaded_in_every_pool_that_runs_them(tmp_path: Path) -> None:
    table = RoutingTable(
        {"gold": Pool(1), "other": Pool(1)}, [Route("gold", tenant="shop"), Route("other", "tiny", "1")]
    )
    tenants = {Tenant("shop"): [hashlib.sha256(b"k").digest()]}
    models = {"tiny": two_versions(tmp_path)}
    app = create_app(models, limits=AT_THE_START, settings=Settings(table, tenants=tenants))
    with ServerThread(app) as server:
        wait_until_ready(Client(server.url))
        assert {(one.version, one.pool) for one in app.engine.active()} == {("2", "default"), ("2", "gold")}
    app = create_app(models, limits=AT_THE_START, settings=Settings(canaries={"tiny": Canary("2", 10)}))
    with ServerThread(app) as server:
        wait_until_ready(Client(server.url))
        assert {(one.version, one.pool) for one in app.engine.active()} == {("1", "default"), ("2", "default")}


def test_an_application_of_a_program_is_lazy_unless_told(tmp_path: Path) -> None:
    with ServerThread(create_app({"tiny": two_versions(tmp_path)})) as server:
        assert Client(server.url)("/readyz").status == 200
        assert set(states(Client(server.url)).values()) == {"UNAVAILABLE"}


def test_the_command_loads_at_the_start_unless_it_is_lazy(tmp_path: Path, web_root: Path) -> None:
    write_bundle(tmp_path / "one.bundle", bundle_files("first"))
    with started(tmp_path, "--web-root", str(web_root)) as (_, url, _line):
        wait_until_ready(Client(url))
        assert states(Client(url)) == {"first 1": "READY"}
    with started(tmp_path, "--web-root", str(web_root), "--lazy") as (_, url, _line):
        wait_until_ready(Client(url))
        assert states(Client(url)) == {"first 1": "UNAVAILABLE"}


HANGING = """
import sys
from threading import Event
from edge_infer.cli.serve import serve
from edge_infer.server.execution import lifecycle, repository

def hang(*arguments, **options):
    print("It hangs", flush=True)
    Event().wait()

repository.load_model = hang
lifecycle.CLOSE_S = 0.1
serve()
"""


def test_a_load_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    write_bundle(tmp_path / "one.bundle", bundle_files("first"))
    command = [sys.executable, "-c", HANGING, "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline() != "It hangs\n":
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
