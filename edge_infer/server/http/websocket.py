"""A WebSocket on a connection: frames by `websockets`, limits of time and memory by the server."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from websockets.exceptions import SecurityError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from edge_infer.errors import InputError, QueueFull
from edge_infer.server.errors import ClientLeft, RequestTooSlow, TooManyHeaders
from edge_infer.server.http.exchange import STATUS_LINES
from edge_infer.server.http.progress import Load
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.parts import size_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

    from websockets.http11 import Response

    from edge_infer.server.http.exchange import Carrier
    from edge_infer.server.ingestion.memory_budget import BodyMemory
    from edge_infer.server.response.parts import Part

log = logging.getLogger(__name__)
#: WebSocket close codes: RFC 6455 section 7.4.1, and https://www.iana.org/assignments/websocket
_POLICY, _UNEXPECTED, _TRY_AGAIN = 1008, 1011, 1013
#: After how long without a byte a client is pinged, how long it may take to answer that, or a close.
_PING_S = _PONG_S = _CLOSE_S = 20.0
#: How long a client may take to answer a close, once the server stops.
_LAST_S = 2.0
#: How many bytes of messages wait before the connection is read no further, and what each costs beside its bytes.
_MAX_WAITING_BYTES, _MESSAGE_COST = 2**16, 64
#: How much is parsed between two looks at the clock, and for how long in one turn of the event loop: a message of tiny
#: frames takes a hundred times as long as one of the same size in one frame.
_PIECE_BYTES, _TURN_S = 8 * 2**10, 0.002
#: A message may have so many fragments, and one more for each so many bytes.
_MAX_FRAGMENTS, _FRAGMENT_BYTES = 1024, 1024
#: How many pings a client may send between two sweeps over the connections, which is about a second.
_MAX_PINGS = 32
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
        self._half = bytearray()  # a message whose last fragment is missing
        self._fragments = 0  # how many of it came
        self._is_text = False  # whether that message is text
        self._is_open = False
        self._unread = b""  # what arrived before the handshake was answered, or is left for the next turn
        self._has_turn = False  # whether a next turn is to come
        self._pings, self._pings_since = 0, 0.0
        self._reader: asyncio.Future[None] | None = None
        self._is_over = self._is_closing = self._is_pinged = False
        self._unparsed = 0  # the bytes of half a frame
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
        self.go_on()

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
            self.go_on()
        return message

    async def send(self, parts: Sequence[Part]) -> None:
        """Send a message; wait while the client does not read, for whom the connection counts it.

        Raises:
            ClientLeft: The WebSocket is closed.
        """
        if self._is_over or self._frames.state is not OPEN:
            raise ClientLeft("The WebSocket is closed")
        self._carrier.write(_frame_head(size_of(parts)), *parts)  # `websockets` would copy it twice
        await self._carrier.drained()

    async def close(self, code: int, reason: str) -> None:
        """Close it in order; nothing more is received."""
        if self._frames.state is OPEN and not self._is_over:
            self._frames.send_close(code, reason)
            self._flush()
            self._close_within(_CLOSE_S)
            self._messages.clear()  # what is not taken would keep the client's own close from being read
            self._waiting = 0
            self._count()
            self.go_on()

    # -- what its connection tells --

    def feed(self, data: bytes) -> None:
        """Parse what arrived."""
        if self._is_over:
            return
        if not self._is_open or self._unread:
            self._unread += data
            return
        self._is_pinged = False
        self._quiet_due = self._after(_PING_S)
        until = perf_counter() + _TURN_S
        at = 0
        while at < len(data) and not self._is_over:
            if at and (perf_counter() > until or not self._may_read):
                self._unread = data[at:]
                self._carrier.pause_reading()
                break
            self._parse(data[at : at + _PIECE_BYTES])
            at += _PIECE_BYTES
        self._flush()
        self._count()
        self._look()
        if not self._may_read:
            self._carrier.pause_reading()
        elif self._unread:
            self.go_on()

    def go_on(self) -> None:
        """Read on, unless messages wait or the client does not read; first what is left of the last turn."""
        if not self._may_read or self._has_turn:
            return
        if self._unread:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._take_turn)
        else:
            self._carrier.read_on()

    def _take_turn(self) -> None:
        self._has_turn = False
        data, self._unread = self._unread, b""
        self.feed(data)
        if not self._unread:
            self.go_on()

    @property
    def _may_read(self) -> bool:
        return self._waiting <= _MAX_WAITING_BYTES and not self._carrier.is_unread

    def lost(self) -> None:
        """Take note that the connection is closed."""
        self._end()
        self._messages.clear()
        self._memory.take(-self._held, self._carrier.tenant)
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

    def load(self, now: float) -> Load | None:
        """Return what the server keeps of a message that is not whole; None for nothing."""
        half = len(self._half) + self._unparsed
        return Load(half, now - self._half_since, half) if half else None

    def let_go(self) -> None:
        """Close it, as there is no room for half a message."""
        self._fail(_TRY_AGAIN, QueueFull.code, "there is no room for half a message")

    # -- frames --

    def _parse(self, data: bytes) -> None:
        self._frames.receive_data(data)
        frames = self._frames.events_received()
        self._unparsed = len(self._frames.reader.buffer) if frames else self._unparsed + len(data)
        for frame in frames:
            assert isinstance(frame, Frame)
            if frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._add(bytes(frame.data), is_text=frame.opcode is Opcode.TEXT, is_last=frame.fin)
            elif frame.opcode is Opcode.PING:
                self._count_ping()
            elif frame.opcode is Opcode.CLOSE:
                self._end()

    def _add(self, data: bytes, *, is_text: bool, is_last: bool) -> None:
        if is_last and not self._fragments:
            message = data
        else:
            self._is_text = is_text or (self._is_text and self._fragments > 0)
            self._half += data
            self._fragments += 1
            if self._fragments > _MAX_FRAGMENTS + len(self._half) // _FRAGMENT_BYTES:
                self._fail(_POLICY, InputError.code, "a message is in too many fragments")
            if not is_last:
                return
            message, is_text = bytes(self._half), self._is_text
            self._half, self._fragments = bytearray(), 0
        self._half_since = self._carrier.shared.now
        if self._is_closing:
            return
        self._messages.append(None if is_text else message)
        self._waiting += len(message) + _MESSAGE_COST
        self._wake()

    def _count_ping(self) -> None:
        now = self._carrier.shared.now
        if now != self._pings_since:
            self._pings, self._pings_since = 0, now
        self._pings += 1
        if self._pings > _MAX_PINGS:
            self._fail(_POLICY, InputError.code, "too many pings")

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
        half = len(self._half) + self._unparsed
        held = half + self._waiting
        is_more = held > self._held
        if not self._held:
            self._half_since = self._carrier.shared.now
        self._memory.take(held - self._held, self._carrier.tenant)
        self._held = held
        if not half and not self._fragments:
            self._half_due = inf
            return
        if self._half_due == inf:
            self._half_due = self._after(self._carrier.shared.limits.body_timeout_s)
        if is_more and half > LARGE_BYTES and self._memory.refusal(0, self._carrier.tenant, held):
            self.let_go()

    def _check_half(self) -> None:
        """Close where a message took longer to arrive than its length takes."""
        shared = self._carrier.shared
        limits = shared.limits
        left = self._half_since + limits.body_timeout_s + (len(self._half) + self._unparsed) / limits.min_body_rate
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


def _frame_head(size: int) -> bytes:
    """Write the head of a binary message of one frame without a mask (RFC 6455, section 5.2)."""
    if size < 126:
        return bytes((0x82, size))
    return b"\x82\x7e" + size.to_bytes(2, "big") if size < 2**16 else b"\x82\x7f" + size.to_bytes(8, "big")


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
