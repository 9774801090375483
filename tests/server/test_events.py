"""Models with state, step by step, as server-sent events."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from onnx import TensorProto, helper

from edge_infer.errors import InputError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion import infer_steps
from edge_infer.server.protocol.parsing_process import ParsingProcess
from edge_infer.server.protocol.steps import parse_plan
from edge_infer.server.response.writing import write_answer
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.tensors.tensor import TensorSpec
from tests.support import stateful_tflite
from tests.support.server.client import Client
from tests.support.server.gate import Gate, wait_until_queued
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.model_files import WriteBundle

FLOAT = TensorProto.FLOAT


def running_sum() -> bytes:
    """`total_out = total_in + x`, both of shape [batch, 2]; `twice` is double the total."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "total_in"], ["total_out"]),
            helper.make_node("Add", ["total_out", "total_out"], ["twice"]),
        ],
        "sum",
        [info(name, FLOAT, ["batch", 2]) for name in ("x", "total_in")],
        [info(name, FLOAT, ["batch", 2]) for name in ("total_out", "twice")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    data: bytes = model.SerializeToString()
    return data


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("events") / "sum.onnx"
    path.write_bytes(running_sum())
    with ServerThread(create_app({"sum": path})) as server:
        yield Client(server.url)


def tensor(name: str, data: list[Any], shape: list[int]) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": "FP32", "data": data}


def ask(send: Client, x: dict[str, Any], more: dict[str, Any] | None = None, **parameters: Any) -> list[Any]:
    document = {"inputs": [x, tensor("total_in", [0, 0], [1, 2])], "parameters": parameters, **(more or {})}
    return steps(send, "sum", document)


def steps(send: Client, name: str, document: dict[str, Any]) -> list[Any]:
    answer = send(f"/v2/models/{name}/infer_stream", "POST", json.dumps(document).encode())
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/event-stream"
    events = []
    for block in answer.body.decode().strip().split("\n\n"):
        kind, data = block.split("\n")
        events.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_each_entry_of_a_sequence_is_a_step_and_state_goes_on(send: Client) -> None:
    x = tensor("x", [1, 10, 2, 20, 3, 30], [3, 1, 2])
    events = ask(send, x, {"outputs": [{"name": "twice"}]}, state="total_out:total_in", sequence="x")
    assert [kind for kind, _ in events] == ["step", "step", "step", "end"]
    assert [event["outputs"][0]["data"] for _, event in events[:3]] == [[2, 20], [6, 60], [12, 120]]
    assert [output["name"] for output in events[0][1]["outputs"]] == ["twice"]
    assert events[3][1] == {"steps": 3}


def test_a_number_of_steps_repeats_the_input(send: Client) -> None:
    events = ask(send, tensor("x", [1, 2], [1, 2]), state="total_out:total_in", steps=5)
    assert events[4][1]["outputs"][0]["data"] == [5, 10]


def test_steps_of_many_clients_do_not_mix(send: Client) -> None:
    with ThreadPoolExecutor(6) as threads:
        found = threads.map(
            lambda i: ask(send, tensor("x", [i, -i], [1, 2]), state="total_out:total_in", steps=20), range(6)
        )
        for i, events in enumerate(found):
            assert events[19][1]["outputs"][0]["data"] == [20 * i, -20 * i]


def test_each_stream_has_hidden_state_of_its_own_and_requests_have_none(tmp_path: Path) -> None:
    (tmp_path / "variable.tflite").write_bytes(stateful_tflite.in_variable_tensor())
    (tmp_path / "resource.tflite").write_bytes(stateful_tflite.in_resource())
    firsts = {"variable": 0, "resource": 10}
    with (
        ServerThread(create_app({name: tmp_path / f"{name}.tflite" for name in firsts})) as server,
        ThreadPoolExecutor(6) as threads,
    ):
        send = Client(server.url)

        def total(document: dict[str, Any]) -> float:
            return float(document["outputs"][0]["data"][0])

        def stream(name: str, value: int) -> list[float]:
            x = tensor("x", [value] * 8, [8, 1, 1, 1] if name == "variable" else [8, 1])
            events = steps(send, name, {"inputs": [x], "parameters": {"sequence": "x"}})
            return [total(event) for _, event in events[:-1]]

        def once(name: str) -> float:
            body = {"inputs": [tensor("x", [1], [1, 1, 1] if name == "variable" else [1])]}
            answer = send(f"/v2/models/{name}/infer", "POST", json.dumps(body).encode())
            return total(json.loads(answer.body))

        for name, first in firsts.items():
            streams = [threads.submit(stream, name, value) for value in range(1, 5)]
            assert [once(name) for _ in range(8)] == [first + 1] * 8
            for value, running in enumerate(streams, 1):
                assert running.result() == [first + value * (step + 1) for step in range(8)]


def test_a_step_that_fails_is_an_event_and_the_server_goes_on(send: Client) -> None:
    events = ask(send, tensor("x", [1, 2], [1, 2]), state="total_out:total_in", steps=3, timeout=1)
    assert events[-1][0] == "error"
    assert (events[-1][1]["code"], events[-1][1]["status"]) == ("deadline_exceeded", 504)
    assert ask(send, tensor("x", [1, 2], [1, 2]), steps=1)[-1] == ("end", {"steps": 1})


STEP = json.dumps(
    {
        "inputs": [{"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} for name in ("x", "total_in")],
        "parameters": {"steps": 1},
    }
).encode()
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("sum", None, 200), ("sum", b"{", 400), ("none", b"{}", 404)],
)
def test_the_names_of_a_request_come_back_whatever_becomes_of_it(
    send: Client, path: str, body: bytes | None, status: int
) -> None:
    headers = {"x_request_id": "seven", "traceparent": TRACE}
    answer = send(f"/v2/models/{path}/infer_stream", "POST", STEP if body is None else body, **headers)
    assert answer.status == status
    assert (answer.headers["x-request-id"], answer.headers["traceparent"]) == ("seven", TRACE)


def test_a_client_that_leaves_before_its_body_came_is_no_fault(send: Client, caplog: pytest.LogCaptureFixture) -> None:
    connection = HTTPConnection(send.url.removeprefix("http://"), timeout=30)
    connection.putrequest("POST", "/v2/models/sum/infer_stream")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"{")
    connection.close()
    assert ask(send, tensor("x", [1, 2], [1, 2]), steps=1)[-1] == ("end", {"steps": 1})
    counted = 'edge_infer_failures_total{code="client_left",model="sum"'
    wait_until(lambda: counted in send("/metrics").body.decode())
    assert "The server failed" not in caplog.text


def request(**parameters: Any) -> bytes:
    inputs = [tensor("x", [1, 2], [1, 2]), tensor("total_in", [0, 0], [1, 2])]
    return json.dumps({"inputs": inputs, "parameters": parameters}).encode()


def test_a_large_body_is_parsed_while_the_server_answers_others(send: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    is_parsing, may_go_on = Event(), Event()

    steps = ParsingProcess.steps

    def slowly(*arguments: Any) -> Any:
        is_parsing.set()
        assert may_go_on.wait(20)
        return steps(*arguments)

    monkeypatch.setattr(ParsingProcess, "steps", slowly)
    with ThreadPoolExecutor(1) as threads:
        large = threads.submit(ask, send, tensor("x", [1] * 40_000, [20_000, 1, 2]), sequence="x", steps=1)
        assert is_parsing.wait(20)
        assert send("/v2/health/live").status == 200
        assert not large.done()
        may_go_on.set()
        assert large.result()[-1] == ("end", {"steps": 1})


def test_a_large_step_is_written_while_the_server_answers_others(send: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    is_writing, may_go_on = Event(), Event()

    def slowly(*arguments: Any) -> Any:
        is_writing.set()
        assert may_go_on.wait(20)
        return write_answer(*arguments)

    monkeypatch.setattr(infer_steps, "write_answer", slowly)
    inputs = [tensor(name, [1] * 20_000, [10_000, 2]) for name in ("x", "total_in")]
    body = json.dumps({"inputs": inputs, "parameters": {"steps": 2}}).encode()
    with ThreadPoolExecutor(1) as threads:
        large = threads.submit(send, "/v2/models/sum/infer_stream", "POST", body)
        assert is_writing.wait(20)
        assert send("/v2/health/live").status == 200
        may_go_on.set()
        assert large.result().body.endswith(b'event: end\ndata: {"steps":2}\n\n')


def test_who_would_wait_too_long_is_refused_before_the_body_is_read(tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "sum.onnx"
    path.write_bytes(running_sum())
    limits = Limits(workers=1, batch=BatchLimits(max_batch_size=1, max_wait_ms=1e6, max_queue_size=1))
    with ServerThread(create_app({"sum": path}, limits=limits)) as server, ThreadPoolExecutor(2) as threads:
        send = Client(server.url)
        waiting = [threads.submit(send, "/v2/models/sum/infer_stream", "POST", request(steps=1))]
        assert gate.entered.wait(60)
        waiting.append(threads.submit(send, "/v2/models/sum/infer_stream", "POST", request(steps=1)))
        wait_until_queued(server, 1)
        refused = send("/v2/models/sum/infer_stream", "POST", b"no JSON, which nobody looks at")
        assert (refused.status, json.loads(refused.body)["code"]) == (503, "queue_full")
        gate.open.set()
        assert [future.result().status for future in waiting] == [200, 200]


def test_a_request_that_fails_is_counted_and_logged(
    send: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(infer_steps, "parse_plan", fail)
    with caplog.at_level("INFO"):
        assert send("/v2/models/sum/infer_stream", "POST", request(steps=1)).status == 500
        metrics = send("/metrics").body.decode()
    assert 'edge_infer_failures_total{code="internal_error",model="sum"' in metrics
    assert "POST /v2/models/sum/infer_stream 500" in caplog.text


SPECS = [TensorSpec("x", "float32", ("batch", 2)), TensorSpec("total_in", "float32", ("batch", 2))]
OUTPUTS = [TensorSpec("total_out", "float32", ("batch", 2))]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (None, "`parameters` is missing"),
        ({}, "`parameters.steps` is null"),
        ({"steps": 0}, "from 1 to 100000"),
        ({"steps": 10**9}, "from 1 to 100000"),
        ({"steps": True}, "expected a whole number"),
        ({"steps": 1, "state": 3}, "`parameters.state` is not a text"),
        ({"steps": 1, "state": "nothing:x"}, "names `nothing`"),
        ({"steps": 1, "state": "total_in"}, "has `total_in`, expected `OUTPUT:INPUT`"),
        ({"steps": 1, "state": "total_out:"}, "has `total_out:`, expected `OUTPUT:INPUT`"),
        ({"steps": 1, "state": ":total_in"}, "has `:total_in`, expected `OUTPUT:INPUT`"),
        ({"steps": 1, "state": "total_out:total"}, "names `total`"),
        ({"steps": 1, "state": "total_out:x,total_out:total_in"}, "names `total_out`"),
        ({"sequence": "total_in", "state": "total_out:total_in"}, "is in `state` and in `sequence`"),
        ({"sequence": "y"}, "names `y`"),
        ({"sequence": ["x"]}, "`parameters.sequence` is not a text"),
        ({"sequence": "x", "steps": 3}, "from 1 to 2"),
        ({"sequence": "x,total_in"}, "steps"),
    ],
)
def test_plans_that_make_no_sense_name_the_field(parameters: Any, message: str) -> None:
    sequence = parameters is not None and "sequence" in parameters
    x = tensor("x", [1, 2, 3, 4], [2, 1, 2]) if sequence else tensor("x", [1, 2], [1, 2])
    total = tensor("total_in", [0, 0], [1, 2])
    if sequence and "total_in" in parameters["sequence"]:
        total = tensor("total_in", [0] * 6, [3, 1, 2])
    body = json.dumps({"inputs": [x, total], "parameters": parameters}).encode()
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        parse_plan(body, SPECS, OUTPUTS)


@pytest.mark.parametrize("max_rows", [0, 4])
def test_a_sequence_of_no_steps_is_refused(max_rows: int) -> None:
    inputs = [tensor("x", [], [0, 1, 2]), tensor("total_in", [0, 0], [1, 2])]
    body = json.dumps({"inputs": inputs, "parameters": {"sequence": "x"}}).encode()
    with pytest.raises(InputError, match=r"have \{'x': 0\} steps"):
        parse_plan(body, SPECS, OUTPUTS, max_rows)


@pytest.mark.parametrize(
    ("output", "fits"),
    [
        (TensorSpec("o", "float32", ("batch", 2)), True),
        (TensorSpec("o", "float32", ("rows", "columns")), True),
        (TensorSpec("o", "int32", ("batch", 2)), False),
        (TensorSpec("o", "float32", ("batch", 3)), False),
        (TensorSpec("o", "float32", (2,)), False),
    ],
)
def test_an_output_becomes_only_an_input_of_its_kind(output: TensorSpec, fits: bool) -> None:
    body = request(steps=2, state="o:total_in")
    if fits:
        assert parse_plan(body, SPECS, [output]).state == {"o": "total_in"}
        return
    with pytest.raises(InputError, match="Output `o` cannot become input `total_in`"):
        parse_plan(body, SPECS, [output])


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"parameters": []}', b'{"parameters": {"steps": 1}}'])
def test_bodies_that_are_none_are_refused_before_any_event(send: Client, body: bytes) -> None:
    answer = send("/v2/models/sum/infer_stream", "POST", body)
    assert answer.status == 400
    assert json.loads(answer.body)["code"] == "input_error"


def test_a_bundle_that_names_its_state_needs_none_in_the_request(write_bundle: WriteBundle) -> None:
    """Neither the pairs nor the first value of the state are in it; a request may still name others."""
    bundle = write_bundle({"onnx/fp32": running_sum()})
    place = bundle / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["variants"][0]["state"] = [{"kind": "pair", "out": "total_out", "in": "total_in"}]
    place.write_text(json.dumps(manifest))
    asked = {"inputs": [tensor("x", [1, 10, 2, 20], [2, 1, 2])], "parameters": {"sequence": "x"}}
    with ServerThread(create_app({"sum": bundle})) as server:
        send = Client(server.url)

        events = steps(send, "sum", asked)
        doubled = steps(send, "sum", {**asked, "parameters": {"sequence": "x", "state": "twice:total_in"}})

    assert [output["data"] for output in events[1][1]["outputs"]] == [[3, 30], [6, 60]]
    assert doubled[1][1]["outputs"][0]["data"] == [4, 40]


def test_large_requests_know_the_state_of_the_bundle_too() -> None:
    body = json.dumps({"inputs": [tensor("x", [1, 2], [1, 1, 2])], "parameters": {"sequence": "x"}}).encode()
    process = ParsingProcess()
    try:
        plan = process.steps(body, SPECS, OUTPUTS, 0, {"total_out": "total_in"})
    finally:
        process.close()

    assert plan.state == {"total_out": "total_in"}
    assert plan.request.inputs["total_in"].tolist() == [[0, 0]]


def test_a_state_of_unknown_shape_needs_a_first_value() -> None:
    body = json.dumps({"inputs": [tensor("x", [1, 2], [1, 2])], "parameters": {"steps": 1}}).encode()
    free = [SPECS[0], TensorSpec("h_in", "float32", ("batch", "width"))]

    with pytest.raises(InputError, match="`h_in: float32\\[batch, width\\]` has no first value"):
        parse_plan(body, free, [TensorSpec("h_out", "float32", ("batch", "width"))], 0, {"h_out": "h_in"})
