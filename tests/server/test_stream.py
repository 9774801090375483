"""WebSocket streams: many requests in flight on one connection."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from edge_infer.errors import DeviceLost
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.app import Limits, create_app
from edge_infer.server.errors import ClientLeft
from edge_infer.server.execution.dispatcher import Dispatcher
from edge_infer.server.execution.lifecycle import Engine
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.websocket import WebSocket
from edge_infer.server.ingestion import infer_websocket
from edge_infer.server.response import frames as written_frames
from edge_infer.server.response.writing import write_answer
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import Client, row
from tests.support.server.gate import Gate, queued, wait_until_queued
from tests.support.server.process import started
from tests.support.server.streams import answer, answers_of, framed, frames, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize("name", ["tiny", "none"])
def test_the_names_of_a_stream_come_back_with_its_handshake(server: ServerThread, name: str) -> None:
    names = {"X-Request-Id": "seven", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    try:
        with stream(server.url, name, additional_headers=names) as opened:
            assert opened.response is not None
            found = opened.response.headers
    except InvalidStatus as refused:
        found = refused.response.headers
    assert {key: found.get(key) for key in names} == names


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    root = tmp_path_factory.mktemp("stream")
    models = {
        "tiny": write_bundle(root / "tiny", bundle_files()),
        "neg": write_bundle(root / "neg", bundle_files("neg", onnx_model("Neg"))),
    }
    # No wait is too long: on a busy machine the rows of a large request would be estimated to take too much time.
    limits = Limits(max_body_bytes=2**20, batch=BatchLimits(max_wait_ms=1e6))
    with ServerThread(create_app(models, limits=limits)) as running:
        yield running


def test_many_requests_are_in_flight_and_each_answer_has_its_number(server: ServerThread) -> None:
    with stream(server.url) as connection:
        for number in range(500):
            connection.send(raw(number, number))
        found = {number: tail for number, _, tail in answers_of(connection, 500)}
    assert found == {number: row(number) for number in range(500)}


def test_a_message_may_hold_many_requests(server: ServerThread) -> None:
    with stream(server.url) as connection:
        connection.send(b"".join(raw(number, number) for number in range(700)))  # more than may be in flight
        found = {number: tail for number, _, tail in answers_of(connection, 700)}
    assert found == {number: row(number) for number in range(700)}


def test_json_and_binary_tensors_come_as_over_http(server: ServerThread) -> None:
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32"}
    with stream(server.url, "neg") as connection:
        connection.send(framed(7, {"id": "a", "inputs": [{**entry, "data": [1, 2, 3]}]}))
        number, document, tail = answer(connection.recv())
        assert (number, document["id"], tail) == (7, "a", b"")
        assert document["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [-1, -2, -3]}]
        binary = {"inputs": [{**entry, "parameters": {"binary_data_size": 12}}]}
        connection.send(framed(8, {**binary, "parameters": {"binary_data_output": True}}, row(2)))
        number, document, tail = answer(connection.recv())
    assert (number, tail) == (8, row(-2))
    assert document["outputs"][0]["parameters"] == {"binary_data_size": 12}


def test_a_large_answer_is_written_while_the_server_answers_others(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, may_go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        if "large" in arguments[2].id:
            is_writing.set()
            assert may_go_on.wait(20)
            if "wrong" in arguments[2].id:
                raise ValueError("out of luck")
        return write_answer(*arguments)

    def request(name: str, rows: int) -> dict[str, Any]:
        size = {"binary_data_size": 12 * rows}
        return {"id": name, "inputs": [{"name": "x", "shape": [rows, 3], "datatype": "FP32", "parameters": size}]}

    monkeypatch.setattr(written_frames, "write_answer", slowly)
    with stream(server.url) as connection:
        connection.send(framed(1, request("large", 10_000), row(1.0, 10_000)))
        connection.send(framed(2, request("large and wrong", 10_000), row(1.0, 10_000)))
        assert is_writing.wait(20)
        connection.send(framed(3, request("small", 1), row(3.0)))
        assert answer(connection.recv(30))[1]["outputs"][0]["data"] == [3.0] * 3
        assert Client(server.url)("/livez").status == 200
        may_go_on.set()
        found = {number: document for number, document, _ in answers_of(connection, 2)}
    assert found[1]["outputs"][0]["data"] == [1.0] * 30_000
    assert found[2]["code"] == "internal_error"


def test_a_client_that_leaves_while_its_answer_is_written_gives_the_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, may_go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        is_writing.set()
        assert may_go_on.wait(20)
        return write_answer(*arguments)

    monkeypatch.setattr(written_frames, "write_answer", slowly)
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    entry = {"name": "x", "shape": [10_000, 3], "datatype": "FP32", "parameters": {"binary_data_size": 120_000}}
    with ServerThread(app) as server:
        with stream(server.url) as connection:
            connection.send(framed(1, {"inputs": [entry]}, row(1.0, 10_000)))
            assert is_writing.wait(20)
            assert app.direct.context.memory.taken
        may_go_on.set()
        wait_until(lambda: not app.direct.context.memory.taken)
        assert app.engine.active()[0].statistics.requests == 1


def test_an_error_is_an_answer_and_the_stream_goes_on(server: ServerThread) -> None:
    with stream(server.url) as connection:
        connection.send(framed(1, {"inputs": []}))
        number, document, _ = answer(connection.recv())
        assert (number, document["code"], document["status"]) == (1, "input_error", 400)
        assert document["hint"]
        connection.send(FRAME.pack(2, 0, 5) + b"12345")
        assert answer(connection.recv())[1]["code"] == "input_error"
        connection.send(raw(3, 4.0))
        assert answer(connection.recv()) == (3, None, row(4.0))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", 1007),
        (b"12345678901", 1007),
        (FRAME.pack(1, 0, 13) + row(1), 1007),
        (FRAME.pack(1, 2**32 - 1, 2**32 - 1) + b"{}", 1007),
        (raw(1, 1.0) + b"more", 1007),
        ("text", 1003),
        (b"x" * (2**20 + 1), 1009),
    ],
)
def test_what_is_no_frame_ends_the_stream_and_harms_nobody(
    server: ServerThread, message: bytes | str, code: int
) -> None:
    with stream(server.url) as other, stream(server.url) as connection:
        connection.send(message)
        with pytest.raises(ConnectionClosed) as caught:
            connection.recv(30)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == code
        other.send(raw(1, 5.0))
        assert answer(other.recv(30))[2] == row(5.0)


HOSTILE = {
    "JSON cut": FRAME.pack(1, 3, 0) + b'{"i',
    "not UTF-8": FRAME.pack(1, 2, 0) + b"\xff\xfe",
    "deep": FRAME.pack(1, 50_000, 0) + b"[" * 50_000,
    "large and wrong": FRAME.pack(1, 200_000, 0) + b"[" * 200_000,
    "no input": framed(1, {"inputs": [{}]}),
    "sizes that lie": framed(
        1, {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 99}}]}
    ),
    "a tail nobody names": framed(
        1, {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}, b"more"
    ),
    "no row": FRAME.pack(1, 0, 3) + b"123",
}


@pytest.mark.parametrize("frame", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_frame_has_one_clear_error(server: ServerThread, frame: bytes) -> None:
    with stream(server.url) as connection:
        connection.send(frame)
        number, document, _ = answer(connection.recv(30))
        assert (number, document["status"]) == (1, 400), document
        assert "Traceback" not in document["error"]
        connection.send(raw(2, 6.0))
        assert answer(connection.recv(30))[2] == row(6.0)


def test_random_frames_never_end_the_server(server: ServerThread) -> None:
    random = numpy.random.default_rng(7)
    with stream(server.url) as connection:
        for number in range(300):
            length, size = (int(value) for value in random.integers(1, 40, 2))
            connection.send(FRAME.pack(number, length, size) + random.bytes(length + size))
        numbers = {number for number, _, _ in answers_of(connection, 300)}
    assert numbers == set(range(300))


def test_an_unknown_model_is_refused_before_the_stream_opens(server: ServerThread) -> None:
    with pytest.raises(InvalidStatus) as caught:
        stream(server.url, "none")
    assert caught.value.response.status_code == 404
    assert json.loads(caught.value.response.body)["code"] == "model_not_found"


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_a_request_that_opens_no_stream_is_told_to(server: ServerThread, version: str) -> None:
    place = f"/v2/models/tiny{version}"
    for method in ("GET", "POST"):
        refused = Client(server.url)(f"{place}/stream", method, b"" if method == "POST" else None)
        document = json.loads(refused.body)
        assert (refused.status, refused.headers["upgrade"]) == (426, "websocket")
        assert (document["code"], document["details"]) == ("upgrade_required", {"path": f"{place}/stream"})
        assert document["hint"] == f'edge_infer.load("{server.url.replace("http", "ws")}{place}")'


def limits(**more: Any) -> Limits:
    return Limits(workers=1, batch=BatchLimits(max_wait_ms=1e6), **more)


def test_streams_have_a_limit(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny}, limits=limits(max_streams=1))) as server, stream(server.url):
        with pytest.raises(InvalidStatus) as caught:
            stream(server.url)
        assert caught.value.response.status_code == 503
        assert caught.value.response.headers["retry-after"] == "1"


def test_streams_that_wait_for_their_model_have_the_same_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading, release, load = threading.Event(), threading.Event(), ServedModel.loaded

    def wait(self: ServedModel, *place: Any) -> Any:
        loading.set()
        assert release.wait(60)
        return load(self, *place)

    def status(url: str) -> int:
        try:
            with stream(url):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    monkeypatch.setattr(ServedModel, "loaded", wait)
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=limits(max_streams=2))
    with ServerThread(app) as server, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(status, server.url) for _ in range(2)]
        assert loading.wait(60)
        wait_until(lambda: app._streams._places >= 2)
        assert status(server.url) == 503
        release.set()
        assert [one.result() for one in waiting] == [101, 101]
        wait_until(lambda: not app._streams._places)
        for _ in range(3):  # a handshake that is refused keeps no place
            with pytest.raises(InvalidStatus):
                stream(server.url, "none")
        assert status(server.url) == 101


def test_a_request_whose_model_was_replaced_goes_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ServerThread
) -> None:
    closed, hold = [True, True, True], Dispatcher.hold
    monkeypatch.setattr(Dispatcher, "hold", lambda *one: not (closed and closed.pop()) and hold(*one))
    entry = {"name": "x", "shape": [8000, 3], "datatype": "FP32", "data": [1.5] * 24_000}
    with stream(server.url) as connection:
        connection.send(raw(1, 1.0))
        assert answer(connection.recv(30)) == (1, None, row(1.0))
        closed += [True, True]
        connection.send(framed(2, {"inputs": [entry]}))
        assert "code" not in answer(connection.recv(30))[1]
    assert not closed


def test_a_request_to_a_server_that_stops_is_a_refusal_of_no_model(tmp_path: Path) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    with ServerThread(app) as server, stream(server.url) as connection:
        app.engine.is_draining = True
        connection.send(raw(1, 1.0))
        assert answer(connection.recv(30))[1]["code"] == "shutting_down"
        assert app.refusals == {"shutting_down": 1}
        (model,) = app.engine.active()
        assert not model.statistics.rejections


def test_a_stream_that_left_while_it_was_closed_harms_no_other_request(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_closing = threading.Event()

    async def fail(*_: object) -> None:
        is_closing.set()
        raise ClientLeft("The WebSocket is closed")

    monkeypatch.setattr(WebSocket, "close", fail)
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    with ThreadPoolExecutor(1) as threads, ServerThread(app) as server, stream(server.url):
        octets = {"content_type": "application/octet-stream"}
        asked = threads.submit(Client(server.url), "/v2/models/tiny/infer", "POST", row(1.0), **octets)
        assert gate.entered.wait(60)
        server.server.stop()
        assert is_closing.wait(60)
        gate.open.set()
        assert asked.result().status == 200


def test_a_stream_that_asks_too_much_at_once_is_read_no_further(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits(max_in_flight=4))) as server,
        stream(server.url) as connection,
        stream(server.url) as other,
    ):
        connection.send(raw(0, 0.0))
        assert gate.entered.wait(60)
        for number in range(1, 10):
            connection.send(raw(number, number))
        wait_until_queued(server, 3)
        other.send(raw(0, 100.0))
        wait_until_queued(server, 4)  # the other's came after all of these, and no more of these is there
        gate.open.set()
        assert sorted(number for number, _, _ in answers_of(connection, 10)) == list(range(10))
        assert answer(other.recv(30))[2] == row(100.0)


def test_a_stream_that_has_many_bytes_in_flight_is_read_no_further(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer_websocket, "MAX_STREAM_BYTES", 4 * (12 + 12))  # with the answers
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits())) as server,
        stream(server.url) as connection,
        stream(server.url) as other,
    ):
        connection.send(raw(0, 0.0))
        assert gate.entered.wait(60)
        for number in range(1, 10):
            connection.send(raw(number, number))
        wait_until_queued(server, 3)
        other.send(raw(0, 100.0))
        wait_until_queued(server, 4)  # the other's came after all of these, and no more of these is there
        assert queued(server) == 4
        gate.open.set()
        assert sorted(number for number, _, _ in answers_of(connection, 10)) == list(range(10))
        assert answer(other.recv(30))[2] == row(100.0)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "looked up"])
@pytest.mark.parametrize("size", [8, 3])
def test_streams_that_flood_leave_half_of_the_queue_to_others(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, size: int, is_known: bool
) -> None:
    if not is_known:  # as now and then, and always beside a canary
        monkeypatch.setattr(Engine, "current", lambda *_: None)
    batch = BatchLimits(max_batch_size=1, max_queue_size=size, max_wait_ms=1e6)
    most = max(size // 2, 2)
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=Limits(workers=1, batch=batch))
    with ServerThread(app) as server, stream(server.url) as flooding, stream(server.url) as late:
        flooding.send(raw(0, 0.0))
        assert gate.entered.wait(60)
        for number in range(1, 100):
            flooding.send(raw(number, number))
        wait_until_queued(server, most)
        late.send(raw(0, 100.0))  # one that has nothing in flight is read
        wait_until_queued(server, most + 1)
        late.send(raw(1, 101.0))
        assert Client(server.url)("/livez").status == 200  # behind all of these
        assert queued(server) == most + 1
        gate.open.set()
        found = {number: tail for number, _, tail in answers_of(flooding, 100)}
        assert found == {number: row(number) for number in range(100)}
        assert len(answers_of(late, 2)) == 2
    assert not app.refusals


def test_a_timeout_is_answered_in_time_and_only_once(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [9, 9, 9]}
    with ServerThread(create_app({"tiny": tiny}, limits=limits())) as server, stream(server.url) as connection:
        connection.send(raw(0, 0.0))
        assert gate.entered.wait(60)
        connection.send(framed(1, {"inputs": [entry], "parameters": {"timeout": 20_000}}))
        number, document, _ = answer(connection.recv(30))
        assert (number, document["code"], document["status"]) == (1, "deadline_exceeded", 504)
        gate.open.set()
        assert answer(connection.recv(30))[0] == 0
        connection.send(raw(2, 2.0))
        assert answer(connection.recv(30))[0] == 2
    assert 9.0 not in gate.values


def test_a_refused_request_with_a_timeout_has_one_answer(tmp_path: Path, gate: Gate) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=limits())
    dispatcher = app.engine.dispatchers["default"]

    def hurried(number: int, microseconds: int) -> bytes:
        entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [9, 9, 9]}
        return framed(number, {"inputs": [entry], "parameters": {"timeout": microseconds}})

    with ServerThread(app) as server, stream(server.url) as connection:
        dispatcher.lost = DeviceLost("gone")
        for number in range(3):
            connection.send(hurried(number, 1000))
        found = answers_of(connection, 3)
        dispatcher.lost = None
        connection.send(hurried(3, 50_000))  # answered after the timers of the others would have rung
        while found[-1][0] != 3:
            found += answers_of(connection, 1)
        assert [(number, document["code"]) for number, document, _ in found] == [
            *((number, "device_lost") for number in range(3)),
            (3, "deadline_exceeded"),
        ]
        assert [model.in_flight for model in app.engine.active()] == [0]


def test_the_requests_of_a_client_that_left_do_not_run(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny}, limits=limits())) as server, stream(server.url) as connection:
        connection.send(raw(0, 0.0))
        assert gate.entered.wait(60)
        with stream(server.url) as leaving:
            leaving.send(raw(1, 9.0))
            wait_until_queued(server, 1)
        gate.open.set()
        connection.send(raw(2, 2.0))
        assert {number for number, _, _ in answers_of(connection, 2)} == {0, 2}
    assert 9.0 not in gate.values


def test_sigterm_answers_what_a_stream_has_in_flight(tmp_path: Path) -> None:
    write_bundle(tmp_path / "one.bundle", bundle_files("first"))
    (tmp_path / "src").mkdir()
    with started(tmp_path, "--web-root", ".", "--log-format", "none") as (process, url, _):
        assert Client(url)("/v2/models/first/ready").status == 200
        with stream(url, "first") as connection:
            sent, is_told = 0, False
            answers: dict[int, Any] = {}
            stop = threading.Event()

            def read() -> None:
                try:
                    for data in connection:
                        for number, document, tail in frames(data):
                            answers[number] = document["code"] if document else tail
                        if len(answers) >= 300:
                            stop.set()
                except ConnectionClosed:
                    pass

            reader = threading.Thread(target=read)
            reader.start()
            try:
                while sent < 100_000:
                    connection.send(raw(sent, sent))
                    sent += 1
                    if stop.is_set() and not is_told:
                        is_told = True
                        process.send_signal(signal.SIGTERM)
            except ConnectionClosed:
                pass
            reader.join(60)
        assert process.wait(60) == 0
    accepted = [number for number, found in answers.items() if isinstance(found, bytes)]
    assert all(answers[number] == row(number) for number in accepted)
    assert {found for found in answers.values() if isinstance(found, str)} <= {"shutting_down"}
    # Answered are the first so many, without a gap: nothing that was accepted is missing.
    assert sorted(answers) == list(range(len(answers)))
    assert connection.close_code == 1001
