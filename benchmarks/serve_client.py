"""The client of `serve.py`: closed and open loops over HTTP, and many requests in flight on one WebSocket."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from typing import NamedTuple, cast

import numpy as np


class Connection(asyncio.Protocol):
    """One keep-alive connection that carries one request at a time."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[int] | None = None
        self.buffer = b""
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport, self.is_open = cast("asyncio.Transport", transport), True  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Take a whole answer."""
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator or self.answered is None:
            return
        lower = head.lower()
        start = lower.index(b"content-length:") + 15
        length = int(lower[start:].partition(b"\r\n")[0])
        if len(body) >= length:
            self.buffer = b""
            answered, self.answered = self.answered, None
            if not answered.done():
                answered.set_result(int(head[9:12]))

    def connection_lost(self, _error: Exception | None) -> None:
        """Answer with status 0."""
        self.is_open = False
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(0)

    def send(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; its status comes with the answer."""
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answered


def post(path: str, body: bytes, kind: str, more: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        + body
    )


async def connect(port: int) -> Connection:
    _, protocol = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return protocol


async def closed_loop(port: int, request: bytes, clients: int, seconds: float) -> list[float]:
    """Keep some requests in flight; return the latency of each in seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        connection = await connect(port)
        while (start := time.perf_counter()) < end:
            status = await connection.send(request)
            assert status == 200, status
            times.append(time.perf_counter() - start)
        connection.transport.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


class Outcome(NamedTuple):
    """What became of a request."""

    status: int
    latency_s: float


async def open_loop(port: int, request: bytes, rate: float, seconds: float, seed: int = 7) -> list[Outcome]:
    """Send requests at Poisson times; time counts from when each should have left."""
    outcomes: list[Outcome] = []
    idle: list[Connection] = [await connect(port) for _ in range(32)]
    chance = random.Random(seed)
    start = time.perf_counter()
    at, tasks = start, []

    async def one(due: float) -> None:
        connection = idle.pop() if idle else await connect(port)
        status = await connection.send(request)
        outcomes.append(Outcome(status, time.perf_counter() - due))
        if connection.is_open:
            idle.append(connection)

    while at < start + seconds:
        at += chance.expovariate(rate)
        delay = at - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.append(asyncio.create_task(one(at)))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.transport.close()
    return outcomes


def p(values: list[float], part: float) -> float:
    return float(np.quantile(values, part)) if values else float("nan")


class StreamClient(asyncio.Protocol):
    """One WebSocket with a number of requests in flight: it sends one for each answer.

    Its framing knows only what our server sends, so that it costs little.
    """

    def __init__(self, path: str, tensor: bytes, answer_bytes: int, in_flight: int) -> None:
        frame = struct.pack("<III", 1, 0, len(tensor)) + tensor
        self._frame = b"\x82" + struct.pack(">BH", 0x80 | 126, len(frame)) + bytes(4) + frame  # a mask of zeros
        self._path = path
        self._answer_bytes = answer_bytes + 12
        self._in_flight = in_flight
        self._buffer = b""
        self._is_open = False
        self.answered = 0
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Shake hands."""
        self._transport = cast("asyncio.Transport", transport)
        lines = [f"GET {self._path} HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade"]
        lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "", ""]
        self._transport.write("\r\n".join(lines).encode())

    def data_received(self, data: bytes) -> None:
        """Count answers; each message holds those of a batch."""
        data = self._buffer + data
        if not self._is_open:
            head, separator, data = data.partition(b"\r\n\r\n")
            if not separator:
                self._buffer = head
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._is_open = True
            self._transport.write(self._frame * self._in_flight)
        count = 0
        while len(data) >= 4:
            size, start = data[1], 2
            if size == 126:
                size, start = int.from_bytes(data[2:4], "big"), 4
            if len(data) < start + size:
                break
            assert size % self._answer_bytes == 0, data[:200]
            count += size // self._answer_bytes
            data = data[start + size :]
        self._buffer = data
        self.answered += count
        if count and not self.is_over:
            self._transport.write(self._frame * count)

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


async def stream_loop(port: int, path: str, tensor: bytes, answer_bytes: int, in_flight: int, seconds: float) -> int:
    """Keep some requests in flight on one WebSocket; return how many were answered."""
    _, client = await asyncio.get_running_loop().create_connection(
        lambda: StreamClient(path, tensor, answer_bytes, in_flight), "127.0.0.1", port
    )
    await asyncio.sleep(seconds)
    answered, client.is_over = client.answered, True
    await asyncio.sleep(0.1)
    client.close()
    return answered
