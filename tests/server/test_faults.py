"""What goes wrong while a server runs: models that misbehave, files that change, clients that leave, much at once."""

from __future__ import annotations

import json
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

import numpy
import pytest

from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.metrics.memory import resident_bytes
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import Client, ask, row
from tests.support.server.streams import answers_of, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

OCTETS = "application/octet-stream"


def test_a_nan_is_a_value_or_a_counted_error_of_its_own_request(tmp_path: Path) -> None:
    logs = write_bundle(tmp_path / "log", bundle_files("log", onnx_model("Log")))
    with ServerThread(create_app({"log": logs})) as server:
        assert numpy.isnan(numpy.frombuffer(ask(server, -1.0, "log").body, "float32")).all()
    limits = Limits(batch=BatchLimits(refuses_nan=True))
    with ServerThread(create_app({"log": logs}, limits=limits)) as server, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda i: ask(server, -1.0 if i % 4 == 0 else 1.0, "log"), range(40)))
        metrics = Client(server.url)("/metrics").body.decode()
    assert [answer.status for answer in answers] == [500 if i % 4 == 0 else 200 for i in range(40)]
    assert json.loads(answers[0].body)["error"] == "The model gave a NaN in `y`"
    labels = 'code="execution_error",model="log",pool="default",version="1"'
    assert f"edge_infer_failures_total{{{labels}}} 10.0" in metrics


def test_a_shape_that_the_manifest_does_not_promise_is_an_error(tmp_path: Path) -> None:
    files = bundle_files()
    manifest = json.loads(files["manifest.json"])
    manifest["outputs"][0]["shape"] = ["batch", 4]
    files["manifest.json"] = json.dumps(manifest).encode()
    with ServerThread(create_app({"tiny": write_bundle(tmp_path / "tiny", files)})) as server:
        answer = ask(server)
    assert answer.status == 500
    assert "it promises" in json.loads(answer.body)["error"]


def test_files_that_vanish_under_a_loaded_model_change_nothing(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny})) as server:
        assert ask(server).status == 200
        shutil.rmtree(tiny)
        assert {ask(server).status for _ in range(5)} == {200}
        send = Client(server.url)
        assert send("/v2/repository/models/tiny/unload", "POST", b"").status == 200
        gone = send("/v2/repository/models/tiny/load", "POST", b"")
        assert gone.status == 500
        assert "gone" in json.loads(gone.body)["error"]
        assert send("/health").status == 200


def test_a_model_replaced_under_load_answers_every_request_with_the_old_or_the_new(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    stop = threading.Event()
    seen: list[tuple[int, bytes]] = []

    def client(server: ServerThread) -> None:
        while not stop.is_set():
            answer = ask(server)
            seen.append((answer.status, answer.body))

    with ServerThread(create_app({"tiny": tiny})) as server, ThreadPoolExecutor(4) as threads:
        assert ask(server).status == 200
        clients = [threads.submit(client, server) for _ in range(3)]
        files = bundle_files("tiny", onnx_model("Neg"))
        model = files.pop("onnx/model.onnx")
        (tiny / "onnx/new").write_bytes(model)
        (tiny / "onnx/new").replace(tiny / "onnx/model.onnx")
        (tiny / "new").write_bytes(files["manifest.json"])
        (tiny / "new").replace(tiny / "manifest.json")
        wait_until(lambda: (200, row(-1.0)) in seen)
        stop.set()
        for future in clients:
            future.result(60)
    assert set(seen) == {(200, row(1.0)), (200, row(-1.0))}
    last_old = max(i for i, one in enumerate(seen) if one[1] == row(1.0))
    first_new = next(i for i, one in enumerate(seen) if one[1] == row(-1.0))
    assert last_old < first_new + 50  # the swap is one moment, but for what was under way


def test_loads_and_unloads_at_once_leave_a_model_that_works(tmp_path: Path) -> None:
    models = {name: write_bundle(tmp_path / name, bundle_files(name)) for name in ("one", "two")}
    chance = random.Random(7)
    jobs = [(name, what) for name in ("one", "two") for what in ("load", "unload", "infer", "infer", "infer") * 250]
    chance.shuffle(jobs)

    def do(server: ServerThread, job: tuple[str, str]) -> int:
        name, what = job
        if what == "infer":
            return ask(server, 3.0, name).status
        return Client(server.url)(f"/v2/repository/models/{name}/{what}", "POST", b"").status

    limits = Limits(batch=BatchLimits(max_batch_size=1, max_wait_ms=1e6))
    with ServerThread(create_app(models, limits=limits)) as server, ThreadPoolExecutor(16) as threads:
        statuses = list(threads.map(lambda job: do(server, job), jobs))
        for name in models:
            assert Client(server.url)(f"/v2/repository/models/{name}/load", "POST", b"").status == 200
            assert ask(server, 3.0, name).body == row(3.0)
    assert set(statuses) <= {200, 404}


def test_clients_that_leave_in_the_middle_harm_nobody(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    chance = random.Random(7)
    with ServerThread(create_app({"tiny": tiny})) as server:
        host = server.url.removeprefix("http://")
        for i in range(60):
            connection = HTTPConnection(host, timeout=30)
            connection.putrequest("POST", "/v2/models/tiny/infer")
            connection.putheader("Content-Length", "12")
            connection.putheader("Content-Type", OCTETS)
            connection.endheaders()
            connection.send(row(1.0)[: chance.randrange(13)])
            connection.close()
            if i % 20 == 0:
                with stream(server.url) as leaving:
                    for number in range(50):
                        leaving.send(raw(number, 1.0))
        assert ask(server).body == row(1.0)
        state = json.loads(Client(server.url)("/dashboard/state.json").body)["models"][0]
        while state["in_flight"]:
            state = json.loads(Client(server.url)("/dashboard/state.json").body)["models"][0]


def test_a_cache_folder_that_cannot_be_written_costs_nothing_but_speed(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    full = tmp_path / "full"
    full.write_text("a file in the place of the folder: every write fails, as on a full disk")
    with ServerThread(create_app({"tiny": tiny}, cache_folder=full / "encoded")) as server:
        send = Client(server.url)
        for _ in range(2):
            answer = send("/models/tiny/manifest.json", accept_encoding="gzip")
            assert answer.status == 200


@pytest.mark.timeout(120)
def test_soak_memory_stays_where_it_is(tmp_path: Path) -> None:
    """The short form of `make soak`: mixed requests, good and bad, over HTTP and a stream."""
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny})) as server, stream(server.url) as streaming:
        host = server.url.removeprefix("http://")

        def rounds(count: int) -> None:
            connection = HTTPConnection(host, timeout=30)
            for i in range(count):
                body = b"no tensor" if i % 10 == 0 else row(float(i), 1 + i % 5)
                connection.request("POST", "/v2/models/tiny/infer", body, {"Content-Type": OCTETS})
                response = connection.getresponse()
                response.read()
                assert response.status == (400 if i % 10 == 0 else 200)
                streaming.send(raw(i, float(i)))
                assert len(answers_of(streaming, 1)) == 1
            connection.close()

        try:
            rounds(600)
            before = resident_bytes()
            rounds(1500)
            growth = resident_bytes() - before
        except HTTPException as error:
            pytest.fail(f"a connection was cut: {error}")
    assert growth < 4 * 2**20, f"{growth} bytes more after 3000 requests"
