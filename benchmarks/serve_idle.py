"""The rows of `serve.py` of idle connections: whether they stay, what each costs, what others feel of them."""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from serve_client import Connection, closed_loop, p
from serve_models import digits
from serve_servers import DIGITS, Server, ours, started, store_of
from serve_table import row

_LISTEN = b"GET /sync/v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
_AT_ONCE = 100


class _Figures(NamedTuple):
    """What was measured: p99 without and with the connections, how many are still open, the bytes of all."""

    calm: list[float]
    busy: list[float]
    alive: int
    size: int


class Listener(asyncio.Protocol):
    """A connection that asked for events, and reads them."""

    def __init__(self) -> None:
        self.is_open = False
        self.events = 0

    def data_received(self, data: bytes) -> None:
        """Count events; the first comes with the answer's head."""
        self.is_open = True
        self.events += data.count(b"event: timestamp")

    def connection_lost(self, _error: Exception | None) -> None:
        """It is over."""
        self.is_open = False


def idle_rows(count: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure keep-alive connections that asked once."""
    count = _allow(count)
    with started(ours(DIGITS, "--max-connections", "20000")) as server:
        return _rows("idle connections", count, uvloop.run(_measure(server, count, rounds, seconds)), 1.5, 12)


def sse_rows(count: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure listeners to the events of a hosted store."""
    count = _allow(count)
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(DIGITS, Path(folder))
        with started(ours(store, "--max-connections", "20000", "--fleet", f"{folder}/fleet")) as server:
            found = uvloop.run(_measure(server, count, rounds, seconds, is_listening=True))
    return _rows("SSE listeners", count, found, 2.0)


def _allow(count: int) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(count, hard - 500)


async def _measure(server: Server, count: int, rounds: int, seconds: float, *, is_listening: bool = False) -> _Figures:
    text = digits(DIGITS).raw().text()
    await closed_loop(server.port, text, 4, 0.5)
    calm = [p(await closed_loop(server.port, text, 16, seconds), 0.99) for _ in range(rounds)]
    before = server.resident_bytes()
    connections: list[Connection | Listener] = []
    while len(connections) < count:
        wanted = min(_AT_ONCE, count - len(connections))
        connections += await asyncio.gather(*(_open(server.port, text, is_listening) for _ in range(wanted)))
    size = server.resident_bytes() - before
    busy = [p(await closed_loop(server.port, text, 16, seconds), 0.99) for _ in range(rounds)]
    return _Figures(calm, busy, sum(one.is_open for one in connections), size)


async def _open(port: int, text: bytes, is_listening: bool) -> Connection | Listener:
    """Open a connection that is idle from then on; one that never asked for anything would be hung up on."""
    loop = asyncio.get_running_loop()
    if not is_listening:
        _, asked = await loop.create_connection(Connection, "127.0.0.1", port)
        await asked.send(text)
        return asked
    transport, listener = await loop.create_connection(Listener, "127.0.0.1", port)
    transport.write(_LISTEN)
    while not listener.events:
        await asyncio.sleep(0.001)
    return listener


def _rows(what: str, count: int, found: _Figures, most: float, kb: float = 0.0) -> list[dict[str, Any]]:
    each = found.size / count / 1000
    busy, calm = statistics.median(found.busy), statistics.median(found.calm)
    spread = " by ".join(f"{min(one) * 1e3:.1f} to {max(one) * 1e3:.1f} ms" for one in (found.busy, found.calm))
    return [
        row(f"{count} {what}: still open", "connections", found.alive, "opened", count, "1", found.alive == count),
        row(
            f"{count} {what}: c=16 raw",
            "p99 s",
            busy,
            "none idle",
            calm,
            f"<= {most:g}",
            busy <= most * calm,
            spread=spread,
        ),
        row(f"{count} {what}: each", "kB", each, "12 kB", 12, *(("<= 1", each <= kb) if kb else ())),
    ]
