"""Bytes that nobody wrote for the parsers of requests: one clear error each, and nothing that stays in memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.errors import ClientLeft, status_of
from edge_infer.server.http.websocket import WebSocket
from edge_infer.server.ingestion.memory_budget import BodyMemory
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.requests import InferRequest
from edge_infer.tensors.tensor import TensorSpec
from tests.support.server.client import row
from tests.support.server.streams import UPGRADE

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


def changed(content: bytes, changes: Sequence[tuple[int, bytes]]) -> bytes:
    """Put bytes in the place of others."""
    found = bytearray(content)
    for place, value in changes:
        at = place % (len(found) + 1)
        found[at : at + len(value)] = value
    return bytes(found)


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
