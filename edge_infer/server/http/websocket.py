"""The guard of WebSockets: what one may take of time and of memory beside the requests that it has in flight.

Uvicorn's protocol waits for ever for a client that reads nothing, and for the rest of a message: a few of either would
hold a server's memory.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from edge_infer.errors import QueueFull
from edge_infer.server.errors import RequestTooSlow
from edge_infer.server.http.write_timeouts import ReaderWatch
from edge_infer.server.protocol.requests import LARGE_BYTES

if TYPE_CHECKING:
    import asyncio
    from asyncio.transports import BaseTransport

    from uvicorn._types import ASGIReceiveEvent

    from edge_infer.server.http.limits import DoorLimits
    from edge_infer.server.ingestion.memory_budget import BodyMemory

log = logging.getLogger(__name__)
#: WebSocket close codes: RFC 6455 section 7.4.1, and https://www.iana.org/assignments/websocket
_POLICY, _TRY_AGAIN = 1008, 1013
#: How long a client may take to answer a close, once the server stops.
_LAST_S = 2.0


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """Uvicorn's protocol with limits, those of the application: `app.limits.door`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        app: Any = self.config.app
        self._refusals = app.refusals
        self._door: DoorLimits = app.limits.door
        self._memory: BodyMemory = app.direct.context.memory
        most = b"%d" % self.config.ws_max_size
        self.default_headers = [*self.default_headers, (b"max-message-bytes", most)]  # of a handshake
        self._queued = self._held = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Watch that the client reads."""
        super().connection_made(transport)
        door = self._door
        self._reader = ReaderWatch(self.transport, self.loop, self._memory, door.read_timeout_s, door.min_body_rate)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._reader.end()
        if self._timer is not None:
            self._timer.cancel()
        self._memory.taken -= self._held
        self._held = 0
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch that the client reads."""
        super().pause_writing()
        self._reader.begin()

    def resume_writing(self) -> None:
        """It does; what is left once the connection is closing is watched to its end."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._reader.end()

    def shutdown(self) -> None:
        """Close, as the server stops; a client that was told to has a moment to answer.

        To hang up while it sends would lose it what it has not read yet: the close code, even answers. One connection
        that cannot be closed in order harms no other.
        """
        try:
            if self.close_timer is not None:
                self.stop_keepalive()
                self.close_timer.cancel()
                self.close_timer = self.loop.call_later(_LAST_S, self.transport.close)
            elif self.transport.is_closing():  # its client said farewell, and has not read everything yet
                self.stop_keepalive()
            else:
                super().shutdown()
        except Exception:
            log.exception("A WebSocket was not closed in order")
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        """Hang up on a client that answers no ping, whether it takes what is left or not."""
        super().keepalive_timeout()
        self._reader.begin()

    async def run_asgi(self) -> None:
        """Run the application; the client has so long to take what is left in the end."""
        await super().run_asgi()
        if not self.disconnected:
            self._reader.begin()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and count what is held of messages that are not whole, or not taken yet."""
        super().data_received(data)
        self._count()

    def send_receive_event_to_app(self) -> None:
        """Count a whole message until it is taken."""
        self._queued += sum(map(len, self.frames))
        self._since = self.loop.time()
        super().send_receive_event_to_app()

    async def receive(self) -> ASGIReceiveEvent:
        """Take the next message, as uvicorn does."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._queued = 0
            self._count()
            self.transport.resume_reading()
        return message

    def _count(self) -> None:
        """Count what is held; half a message that finds no room, or takes too long, ends the connection."""
        half = len(self.conn.reader.buffer) + (self.conn.current_size or 0)
        held = half + self._queued
        if held == self._held or self.disconnected:
            return
        is_more = held > self._held
        if not self._held:
            self._since = self.loop.time()
        self._memory.taken += held - self._held
        self._held = held
        if not half:
            return
        if self._timer is None:
            self._timer = self.loop.call_later(self._door.body_timeout_s, self._look)
        if is_more and half > LARGE_BYTES and self._memory.is_over(held):
            self._end_with(_TRY_AGAIN, QueueFull.code, "there is no room for half a message")

    def _look(self) -> None:
        """Hang up on a client whose message took longer to come than its length takes."""
        self._timer = None
        half = len(self.conn.reader.buffer) + (self.conn.current_size or 0)
        if not half:
            return
        left = self._since + self._door.body_timeout_s + half / self._door.min_body_rate - self.loop.time()
        if self.read_paused:  # it is we who take no more for now
            left = self._door.body_timeout_s
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        else:
            self._end_with(_POLICY, RequestTooSlow.code, "a message took too long to come")

    def _end_with(self, code: int, refusal: str, reason: str) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        self._refusals[refusal] += 1
        self.conn.fail(code, reason)
        self.handle_parser_exception()
        self._reader.begin()
