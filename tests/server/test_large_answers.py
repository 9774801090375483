"""A large answer is held once, where it was made, however it is asked for and however slowly it is read."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import zstandard
from onnx import TensorProto, helper

from edge_infer.server.app import Application, Limits, create_app
from edge_infer.server.http.connection import Connection
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion.infer_websocket import MAX_STREAM_BYTES
from edge_infer.server.response.frames import joined
from edge_infer.server.response.parts import LONG_BYTES, together
from edge_infer.server.response.writing import write
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.client import Client
from tests.support.server.streams import UPGRADE, answer, framed, masked, opened_by_who_never_reads, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMITS = Limits(batch=BatchLimits(max_rows=0))
#: The rows of a request, and the bytes of each of its two outputs.
ROWS = 200
SIZE = ROWS * 3000 * 4
BINARY = {"parameters": {"binary_data_output": True}}
#: What each way may hold beside the answer: its JSON, a request, the server's own objects.
SPARE = 2**20


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose two outputs each have a thousand times the bytes of its input."""
    repeats = helper.make_tensor("repeats", TensorProto.INT64, [2], [1, 1000])
    nodes = [helper.make_node("Tile", ["x", "repeats"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", 3), ("y", 3000), ("z", 3000))
    ]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], [repeats])
    path = tmp_path_factory.mktemp("two") / "two.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


@pytest.fixture
def app(two: Path) -> Application:
    return create_app({"tiny": two}, limits=LIMITS)


@pytest.fixture
def server(app: Application) -> Iterator[ServerThread]:
    with ServerThread(app) as running:
        warm = {"inputs": [entry(1)], **BINARY}
        assert Client(running.url)("/v2/models/tiny/infer", "POST", json.dumps(warm).encode()).status == 200
        yield running


def entry(rows: int = ROWS) -> dict[str, Any]:
    return {"name": "x", "shape": [rows, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0] * rows}


def posted(path: str, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(),
        len(body),
        body,
    )


WAYS = {
    "HTTP": posted("/v2/models/tiny/infer", {"inputs": [entry()], **BINARY}),
    "HTTP, by the application": posted("/v2/models/tiny/infer?a=b", {"inputs": [entry()], **BINARY}),
    "WebSocket": masked(framed(7, {"inputs": [entry()], **BINARY})),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_nobody_reads_is_held_once_and_counted_whole(
    app: Application, server: ServerThread, way: str
) -> None:
    memory = app.direct.context.memory
    doors = server.server.connections.open
    with opened_by_who_never_reads(server.url) as connection:
        connection.settimeout(60)
        if way == "WebSocket":
            connection.sendall(UPGRADE)
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        tracemalloc.start()
        try:
            connection.sendall(WAYS[way])
            wait_until(lambda: any(isinstance(one, Connection) and one.is_unread for one in doors))
            wait_until(lambda: not any(model.in_flight for model in app.engine.active()))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2 * SIZE + SPARE
        assert 2 * SIZE <= memory.taken < 2 * SIZE + SPARE
        y = numpy.tile(numpy.array([1, 2, 3], "float32"), 1000 * ROWS)
        expected, read = y.tobytes() + (-y).tobytes(), bytearray()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        while not read.endswith(expected):
            read += connection.recv(2**20)
    wait_until(lambda: not memory.taken)


def test_answers_of_a_stream_that_nobody_reads_stay_within_its_bound(app: Application, server: ServerThread) -> None:
    memory = app.direct.context.memory
    (model,) = app.engine.active()
    most = MAX_STREAM_BYTES + 2 * SIZE + SPARE
    with opened_by_who_never_reads(server.url) as connection:
        connection.settimeout(60)
        connection.sendall(UPGRADE)
        assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        tracemalloc.start()
        try:
            connection.sendall(WAYS["WebSocket"] * 20)
            wait_until(lambda: memory.taken > MAX_STREAM_BYTES and not model.in_flight)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert memory.taken < most
        assert peak < most
    wait_until(lambda: not memory.taken)


def test_a_large_message_comes_whole_and_its_number_with_it(server: ServerThread) -> None:
    with stream(server.url) as connection:
        for rows, kind in ((ROWS, BINARY), (3, BINARY), (3, {})):
            connection.send(framed(rows, {"inputs": [entry(rows)], **kind}))
            number, document, tail = answer(connection.recv(60))
            assert (number, [one["name"] for one in document["outputs"]]) == (rows, ["y", "z"])
            assert len(tail) == (2 * rows * 12_000 if kind else 0)


def test_a_binary_tensor_beside_much_json_leaves_the_writing_to_a_thread(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads, to_thread = list[Any](), asyncio.to_thread

    def note(*work: Any) -> Any:
        in_threads.append(work[0])
        return to_thread(*work)

    monkeypatch.setattr(asyncio, "to_thread", note)
    outputs = [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]
    body = json.dumps({"inputs": [entry(40)], "outputs": outputs}).encode()
    found = Client(server.url)("/v2/models/tiny/infer", "POST", body)
    head = json.loads(found.body[: int(found.headers["inference-header-content-length"])])
    assert len(head["outputs"][1]["data"]) == 40 * 3000
    assert in_threads == [write]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_parts_are_compressed_as_one_body(server: ServerThread, encoding: str) -> None:
    body = json.dumps({"inputs": [entry()], **BINARY}).encode()
    send = Client(server.url)
    plain = send("/v2/models/tiny/infer", "POST", body)
    packed = send("/v2/models/tiny/infer", "POST", body, accept_encoding=encoding)
    assert packed.headers["content-encoding"] == encoding
    unpack = gzip.decompress if encoding == "gzip" else zstandard.ZstdDecompressor().decompress
    assert unpack(packed.body) == plain.body
    assert len(plain.body) > 2 * SIZE


def test_short_parts_are_joined_and_long_ones_are_not_copied() -> None:
    long, half = bytes(LONG_BYTES), memoryview(bytes(LONG_BYTES // 2))
    found = together([b"a", b"b", long, b"c", long, half, half, b"d"])
    assert [bytes(part[:1]) + b"%d" % len(part) for part in found] == [
        b"a2",
        b"\0%d" % LONG_BYTES,
        b"c1",
        b"\0%d" % LONG_BYTES,
        b"\0%d" % (LONG_BYTES // 2),
        b"\0%d" % (LONG_BYTES // 2 + 1),
    ]
    assert found[1] is long
    assert found[3] is long
    assert together([b"", b""]) == [b""]


def test_a_message_has_whole_frames() -> None:
    frames: list[Any] = [(b"1", b"2"), (b"34",), (b"5" * 9, b"6"), (b"7",)]
    assert joined(frames, 4) == [[b"1", b"2", b"34"], [b"5" * 9, b"6"], [b"7"]]
