"""Loading: what fails is tried again by a rule, and what loads or fails holds up nothing else."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore
from typing import TYPE_CHECKING, Any

from edge_infer.server.app import create_app
from edge_infer.server.execution import lifecycle as engine_module
from edge_infer.server.execution import repository
from edge_infer.server.execution.loaded_model import load_model
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import Client, ask, row
from tests.support.server.operators import two_versions
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


#: What `/readyz` says of a file that no engine reads: the error's code, no words for who has no key.
NO_MODEL = {"tiny": "unsupported_model"}


def test_a_successor_that_cannot_be_loaded_is_not_tried_by_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal loads
        loads += 1
        return load_model(*arguments, **options)

    def ask_until_loaded(count: int) -> None:
        while loads < count or app.engine.is_loading(served):
            assert ask(server).status == 200

    monkeypatch.setattr(repository, "load_model", counted)
    monkeypatch.setattr(engine_module, "_LOOK_EVERY_S", 0.01)
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    app = create_app({"tiny": tiny})
    served = app.engine.repository.get("tiny")
    with ServerThread(app) as server:
        ask_until_loaded(1)
        write_bundle(tiny, bundle_files(model=b"no model", more={"labels.json": b"[]"}))
        ask_until_loaded(2)
        for _ in range(20):
            assert ask(server).body == row(1.0)
        ask_until_loaded(2)
        assert loads == 2
        assert Client(server.url)("/v2/repository/models/tiny/load", "POST", b"").status == 500
        assert loads == 3
        monkeypatch.setattr(engine_module, "_RETRY_S", -1.0)  # the next failure holds for no time
        write_bundle(tiny, bundle_files(model=b"none either", more={"labels.json": b"[ ]"}))
        ask_until_loaded(6)
        write_bundle(tiny, bundle_files(model=onnx_model("Neg"), more={"labels.json": b"[  ]"}))
        wait_until(lambda: ask(server).body == row(-1.0))


def test_an_idle_server_takes_a_bundle_that_is_converted_again(tmp_path: Path) -> None:
    """Nobody asks meanwhile, and what is not in memory is not woken."""
    tiny, other = (write_bundle(tmp_path / name, bundle_files(name)) for name in ("tiny", "other"))
    app = create_app({"tiny": tiny, "other": other})
    with ServerThread(app) as server:
        assert ask(server).body == row(1.0)
        (old,) = app.engine.active()
        for folder in (tiny, other):
            write_bundle(folder, bundle_files(folder.name, onnx_model("Neg"), more={"labels.json": b"[]"}))
        wait_until(lambda: app.engine.active() != [old])
        assert [model.name for model in app.engine.active()] == ["tiny"]
        assert ask(server).body == row(-1.0)


def test_readiness_names_a_newest_bundle_that_cannot_be_loaded(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny})) as server:
        assert ask(server).body == row(1.0)
        write_bundle(tiny, bundle_files(model=b"no model"))
        wait_until(lambda: json.loads(Client(server.url)("/readyz").body) == {"ready": True, "failed": NO_MODEL})
        assert ask(server).body == row(1.0)  # the old one goes on
        write_bundle(tiny, bundle_files(model=onnx_model("Neg"), more={"labels.json": b"[]"}))
        wait_until(lambda: ask(server).body == row(-1.0))
        assert json.loads(Client(server.url)("/readyz").body) == {"ready": True}


def test_a_version_that_cannot_be_loaded_keeps_no_other_from_being_loaded(tmp_path: Path) -> None:
    paths = two_versions(tmp_path)
    (paths[0] / "onnx/model.onnx").write_bytes(b"no model")
    app = create_app({"tiny": paths})
    with ServerThread(app) as server:
        refused = Client(server.url)("/v2/repository/models/tiny/load", "POST", b"")
        assert (refused.status, json.loads(refused.body)["code"]) == (500, "integrity_error")
        assert [model.version for model in app.engine.active()] == ["2"]


def test_models_that_load_hold_up_no_choice_of_a_version_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, began = Event(), Semaphore(0)
    load = ServedModel.loaded

    def slow(self: ServedModel, *place: Any) -> Any:
        if self.name.startswith("slow"):
            began.release()
            assert release.wait(60)
        return load(self, *place)

    monkeypatch.setattr(ServedModel, "loaded", slow)
    monkeypatch.setattr(engine_module, "_CHOICE_S", 0.0)
    slow_ones = {f"slow{i}": write_bundle(tmp_path / f"s{i}", bundle_files(f"slow{i}")) for i in range(64)}
    app = create_app({**slow_ones, "tiny": two_versions(tmp_path)})
    with ServerThread(app) as server, ThreadPoolExecutor(64) as threads:
        assert ask(server).body == row(-1.0)
        waiting = [threads.submit(ask, server, 1.0, name) for name in slow_ones]
        for _ in range(2):  # as many load at once at least
            assert began.acquire(timeout=60)
        send = Client(server.url)
        try:
            assert ask(server).body == row(-1.0)
            assert json.loads(send("/v2/models/tiny").body)["versions"] == ["1", "2"]
            assert send("/v2/repository/index", "POST", b"").status == 200
        finally:
            release.set()
        assert {future.result().status for future in waiting} == {200}
