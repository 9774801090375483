"""A WebSocket client of an inference stream: its frames, written and read."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from websockets.sync.client import ClientConnection, connect

from edge_infer.formats.safetensors import FRAME
from tests.support.server.client import row

if TYPE_CHECKING:
    from collections.abc import Iterator


def stream(url: str, name: str = "tiny", **options: Any) -> ClientConnection:
    place = f"{url.replace('http', 'ws')}/v2/models/{name}/stream"
    connection: ClientConnection = connect(place, compression=None, max_size=None, **options)
    return connection


def raw(number: int, value: float) -> bytes:
    return FRAME.pack(number, 0, 12) + row(value)


def framed(number: int, document: dict[str, Any], tail: bytes = b"") -> bytes:
    head = json.dumps(document).encode()
    return FRAME.pack(number, len(head), len(tail)) + head + tail


def frames(data: bytes | str) -> Iterator[tuple[int, Any, bytes]]:
    """Of each frame of a message its number, its JSON (None for a raw one), and its bytes."""
    assert isinstance(data, bytes)
    while data:
        number, length, size = FRAME.unpack_from(data)
        document = json.loads(data[12 : 12 + length]) if length else None
        yield number, document, data[12 + length : 12 + length + size]
        data = data[12 + length + size :]


def answer(data: bytes | str) -> tuple[int, Any, bytes]:
    """The only frame of a message."""
    (found,) = frames(data)
    return found


def answers_of(connection: ClientConnection, count: int) -> list[tuple[int, Any, bytes]]:
    """So many answers, however many messages they come in."""
    found: list[tuple[int, Any, bytes]] = []
    while len(found) < count:
        found += frames(connection.recv(30))
    return found


UPGRADE = (
    b"GET /v2/models/tiny/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def opened_by_who_never_reads(url: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    connection.settimeout(0.5)
    return connection


def masked(payload: bytes, size: int | None = None) -> bytes:
    """A masked WebSocket message, whole or as much of one of `size` bytes as there is."""
    size = len(payload) if size is None else size
    return b"\x82\xff" + size.to_bytes(8, "big") + b"\0\0\0\0" + payload
