"""Bytes that nobody wrote for the parsers of requests: one clear error each, and nothing that stays in memory.

`make soak` repeats each with new bytes for two minutes, ten in all.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import httptools
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.errors import ClientLeft, status_of
from edge_infer.server.http.connection import Connection
from edge_infer.server.http.connections import Connections
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.http.websocket import WebSocket
from edge_infer.server.ingestion.api_keys import ApiKeys
from edge_infer.server.ingestion.memory_budget import BodyMemory
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.requests import InferRequest
from edge_infer.tensors.tensor import TensorSpec
from tests.support.server.client import row
from tests.support.server.streams import UPGRADE
from tests.support.soak import rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

INPUTS = (TensorSpec("x", "float32", ("n", 3)), TensorSpec("name", "string", ("n",)))
PARSER = Parser(INPUTS, (TensorSpec("y", "float32", ("n", 3)),), 100)
TEXTS = (3).to_bytes(4, "little") + b"abc"
HEAD = json.dumps(
    {
        "id": "1",
        "inputs": [
            {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}},
            {"name": "name", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(TEXTS)}},
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
).encode()
BODY = HEAD + row(1.0) + TEXTS
#: Where bytes are put in the place of others, and which.
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2**16), st.binary(max_size=4) | st.sampled_from([b"\xff" * 4, b"-1", b"9" * 20, b"[", b"}"])
    ),
    max_size=4,
)


FuzzTest = Callable[..., None]


def for_minutes(test: FuzzTest) -> FuzzTest:
    """Run a test once; in `make soak` again and again, each time with other bytes, until two minutes are over."""

    @wraps(test)
    def repeated() -> None:
        end = monotonic() + rounds(0, 120)
        test()
        while monotonic() < end:
            test()

    # The arguments are those that hypothesis gives, none of pytest's.
    del repeated.__wrapped__
    return repeated


def changed(content: bytes, changes: Sequence[tuple[int, bytes]]) -> bytes:
    """Put bytes in the place of others."""
    found = bytearray(content)
    for place, value in changes:
        at = place % (len(found) + 1)
        found[at : at + len(value)] = value
    return bytes(found)


@for_minutes
@settings(max_examples=1200, deadline=None)
@given(CHANGES, st.integers(-3, 3), st.integers(0, 40))
def test_a_changed_binary_request_is_read_or_refused(changes: Sequence[tuple[int, bytes]], off: int, cut: int) -> None:
    assert PARSER.parse(BODY, len(HEAD)).inputs["x"].shape == (1, 3)
    body = changed(BODY, changes)[: len(BODY) - cut]
    for json_length in (len(HEAD) + off, None):
        try:
            found = PARSER.parse(body, json_length)
        except EdgeInferError as error:
            assert 400 <= status_of(error) < 500
            assert error.hint
        else:
            assert isinstance(found, InferRequest)
            assert found.inputs["x"].shape[1] == 3


@for_minutes
@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 220))
def test_bytes_are_no_request_and_end_in_an_error(body: bytes, json_length: int) -> None:
    try:
        PARSER.parse(body, json_length)
    except EdgeInferError as error:
        assert 400 <= status_of(error) < 500


def frame(first: bytes, payload: bytes) -> bytes:
    """A masked frame: its first byte has the kind, and whether it is the last of its message."""
    return first + bytes([0x80 | len(payload)]) + b"\0\0\0\0" + payload


FRAMES = frame(b"\x82", FRAME.pack(1, 0, 12) + row(1.0)) + frame(b"\x02", b"half") + frame(b"\x89", b"ping")
FRAMES += frame(b"\x80", b"whole") + frame(b"\x81", b"text") + frame(b"\x88", b"\x03\xe8")


@for_minutes
@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60) | CHANGES.map(lambda changes: changed(FRAMES, changes)), st.integers(1, 40))
@example(FRAMES, 7)
def test_a_changed_stream_is_read_or_closed_and_leaves_nothing_in_memory(data: bytes, piece: int) -> None:
    memory = BodyMemory()
    carrier: Any = Mock(is_unread=False, is_paused=False)
    carrier.shared.after.return_value = carrier.shared.now = 0.0
    carrier.transport.is_closing.return_value = False
    messages: list[bytes | None] = []

    async def read(socket: WebSocket) -> None:
        with suppress(ClientLeft):
            while len(messages) < 100:
                messages.append(await socket.receive())

    async def serve() -> None:
        socket = WebSocket(carrier, UPGRADE, memory, 1000, Counter())
        await socket.accept([])
        reader = asyncio.create_task(read(socket))
        for at in range(0, len(data), piece):
            socket.feed(data[at : at + piece])
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        socket.lost()
        await reader

    asyncio.run(serve())
    assert len(messages) < 100
    if data == FRAMES:
        assert messages == [FRAME.pack(1, 0, 12) + row(1.0), b"halfwhole", None]
    assert memory.taken == 0


HOST = b" HTTP/1.1\r\nHost: x\r\n"
PIPELINE = (
    (b"GET /a?b=c" + HOST + b"Accept: */*\r\n\r\n")
    + (b"POST /b" + HOST + b"Content-Length: 5\r\n\r\nhello")
    + (b"POST /c" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\n")
    + (b"POST /d" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok")
    + (b"HEAD /e" + HOST + b"Connection: keep-alive\r\n\r\n")
    + UPGRADE
    + FRAMES
)
#: What requests are made dangerous by.
HTTP_PARTS = st.sampled_from(
    (
        *(b"\r\n", b"\n", b"\0", b": ", b"HTTP/1.0", b"HTTP/2.0", b"Content-Length: 9\r\n", b"Host: y\r\n"),
        *(b"Transfer-Encoding: ", b"chunked", b"identity", b"-1", b"f" * 18, b"Connection: close\r\n"),
        *(b"Upgrade: h2c\r\n", b"\xff" * 8, b"x" * 600, b"%00%ff", b"//", b"*", b"http://y/", b"0\r\n\r\n"),
    )
)
HTTP_CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.binary(max_size=3) | HTTP_PARTS), max_size=5)


class Responses:
    """Reads what a connection sent: only whole answers of HTTP, then perhaps the frames of a WebSocket."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self._is_over = False  # frames follow
        self._parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.statuses.append(self._parser.get_status_code())

    def feed(self, data: bytes) -> None:
        try:
            if not self._is_over:
                self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_over = True


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body; its first half before the second is read."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, has_more = body + message["body"], message["more_body"]
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def open_stream(_scope: Any, socket: Any) -> None:
    """Take all messages of a WebSocket."""
    await socket.accept([])
    with suppress(ClientLeft):
        while await socket.receive() is not None:
            pass


@for_minutes
@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=100) | HTTP_CHANGES.map(lambda changes: changed(PIPELINE, changes)),
    st.integers(1, 300),
    st.booleans(),
)
@example(PIPELINE, 7, True)
def test_a_changed_pipeline_is_answered_in_whole_answers(data: bytes, piece: int, is_turned: bool) -> None:
    memory, answers = BodyMemory(), Responses()
    sent: list[bytes] = []
    refusals: Counter[str] = Counter()
    front: Any = SimpleNamespace(
        direct=SimpleNamespace(begin=lambda _exchange: None, context=SimpleNamespace(memory=memory, keys=ApiKeys())),
        asgi=echo,
        open_stream=open_stream,
        turns=None,
        max_body_bytes=1000,
        refusals=refusals,
    )
    transport: Any = Mock()
    transport.get_extra_info.return_value = None
    transport.write.side_effect = sent.append
    transport.is_closing.side_effect = lambda: transport.close.called or transport.abort.called
    transport.get_write_buffer_size.return_value = 0

    async def serve() -> None:
        shared = Connections(DoorLimits(max_header_bytes=500))
        connection = Connection(shared, front)
        connection.connection_made(transport)
        for at in range(0, len(data), piece):
            if transport.is_closing():
                break
            connection.data_received(data[at : at + piece])
            if is_turned:
                await asyncio.sleep(0)
        for _ in range(30):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        async with asyncio.timeout(30):
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        assert not shared.open

    asyncio.run(serve())
    for part in sent:
        answers.feed(part)
    assert set(answers.statuses) <= {100, 101, 200, 400, 405, 408, 413, 414, 426, 431, 501, 505}
    assert memory.taken == 0
    if data == PIPELINE:
        assert [status for status in answers.statuses if status != 100] == [200] * 5 + [101]
