"""A running server under load, change and failure: batching, priorities, timeouts, swaps, hangs, metrics."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from threading import Event
from typing import Any

import numpy
import pytest

from edge_infer.errors import ExecutionError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution import job
from edge_infer.server.execution.batch_probe import probe
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.execution.run_batch import run_batch
from edge_infer.server.execution.statistics import Statistics
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import OCTETS, Client, ask, row
from tests.support.server.gate import Gate, limits, queued, wait_until_queued, workers_alive
from tests.support.wait import wait_until

DIGITS = Path(__file__).parents[2] / "examples/digits/digits.onnx"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "tiny", bundle_files())


def test_requests_that_wait_run_together_and_get_their_own_answers(tiny: Path, gate: Gate) -> None:
    with ServerThread(create_app({"tiny": tiny}, limits=limits())) as server, ThreadPoolExecutor(20) as threads:
        first = threads.submit(ask, server, 100.0)
        assert gate.entered.wait(60)
        others = [threads.submit(ask, server, float(i)) for i in range(10)]
        wait_until_queued(server, 10)
        gate.open.set()
        assert first.result().body == row(100.0)
        assert [future.result().body for future in others] == [row(float(i)) for i in range(10)]
    assert gate.sizes[0] == 1
    assert len(gate.sizes) < 11


def test_the_most_urgent_runs_first(tiny: Path, gate: Gate) -> None:
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits(max_batch_size=1))) as server,
        ThreadPoolExecutor(20) as threads,
    ):
        waiting = [threads.submit(ask, server, 0.0)]
        assert gate.entered.wait(60)
        # One that is urgent starts beside what runs; the next one finds that place taken.
        gate.entered.clear()
        waiting.append(threads.submit(ask, server, 4.0, x_priority="1"))
        assert gate.entered.wait(60)
        for i, priority in enumerate(("255", "0", "1"), 1):
            waiting.append(threads.submit(ask, server, float(i), x_priority=priority))
            wait_until_queued(server, i)
        gate.open.set()
        assert [future.result().status for future in waiting] == [200] * 5
    assert gate.values == [0.0, 4.0, 3.0, 2.0, 1.0]


def test_a_full_queue_refuses_before_the_body_is_sent(tiny: Path, gate: Gate) -> None:
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits(max_queue_size=2))) as server,
        ThreadPoolExecutor(20) as threads,
    ):
        waiting = [threads.submit(ask, server)]
        assert gate.entered.wait(60)
        for i in (1, 2):
            waiting.append(threads.submit(ask, server))
            wait_until_queued(server, i)
        # The length is promised, nothing of the body is sent: the answer comes all the same.
        refused = Client(server.url)("/v2/models/tiny/infer", "POST", b"", content_length="1000", content_type=OCTETS)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert json.loads(refused.body)["code"] == "queue_full"
        urgent = threads.submit(ask, server, 7.0, x_priority="1")
        wait_until(lambda: len([future for future in waiting if future.done()]) >= 1)
        gate.open.set()
        assert sorted(future.result().status for future in waiting) == [200, 200, 503]
        assert urgent.result().status == 200
        metrics = Client(server.url)("/metrics").body.decode()
    assert 'edge_infer_rejections_total{code="queue_full",model="tiny",pool="default",version="1"} 2.0' in metrics
    assert "edge_infer_failures_total{" not in metrics


def test_a_timeout_is_answered_in_time_though_the_model_is_busy(tiny: Path, gate: Gate) -> None:
    with ServerThread(create_app({"tiny": tiny}, limits=limits())) as server, ThreadPoolExecutor(4) as threads:
        first = threads.submit(ask, server)
        assert gate.entered.wait(60)
        late = ask(server, 5.0, x_timeout_ms="20")
        assert late.status == 504
        assert json.loads(late.body)["details"] == {"timeout_ms": 20}
        document = {
            "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [6, 6, 6]}],
            "parameters": {"timeout": 20_000},
        }
        late = Client(server.url)("/v2/models/tiny/infer", "POST", json.dumps(document).encode())
        assert late.status == 504
        gate.open.set()
        assert first.result().status == 200
        assert ask(server, 8.0).status == 200
    assert 5.0 not in gate.values
    assert 6.0 not in gate.values


def test_those_that_timed_out_leave_their_place_to_others(tiny: Path, gate: Gate) -> None:
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits(max_batch_size=1, max_queue_size=4))) as server,
        ThreadPoolExecutor(8) as threads,
    ):
        waiting = [threads.submit(ask, server, 0.0)]
        assert gate.entered.wait(60)
        for i in (1, 2):  # one is offered to the worker, one is the queue's head
            waiting.append(threads.submit(ask, server, float(i)))
            wait_until_queued(server, i)
        assert [ask(server, 9.0, x_timeout_ms="20").status for _ in range(4)] == [504] * 4
        assert queued(server) == 2
        waiting.append(threads.submit(ask, server, 3.0))
        wait_until_queued(server, 3)
        gate.open.set()
        assert [future.result().status for future in waiting] == [200] * 4
    assert gate.values == [0.0, 1.0, 2.0, 3.0]


def test_those_that_timed_out_in_a_batch_formed_ahead_do_too(tiny: Path, gate: Gate) -> None:
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits(max_batch_size=1, max_queue_size=1))) as server,
        ThreadPoolExecutor(8) as threads,
    ):
        waiting = [threads.submit(ask, server, 0.0)]
        assert gate.entered.wait(60)
        assert [ask(server, 9.0, x_timeout_ms="20").status for _ in range(2)] == [504] * 2
        waiting.append(threads.submit(ask, server, 1.0))
        wait_until_queued(server, 1)
        gate.open.set()
        assert [future.result().status for future in waiting] == [200] * 2
    assert gate.values == [0.0, 1.0]


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_a_request_whose_client_left_does_not_run_and_is_no_timeout(
    tiny: Path, gate: Gate, caplog: pytest.LogCaptureFixture, connection: str
) -> None:
    app = create_app({"tiny": tiny}, limits=limits(), triton_metric_names=True)
    with (
        caplog.at_level(logging.INFO, "edge_infer.server.access"),
        ServerThread(app) as server,
        ThreadPoolExecutor(4) as threads,
    ):
        first = threads.submit(ask, server)
        assert gate.entered.wait(60)
        host, _, port = server.url.removeprefix("http://").partition(":")
        head = f"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n"
        with socket.create_connection((host, int(port))) as leaving:
            leaving.sendall(f"{head}Connection: {connection}\r\n\r\n".encode() + row(9.0))
            wait_until_queued(server, 1)
        for _ in range(2):  # its loop sees the closed connection before it answers what comes after
            assert Client(server.url)("/livez").status == 200
        gate.open.set()
        assert first.result().status == 200
        assert ask(server, 2.0).status == 200
        metrics = Client(server.url)("/metrics").body.decode()
    assert 9.0 not in gate.values
    failures = [line for line in metrics.splitlines() if line.startswith("edge_infer_failures_total")]
    assert failures == ['edge_infer_failures_total{code="client_left",model="tiny",pool="default",version="1"} 1.0']
    assert 'nv_inference_request_failure{model="tiny",reason="CANCELED",version="1"} 1' in metrics
    (line,) = [one for one in caplog.records if getattr(one, "facts", {}).get("code") == "client_left"]
    assert line.getMessage().startswith("POST /v2/models/tiny/infer 0 0 B ")


def test_a_model_that_hangs_is_given_up_and_the_next_request_runs(
    tiny: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Limits(workers=1, hang_s=1.0)
    with ServerThread(create_app({"tiny": tiny}, limits=hanging)) as server:
        answer = ask(server)
        assert answer.status == 504
        assert json.loads(answer.body)["error"] in caplog.text
        assert "given up" in caplog.text
        gate.open.set()
        assert ask(server).status == 200


def test_what_is_next_after_a_batch_that_hangs_runs_once_and_late_comers_lose_nothing(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = Event()
    values: list[float] = []

    def hang_at_one(session: Any, batch: Any) -> Any:
        values.append(float(batch.requests[0].inputs["x"][0, 0]))
        if values[-1] == 1.0:
            assert back.wait(60)
        return run_batch(session, batch)

    monkeypatch.setattr(job, "run_batch", hang_at_one)
    app = create_app({"tiny": tiny}, limits=Limits(workers=1, hang_s=1.0, batch=BatchLimits(max_batch_size=1)))
    with ServerThread(app) as server, ThreadPoolExecutor(8) as threads:
        first = threads.submit(ask, server, 1.0)
        wait_until(lambda: values)
        others = [threads.submit(ask, server, 2.0 + i) for i in range(4)]
        assert first.result().status == 504
        assert [future.result().status for future in others] == [200] * 4
        back.set()
        late = [threads.submit(ask, server, 10.0 + i) for i in range(40)]
        assert [future.result().status for future in late] == [200] * 40
        assert sorted(values) == [1.0, *(2.0 + i for i in range(4)), *(10.0 + i for i in range(40))]
        scheduler = app.engine.dispatchers["default"].scheduler
        wait_until(lambda: not scheduler.running)


def test_a_model_that_hung_is_closed_when_it_comes_back_and_its_thread_ends(tiny: Path, gate: Gate) -> None:
    app = create_app({"tiny": tiny}, limits=Limits(workers=1, hang_s=1.0))
    with ServerThread(app) as server:
        assert ask(server).status == 504
        (model,) = app.engine.active()
        before = workers_alive()
        assert Client(server.url)("/v2/repository/models/tiny/unload", "POST", b"").status == 200
        assert model.in_flight == 0
        assert "on closed" not in repr(model.session)
        gate.open.set()
        wait_until(lambda: "on closed" in repr(model.session) and workers_alive() == before - 1)


def test_the_sizes_of_batches_that_clients_choose_are_few_entries() -> None:
    counts = Statistics()
    for rows in range(1, 3000):
        counts.ran(rows, 0.5)
    assert counts.batches[255] == (1, 0.5)
    assert counts.batches[512] == (256, 128.0)
    assert len(counts.batches) == 256 + 4
    assert sum(count for count, _ in counts.batches.values()) == 2999


@pytest.mark.parametrize(("shape", "rows"), [(("batch", 3), 5), ((5, 3), 1)])
def test_rows_are_counted_where_batches_do_not_pay_but_not_where_there_are_none(
    tmp_path: Path, shape: tuple[str | int, int], rows: int
) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files(shape=shape))
    app = create_app({"tiny": folder}, limits=limits(max_batch_size=1))
    with ServerThread(app) as server, ThreadPoolExecutor(4) as threads:
        send = Client(server.url)

        def ask_five(_: int) -> bytes:
            return send("/v2/models/tiny/infer", "POST", row(2.0, 5), content_type=OCTETS).body

        assert set(threads.map(ask_five, range(4))) == {row(2.0, 5)}
        (counts,) = json.loads(send("/v2/models/stats").body)["model_stats"]
        metrics = send("/metrics").body.decode()
    assert (counts["execution_count"], counts["inference_count"]) == (4, 4 * rows)
    assert 'edge_infer_batch_fill{model="tiny",pool="default",version="1"} 1.0' in metrics


def test_a_batch_that_fails_harms_only_the_request_that_fails(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ServedModel("tiny", tiny).loaded()
    real = type(model.session).run

    def fussy(self: Any, inputs: Any, outputs: Any = None, **options: Any) -> Any:
        if (numpy.asarray(inputs["x"]) == 13).any():
            raise ExecutionError("thirteen")
        return real(self, inputs, outputs, **options)

    monkeypatch.setattr(type(model.session), "run", fussy)
    from edge_infer.server.scheduling.request import Batch
    from tests.support.server.waiting import Waiting

    requests = [Waiting() for _ in range(3)]
    for request, value in zip(requests, (1, 13, 2), strict=True):
        request.inputs = {"x": numpy.full((1, 3), value, "float32")}
    good, bad, also_good = run_batch(model.session, Batch(requests, 3, 0.0))
    assert isinstance(bad, ExecutionError)
    assert isinstance(good, dict)
    assert isinstance(also_good, dict)
    assert also_good["y"].tolist() == [[2, 2, 2]]
    model.session.close()


def test_only_models_whose_rows_are_independent_are_batched(tmp_path: Path) -> None:
    """A softmax over the first dimension, and a cumulative one, would mix the answers of strangers."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    model = helper.make_model(
        helper.make_graph([node], "mixing", [value], [result]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 10
    folder = write_bundle(tmp_path / "mixing", bundle_files("mixing", model.SerializeToString()))
    mixing = ServedModel("mixing", folder).loaded()
    assert mixing.batcher.max_batch_size == 1
    assert mixing.probe.reason == "a row's answer depends on the other rows of its batch"
    fixed = ServedModel("fixed", write_bundle(tmp_path / "f", bundle_files("fixed", shape=(1, 3)))).loaded()
    assert fixed.batcher.max_batch_size == 1
    plain = ServedModel("plain", write_bundle(tmp_path / "p", bundle_files("plain"))).loaded()
    assert plain.probe.reason == ""
    assert probe(plain.session, 1).reason == "the batch size is set to 1"


def test_two_versions_at_once_and_the_highest_by_default(tmp_path: Path) -> None:
    def versioned(version: str, op: str) -> Path:
        files = bundle_files("m", onnx_model(op))
        document = json.loads(files["manifest.json"])
        document["version"] = version
        return write_bundle(tmp_path / version, {**files, "manifest.json": json.dumps(document).encode()})

    places = {"m": [versioned("9", "Identity"), versioned("10", "Neg")]}
    with ServerThread(create_app(places)) as server:
        get = Client(server.url)
        assert ask(server, 1.0, "m").body == row(-1.0)
        assert ask(server, 1.0, "m/versions/9").body == row(1.0)
        assert ask(server, 1.0, "m/versions/10").body == row(-1.0)
        assert ask(server, 1.0, "m/versions/11").status == 404
        assert json.loads(get("/v2/models/m").body)["versions"] == ["9", "10"]
        index = json.loads(get("/v2/repository/index", "POST", b"").body)
        assert [(entry["version"], entry["state"]) for entry in index] == [("9", "READY"), ("10", "READY")]


def test_a_changed_bundle_is_swapped_in_and_a_broken_one_is_not(tiny: Path) -> None:
    with ServerThread(create_app({"tiny": tiny})) as server:
        load = Client(server.url)
        assert ask(server, 1.0).body == row(1.0)
        write_bundle(tiny, bundle_files(model=onnx_model("Neg"), more={"labels.json": b"[]"}))
        assert load("/v2/repository/models/tiny/load", "POST", b"").status == 200
        assert ask(server, 1.0).body == row(-1.0)
        write_bundle(tiny, bundle_files(model=b"not a model", more={"labels.json": b"[ ]"}))
        assert load("/v2/repository/models/tiny/load", "POST", b"").status == 500
        assert ask(server, 1.0).body == row(-1.0)


def test_a_request_in_flight_finishes_though_its_model_is_unloaded(tiny: Path, gate: Gate) -> None:
    with ServerThread(create_app({"tiny": tiny}, limits=limits())) as server, ThreadPoolExecutor(4) as threads:
        first = threads.submit(ask, server, 4.0)
        assert gate.entered.wait(60)
        post = Client(server.url)
        assert post("/v2/repository/models/tiny/unload", "POST", b"{}").status == 200
        assert ask(server).status == 404
        index = json.loads(post("/v2/repository/index", "POST", b"{}").body)
        assert index[0]["state"] == "UNAVAILABLE"
        assert json.loads(post("/v2/repository/index", "POST", b'{"ready": true}').body) == []
        gate.open.set()
        assert first.result().body == row(4.0)
        assert post("/v2/repository/models/tiny/load", "POST", b"").status == 200
        assert ask(server, 3.0).body == row(3.0)


def test_loading_and_unloading_at_once_by_many_ends_well(tiny: Path) -> None:
    with ServerThread(create_app({"tiny": tiny})) as server, ThreadPoolExecutor(8) as threads:
        post = Client(server.url)

        def step(i: int) -> int:
            if i % 3 == 0:
                return ask(server).status
            verb = "load" if i % 3 == 1 else "unload"
            return post(f"/v2/repository/models/tiny/{verb}", "POST", b"").status

        assert set(threads.map(step, range(60))) <= {200, 404}
        assert post("/v2/repository/models/tiny/load", "POST", b"").status == 200
        assert ask(server, 3.0).body == row(3.0)


def test_an_answer_tells_where_its_time_went_and_whose_it_is(tiny: Path) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with ServerThread(create_app({"tiny": tiny})) as server:
        answer = ask(server, x_request_id="seven", traceparent=trace)
        parts = dict(part.strip().split(";dur=") for part in answer.headers["server-timing"].split(","))
        assert list(parts) == ["queue", "batch", "compute", "serialization", "total"]
        assert 0 < float(parts["compute"]) <= float(parts["total"])
        assert (answer.headers["x-request-id"], answer.headers["traceparent"]) == ("seven", trace)
        metrics = Client(server.url)("/metrics")
    text = metrics.body.decode()
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    labels = '{model="tiny",pool="default",version="1"}'
    assert f"edge_infer_requests_total{labels} 1.0" in text
    for name in ("queue", "batch_wait", "compute", "serialization", "total"):
        assert f"edge_infer_{name}_seconds_count{labels} 1.0" in text
    assert f"edge_infer_batch_rows_sum{labels} 1.0" in text


def test_the_seed_route_takes_the_only_model(tiny: Path) -> None:
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()
    with ServerThread(create_app({"tiny": tiny})) as server:
        answer = Client(server.url)("/inference", "POST", body)
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2, 3]
    with ServerThread(create_app({"a": tiny, "b": tiny})) as server:
        answer = Client(server.url)("/inference", "POST", body)
    assert (answer.status, json.loads(answer.body)["hint"]) == (400, "POST /v2/models/NAME/infer")


def test_the_api_is_described_as_it_is(tiny: Path) -> None:
    """Every path of the document exists, and the page names it."""
    with ServerThread(create_app({"tiny": tiny})) as server:
        get = Client(server.url)
        document = json.loads(get("/openapi.json").body)
        page = get("/docs").body.decode()
        for path, methods in document["paths"].items():
            assert path in page
            for method in methods:
                place = path.replace("{name}", "tiny").replace("{version}", "1")
                answer = get(place, method.upper(), b"" if method == "post" else None)
                # No store and no index is hosted here, no model is for texts, and no feedback is kept.
                is_hosted = place.startswith(("/store/", "/v1/models/", "/v2/indexes/")) or place == "/sync/v1/events"
                is_hosted = is_hosted or place.endswith("/feedback")
                assert answer.status in (200, 400, 404 if is_hosted or place.endswith("unload") else 200), (
                    place,
                    answer,
                )
                if path.endswith("/unload"):
                    get("/v2/repository/models/tiny/load", "POST", b"")
    assert document["openapi"] == "3.1.0"


@pytest.mark.parametrize("is_bare", [False, True], ids=["bundle", "bare file"])
def test_the_command_of_the_page_runs_the_model_that_is_served(tiny: Path, is_bare: bool) -> None:
    with ServerThread(create_app({"tiny": DIGITS if is_bare else tiny})) as server:
        get = Client(server.url)
        assert get("/v2/models/tiny/ready").status == 200  # the inputs of a bare file are known once it is loaded
        page = get("/docs").body.decode()
        write, _, send = unescape(page.partition("<pre>")[2].partition("</pre>")[0]).partition(" |\n")
        body = subprocess.run(["bash", "-c", write], capture_output=True, check=True).stdout
        answer = get("/v2/models/tiny/infer", "POST", body)

    assert send.split()[:2] == ["curl", f"{server.url}/v2/models/tiny/infer"]
    assert answer.status == 200, answer.body


def test_a_draining_server_is_not_ready_and_takes_nothing_new(tiny: Path, gate: Gate) -> None:
    app = create_app({"tiny": tiny}, limits=limits())
    with ServerThread(app) as server, ThreadPoolExecutor(4) as threads:
        get = Client(server.url)
        assert (get("/readyz").status, get("/livez").body) == (200, b"OK")
        first = threads.submit(ask, server, 4.0)
        assert gate.entered.wait(60)
        app.drain()
        assert (get("/readyz").status, get("/v2/health/ready").status, get("/livez").status) == (503, 503, 200)
        refused = ask(server)
        assert (refused.status, json.loads(refused.body)["code"]) == (503, "shutting_down")
        assert refused.headers["connection"] == "close"
        gate.open.set()
        assert first.result().body == row(4.0)
