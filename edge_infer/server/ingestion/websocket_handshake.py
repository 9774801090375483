"""The handshake of a stream: who may open one, of which model, and how many there may be."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from edge_infer.errors import QueueFull
from edge_infer.server.errors import ClientLeft, expected, problem_parts
from edge_infer.server.headers import echoed
from edge_infer.server.ingestion.infer_websocket import Served, Stream
from edge_infer.server.ingestion.origins import check_origin
from edge_infer.server.metrics.access_log import note
from edge_infer.server.protocol.head import RequestHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.types import Receive, Scope, Send

    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.ingestion.memory_budget import BodyMemory
    from edge_infer.server.ingestion.stream_socket import Socket, Turns
    from edge_infer.server.response.parts import Part


log = logging.getLogger(__name__)
#: How many requests of one stream may be in flight, and how many streams there may be.
MAX_IN_FLIGHT = 256
MAX_STREAMS = 1024


class AsgiSocket:
    """A WebSocket of any ASGI server.

    Args:
        receive: ASGI's.
        send: ASGI's.
        memory: The server's memory for bodies and answers.
    """

    def __init__(self, receive: Receive, send: Send, memory: BodyMemory) -> None:
        self._receive = receive
        self._send = send
        self._memory = memory

    async def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Open it, with more headers in the answer to its handshake."""
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept", "headers": list(headers)})

    async def refuse(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer its handshake with an error."""
        await self._receive()
        await self._send({"type": "websocket.http.response.start", "status": status, "headers": list(headers)})
        await self._send({"type": "websocket.http.response.body", "body": body})

    async def receive(self) -> bytes | None:
        """Return the next message, None for one of text.

        Raises:
            ClientLeft: There is none.
        """
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise ClientLeft("The WebSocket is closed")
        data: bytes | None = message.get("bytes")
        return data

    async def send(self, parts: Sequence[Part]) -> None:
        """Send a message; it counts in the server's memory until the other server has taken it."""
        data = b"".join(parts)
        self._memory.taken += len(data)
        try:
            await self._send({"type": "websocket.send", "bytes": data})
        finally:
            self._memory.taken -= len(data)

    async def close(self, code: int, reason: str) -> None:
        """Close it."""
        await self._send({"type": "websocket.close", "code": code, "reason": reason})


class StreamEndpoint:
    """Answers streams.

    Args:
        context: What all requests share.
        headers: What every answer of HTTP carries.
        origins: The other servers whose pages may open streams.
        max_streams: How many streams there may be.
        max_in_flight: How many requests of one may be in flight.
        turns: Decides whose requests begin now; None where there are no tenants.
    """

    def __init__(
        self,
        context: ServerContext,
        headers: list[tuple[bytes, bytes]],
        *,
        origins: Sequence[str] = (),
        max_streams: int = MAX_STREAMS,
        max_in_flight: int = MAX_IN_FLIGHT,
        turns: Turns | None = None,
    ) -> None:
        self._context = context
        self._headers = headers
        self._origins = tuple(origins)
        self._max_streams = max_streams
        self._places = 0  # those that are open, and those that are about to be
        self._streams: set[Stream] = set()
        self._served = Served(context, max_in_flight, turns)

    def __len__(self) -> int:
        return len(self._streams)

    async def __call__(self, scope: Scope, socket: Socket, target: tuple[str, str | None]) -> None:
        """Answer a stream until it ends."""
        with ExitStack() as place:
            try:
                tenant = self._context.admit(scope["headers"])
                check_origin(scope["headers"], self._origins)
                note(scope, tenant=tenant.name)
                head = RequestHead(scope["headers"])
                if (refusal := self._context.bounds.check_connections(tenant)) is not None:
                    raise refusal
                self._take_place()
                place.callback(self._give_place)
                self._context.bounds.connected(tenant)
                place.callback(self._context.bounds.disconnected, tenant)
                model = await self._context.engine.get(*target, tenant.name)
                note(scope, model=model.name, version=model.version)
            except Exception as error:
                place.close()
                await self.refuse(error, scope, socket)
                return
            await socket.accept(echoed(scope["headers"]))
            stream = Stream(self._served, target, scope["path"], head, tenant, socket)
            self._streams.add(stream)
            try:
                await stream.run()
            finally:
                self._streams.discard(stream)
                note(scope, requests=stream.requests, errors=stream.errors)

    def _take_place(self) -> None:
        """Take one of the places that there are; not once the model is loaded, for which many may wait."""
        if self._places >= self._max_streams:
            raise QueueFull(
                f"{self._places} streams are open, the server takes {self._max_streams}",
                hint="send many requests over one stream",
                expected=self._max_streams,
            )
        self._places += 1

    def _give_place(self) -> None:
        self._places -= 1

    async def refuse(self, error: Exception, scope: Scope, socket: Socket) -> None:
        """Answer a handshake with an error."""
        told = expected(error)
        self._context.ledger.rejected(None, told)
        status, body, headers = problem_parts(told)
        note(scope, status=status, code=told.code)
        headers = [*headers, *self._headers, *echoed(scope["headers"]), (b"content-length", b"%d" % len(body))]
        await socket.refuse(status, headers, body)

    async def drain(self) -> None:
        """Let what is in flight finish, then close all streams; new requests are refused meanwhile."""
        await asyncio.gather(*(stream.drain() for stream in list(self._streams)))
