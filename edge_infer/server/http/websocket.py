"""A WebSocket on a connection: frames by `websockets`, limits of time and memory by the server."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from websockets.exceptions import SecurityError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from edge_infer.errors import InputError, QueueFull
from edge_infer.server.errors import ClientLeft, RequestTooSlow, TooManyHeaders
from edge_infer.server.http.exchange import STATUS_LINES
from edge_infer.server.protocol.requests import LARGE_BYTES

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from websockets.http11 import Response

    from edge_infer.server.http.exchange import Carrier
    from edge_infer.server.ingestion.memory_budget import BodyMemory

log = logging.getLogger(__name__)
#: WebSocket close codes: RFC 6455 section 7.4.1, and https://www.iana.org/assignments/websocket
_POLICY, _UNEXPECTED, _TRY_AGAIN = 1008, 1011, 1013
#: After how long without a byte a client is pinged, how long it may take to answer that, or a close.
_PING_S = _PONG_S = _CLOSE_S = 20.0
#: How long a client may take to answer a close, once the server stops.
_LAST_S = 2.0
#: How many bytes of messages wait before the connection is read no further.
_MAX_WAITING_BYTES = 2**16
#: How much of a reason is told: it may quote the request.
_MAX_REASON = 200


class WebSocket:
    """One WebSocket; `accept` or `refuse` answers its handshake.

    Args:
        carrier: Its connection.
        head: The head of the handshake's request.
        memory: The server's memory for bodies and answers.
        max_bytes: The longest message.
        refusals: Counts by code the WebSockets that were closed for a limit.

    Raises:
        InputError: The handshake is wrong.
        TooManyHeaders: Its headers are more than `websockets` takes.
    """

    def __init__(
        self, carrier: Carrier, head: bytes, memory: BodyMemory, max_bytes: int, refusals: Counter[str]
    ) -> None:
        self._carrier = carrier
        self._memory = memory
        self._refusals = refusals
        self._frames = ServerProtocol(max_size=max_bytes)
        self._response = _handshake(self._frames, head)
        self._response.headers["max-message-bytes"] = str(max_bytes)
        self._messages: deque[bytes | None] = deque()  # None is a text
        self._parts: list[bytes] = []  # of a message in fragments
        self._is_text = False  # whether that message is text
        self._is_open = False
        self._early = b""  # what arrived before the handshake was answered
        self._reader: asyncio.Future[None] | None = None
        self._is_over = self._is_closing = self._is_pinged = False
        self._unparsed = 0  # the bytes of half a frame
        self._half = 0  # those of half a message
        self._waiting = self._held = 0
        self._half_since = 0.0
        self._half_due = inf
        self._quiet_due = self._after(_PING_S)
        carrier.look_at(self._quiet_due)

    # -- what the server does with it --

    async def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Open it, with more headers in the answer."""
        for name, value in headers:
            self._response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._frames.send_response(self._response)
        self._flush()
        self._is_open = True
        early, self._early = self._early, b""
        if early:
            self.feed(early)
        self._carrier.read_on()

    async def refuse(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer the handshake with an error, and close."""
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        head = (STATUS_LINES[status], self._carrier.shared.date, lines, b"connection: close\r\n\r\n")
        self._is_over = True
        self._carrier.transport.write(b"".join((*head, body)))
        self._carrier.close()

    async def receive(self) -> bytes | None:
        """Return the next message.

        Returns:
            The message; None for one of text.

        Raises:
            ClientLeft: There is none: the WebSocket is closed.
        """
        while not self._messages:
            if self._is_over:
                raise ClientLeft("The WebSocket is closed")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._messages.popleft()
        if not self._messages:
            self._waiting = 0
            self._count()
            self._carrier.read_on()
        return message

    async def send(self, data: bytes) -> None:
        """Send a message; wait while the client does not read.

        Raises:
            ClientLeft: The WebSocket is closed.
        """
        if self._is_over or self._frames.state is not OPEN:
            raise ClientLeft("The WebSocket is closed")
        self._frames.send_binary(data)
        self._flush()
        await self._carrier.drained()

    async def close(self, code: int, reason: str) -> None:
        """Close it in order; nothing more is received."""
        if self._frames.state is OPEN and not self._is_over:
            self._frames.send_close(code, reason)
            self._flush()
            self._close_within(_CLOSE_S)

    # -- what its connection tells --

    def feed(self, data: bytes) -> None:
        """Parse what arrived."""
        if self._is_over:
            return
        if not self._is_open:
            self._early += data
            return
        self._frames.receive_data(data)
        self._unparsed += len(data)
        self._is_pinged = False
        self._quiet_due = self._after(_PING_S)
        for frame in self._frames.events_received():
            assert isinstance(frame, Frame)
            self._unparsed -= _wire_bytes(len(frame.data))
            if frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._add(bytes(frame.data), is_text=frame.opcode is Opcode.TEXT, is_last=frame.fin)
            elif frame.opcode is Opcode.CLOSE:
                self._end()
        self._flush()
        self._count()
        self._look()

    def lost(self) -> None:
        """Take note that the connection is closed."""
        self._end()
        self._messages.clear()
        self._memory.taken -= self._held
        self._held = 0

    def shutdown(self) -> None:
        """Close, as the server stops; a client that was told to has a moment to answer.

        To hang up while it sends would lose it what it has not read yet: the close code, even answers. One WebSocket
        that cannot be closed in order harms no other.
        """
        try:
            if self._frames.state is OPEN:
                self._frames.send_close(1012)
                self._flush()
            if not self._is_over:
                self._close_within(_LAST_S)
        except Exception:
            log.exception("A WebSocket was not closed in order")
            self._carrier.transport.abort()

    def check(self, now: float) -> None:
        """Look at the limits of time: half a message, a client that is quiet, a close that it does not answer."""
        if self._half_due < now:
            self._check_half()
        if self._quiet_due < now and not self._is_over:
            if self._carrier.is_paused:  # it is the server that reads nothing for now
                self._quiet_due = self._after(_PING_S)
            elif self._is_closing:
                self._end()
                self._carrier.close()
            elif self._is_pinged:
                self._frames.fail(_UNEXPECTED, "keepalive ping timeout")
                self._flush()
            else:
                self._is_pinged = True
                self._quiet_due = self._after(_PONG_S)
                if self._frames.state is OPEN:
                    self._frames.send_ping(b"")
                    self._flush()
        self._look()

    # -- frames --

    def _add(self, data: bytes, *, is_text: bool, is_last: bool) -> None:
        if is_last and not self._parts:
            message = data
        else:
            self._is_text = is_text or (self._is_text and bool(self._parts))
            self._parts.append(data)
            self._half += len(data)
            if not is_last:
                return
            message, is_text = b"".join(self._parts), self._is_text
            self._parts, self._half = [], 0
        self._half_since = self._carrier.shared.now
        self._messages.append(None if is_text else message)
        self._waiting += len(message)
        if self._waiting > _MAX_WAITING_BYTES:
            self._carrier.pause_reading()
        self._wake()

    def _flush(self) -> None:
        """Send what `websockets` wants to be sent; an empty piece stands for the end of the connection."""
        pieces = self._frames.data_to_send()
        if not pieces:
            return
        if not self._carrier.transport.is_closing():
            self._carrier.transport.write(b"".join(pieces))
        if not pieces[-1]:
            self._end()
            self._carrier.close()

    def _end(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # -- limits --

    def _after(self, seconds: float) -> float:
        return self._carrier.shared.after(seconds)

    def _look(self) -> None:
        self._carrier.look_at(inf if self._is_over else min(self._quiet_due, self._half_due))

    def _close_within(self, seconds: float) -> None:
        self._is_closing = True
        self._quiet_due = self._after(seconds)
        self._look()

    def _count(self) -> None:
        """Count what is held of messages that are not whole, or not taken; end one that finds no room for its half."""
        half = self._half + self._unparsed
        held = half + self._waiting
        is_more = held > self._held
        if not self._held:
            self._half_since = self._carrier.shared.now
        self._memory.taken += held - self._held
        self._held = held
        if not half:
            self._half_due = inf
            return
        if self._half_due == inf:
            self._half_due = self._after(self._carrier.shared.limits.body_timeout_s)
        if is_more and half > LARGE_BYTES and self._memory.is_over(held):
            self._fail(_TRY_AGAIN, QueueFull.code, "there is no room for half a message")

    def _check_half(self) -> None:
        """Close where a message took longer to arrive than its length takes."""
        shared = self._carrier.shared
        limits = shared.limits
        left = self._half_since + limits.body_timeout_s + (self._half + self._unparsed) / limits.min_body_rate
        if self._carrier.is_paused:  # it is the server that reads nothing for now
            self._half_due = self._after(limits.body_timeout_s)
        elif left > shared.now:
            self._half_due = left
        else:
            self._fail(_POLICY, RequestTooSlow.code, "a message took too long to arrive")

    def _fail(self, code: int, refusal: str, reason: str) -> None:
        if self._frames.state is OPEN and not self._is_over:
            self._refusals[refusal] += 1
            self._frames.fail(code, reason)
            self._flush()


def _wire_bytes(size: int) -> int:
    """Return the bytes of a client's frame: its head, its mask and its data (RFC 6455 section 5.2)."""
    return size + 6 + (0 if size < 126 else 2 if size < 2**16 else 8)


def _handshake(frames: ServerProtocol, head: bytes) -> Response:
    """Return the answer to a handshake.

    Raises:
        InputError: The handshake is wrong.
        TooManyHeaders: It has more, or longer, headers than `websockets` takes.
    """
    frames.receive_data(head)
    response = None
    for request in frames.events_received():
        assert isinstance(request, Request)
        response = frames.accept(request)
    if frames.handshake_exc is None and response is not None:
        return response
    reason = (frames.handshake_exc and frames.handshake_exc.__cause__) or frames.handshake_exc
    text = f"The handshake of the WebSocket is refused: {reason}"[:_MAX_REASON]
    if isinstance(reason, SecurityError):
        raise TooManyHeaders(text, hint="send fewer and shorter headers with it, such as cookies")
    raise InputError(text, hint="let a WebSocket client open it: GET with a `Sec-WebSocket-Key`, no body")
