"""The client of `serve.py`: closed and open loops over HTTP, and many requests in flight on one WebSocket."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections import deque
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
        self.transport, self.is_open = cast("asyncio.Transport", transport), True  # uvloop's is not a subclass

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


class _Caller(asyncio.Protocol):
    """A connection of `Callers`: it tells each answer's status and time, by a plain call."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._head = b""
        self._left = -1
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due: float) -> None:
        """Send a request."""
        self._due = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Count what came of an answer; the last byte ends it."""
        if self._left < 0:
            data = self._head + data if self._head else data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head = b""
            start = data.lower().index(b"content-length:", 0, end + 2) + 15
            self._status = int(data[9:12])
            self._left = int(data[start : data.index(b"\r", start)]) - (len(data) - end - 4)
        else:
            self._left -= len(data)
        if self._left <= 0:
            self._left = -1
            self._callers.answered(self, Outcome(self._status, time.perf_counter() - self._due))

    def connection_lost(self, _error: Exception | None) -> None:
        """A request that was under way is answered with status 0."""
        self._callers.lost(self)


class Callers:
    """Connections that send one request again and again, each without a task or a future: the client must cost little.

    Args:
        port: Of the server.
        request: What to send.
    """

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._idle: list[_Caller] = []
        self._busy: dict[_Caller, float] = {}
        self._is_closed_loop_until = 0.0
        self._opening = 0
        self._waiting: deque[float] = deque()
        self.outcomes: list[Outcome] = []

    async def connect(self, count: int) -> None:
        """Open connections."""
        loop = asyncio.get_running_loop()
        pairs = (loop.create_connection(lambda: _Caller(self), "127.0.0.1", self._port) for _ in range(count))
        self._idle += [protocol for _, protocol in await asyncio.gather(*pairs)]

    def _send(self, caller: _Caller, due: float) -> None:
        self._busy[caller] = due
        caller.send(self._request, due)

    def answered(self, caller: _Caller, outcome: Outcome) -> None:
        """Take note of an answer, and send what is due."""
        self.outcomes.append(outcome)
        del self._busy[caller]
        now = time.perf_counter()
        if now < self._is_closed_loop_until:
            self._send(caller, now)
        elif self._waiting:
            self._send(caller, self._waiting.popleft())
        else:
            self._idle.append(caller)

    def lost(self, caller: _Caller) -> None:
        """Take note of a connection that the other side closed."""
        due = self._busy.pop(caller, None)
        if due is not None:
            self.outcomes.append(Outcome(0, time.perf_counter() - due))
        elif caller in self._idle:
            self._idle.remove(caller)

    async def keep(self, clients: int, seconds: float) -> None:
        """Keep so many requests in flight for some seconds."""
        await self.connect(clients - len(self._idle))
        start = time.perf_counter()
        self._is_closed_loop_until = start + seconds
        for caller in [self._idle.pop() for _ in range(clients)]:
            self._send(caller, start)
        await asyncio.sleep(seconds)
        await self._settle()

    async def offer(self, rate: float, seconds: float, seed: int = 7, most: int = 1024) -> int:
        """Send requests at Poisson times, whether or not earlier ones were answered; return how many.

        Time counts from when each should have left: one that finds all `most` connections busy waits for one.
        """
        await self.connect(min(most, 256) - len(self._idle))
        chance, count = random.Random(seed), 0
        start = time.perf_counter()
        due = start + chance.expovariate(rate)
        while due < start + seconds:
            now = time.perf_counter()
            while due <= now and due < start + seconds:
                count += 1
                if self._idle:
                    self._send(self._idle.pop(), due)
                else:
                    self._waiting.append(due)
                due += chance.expovariate(rate)
            missing = min(len(self._waiting), most - len(self._busy) - self._opening)
            if missing > 0:
                self._opening += missing
                await self.connect(missing)
                self._opening -= missing
                while self._idle and self._waiting:
                    self._send(self._idle.pop(), self._waiting.popleft())
            # Not more often than a millisecond: each turn of a timer costs the server's cores as much as a request.
            await asyncio.sleep(max(0.001, due - time.perf_counter()))
        await self._settle()
        return count

    async def _settle(self) -> None:
        """Wait until all was answered, half a minute at most."""
        end = time.perf_counter() + 30
        while (self._busy or self._waiting) and time.perf_counter() < end:
            await asyncio.sleep(0.01)
        self.outcomes += [Outcome(0, time.perf_counter() - due) for due in (*self._busy.values(), *self._waiting)]

    def close(self) -> None:
        """Hang up."""
        for caller in (*self._idle, *self._busy):
            caller.transport.close()


async def open_loop(port: int, request: bytes, rate: float, seconds: float, seed: int = 7) -> list[Outcome]:
    """Send requests at Poisson times; time counts from when each should have left."""
    callers = Callers(port, request)
    await callers.offer(rate, seconds, seed)
    callers.close()
    return callers.outcomes


async def flood(port: int, request: bytes, clients: int, seconds: float) -> list[Outcome]:
    """Keep so many requests in flight, whatever the answers are; time counts from when each left."""
    callers = Callers(port, request)
    await callers.keep(clients, seconds)
    callers.close()
    return callers.outcomes


def p(values: list[float], part: float) -> float:
    return float(np.quantile(values, part)) if values else float("nan")


# The first byte of a frame: https://www.rfc-editor.org/rfc/rfc6455#section-5.2
_PING, _PONG = 0x89, 0x8A


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
            body = data[start : start + size]
            if data[0] == _PING:
                self._transport.write(bytes([_PONG, 0x80 | size]) + bytes(4) + body)
            else:
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
