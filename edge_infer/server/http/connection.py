"""A connection: its requests are answered in their order, within the limits of time and size."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import httptools

from edge_infer.errors import EdgeInferError, QueueFull
from edge_infer.server.http.asgi import Bridge, path_of, scope_of
from edge_infer.server.http.exchange import Exchange
from edge_infer.server.http.progress import Load, UnreadAnswers
from edge_infer.server.http.reader import BODY, HEAD, NOTHING, RequestReader
from edge_infer.server.http.refusal import NO_PATH, NO_ROOM, line_of, refusal_of, too_slow
from edge_infer.server.http.repeated import text_of
from edge_infer.server.http.upgrade import head_of
from edge_infer.server.http.websocket import WebSocket
from edge_infer.server.response.parts import LONG_BYTES, size_of, together

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from edge_infer.server.http.connections import Connections
    from edge_infer.server.http.front import Front
    from edge_infer.server.http.repeated import KnownHead
    from edge_infer.server.response.parts import Part

log = logging.getLogger(__name__)


class _Last:
    """What a connection does last, once it is its turn in the line of exchanges."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act


class Connection(RequestReader):
    """One connection of HTTP/1.1; a WebSocket takes it over after its handshake.

    Args:
        shared: What it shares with other connections.
        front: The application.

    Attributes:
        transport: Its socket.
        write_due: When the client must have read a part of its answers.
        is_paused: Whether nothing is read for now.
        known: The last head that the fast path took.
        tenant: Whose answers are sent; empty where that is not known.
    """

    __slots__ = (
        "_begun",
        "_front",
        "_has_drained",
        "_is_advancing",
        "_line",
        "_unread",
        "_websocket",
        "is_paused",
        "known",
        "tenant",
        "transport",
        "write_due",
    )
    transport: Any
    _unread: UnreadAnswers

    def __init__(self, shared: Connections, front: Front) -> None:
        super().__init__(shared)
        self._front = front
        self._line: deque[Exchange | _Last] = deque()  # the first is being answered
        self._begun: Exchange | _Last | None = None  # the last that was begun
        self._websocket: WebSocket | None = None
        self.is_paused = self._is_advancing = False
        self._has_drained: asyncio.Event | None = None  # set while the client reads
        self.write_due = inf
        self.known: KnownHead | None = None
        self.tenant = ""

    # -- the transport --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection; one too many is refused."""
        shared, limits = self.shared, self.shared.limits
        self.transport = transport
        self._unread = UnreadAnswers(self.transport, self._front.direct.context.memory, limits)
        shared.open.add(self)
        if len(shared.open) > (most := limits.max_connections):
            self._refuse(
                QueueFull(f"The server takes {most} connections", hint="keep connections alive and share them")
            )

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell whoever answers, and forget the connection."""
        self.shared.open.discard(self)
        self._is_over = True
        self._unread.end()
        if self._has_drained is not None:
            self._has_drained.set()
        if self._websocket is not None:
            self._websocket.lost()
        line, self._line = self._line, deque()
        for exchange in line:
            if isinstance(exchange, Exchange):
                exchange.is_gone = True
                if exchange.handler is not None:
                    exchange.handler.left()
                    exchange.handler = None
        self._receiving = self._begun = None
        del self._parser  # it refers to the connection: a cycle for the garbage collector

    def pause_writing(self) -> None:
        """Watch that the client reads."""
        self._has_drained = asyncio.Event()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Let answers be sent; what is left once the connection is closing is watched to its end."""
        if self._has_drained is not None:
            self._has_drained.set()
            self._has_drained = None
        if not self.transport.is_closing():
            self._unread.end()
            self.write_due = inf
            if self._websocket is not None:
                self._websocket.go_on()

    @property
    def is_unread(self) -> bool:
        """Whether the client does not read what was sent."""
        return self._has_drained is not None

    async def drained(self) -> None:
        """Wait until the client has read what was sent."""
        if self._has_drained is not None:
            await self._has_drained.wait()

    def pause_reading(self) -> None:
        """Read nothing for now."""
        if not self.is_paused and not self.transport.is_closing():
            self.is_paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        """Read again, unless a request behind the first one waits for its turn."""
        if self.is_paused and len(self._line) <= 1:
            self.is_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # -- the limits of time --

    def check(self, now: float) -> None:
        """Do what is due: a limit of time is over."""
        if self.write_due < now:
            if self._unread.is_too_slow():
                self._unread.end()
                self.transport.abort()
                return
            self._watch_reader()
        if self.since + self.patience < now:
            if self._websocket is not None:
                self._websocket.check(now)
            else:
                self._check_sender()

    def load(self, now: float) -> Load | None:
        """Return what the server keeps because its client is not done; None for nothing."""
        if self._websocket is not None and not self.is_unread:
            return self._websocket.load(now)
        if self.is_unread or self.write_due < inf:
            return self._unread.load(now)
        if self._phase == BODY and not self.is_paused:
            return Load(self.body.received, now - self.body.since, self.body.received)
        return None

    def let_go(self) -> None:
        """Give back what `load` tells of."""
        if self.is_unread or self.write_due < inf:
            self._unread.end()
            self.transport.abort()
        elif self._websocket is not None:
            self._websocket.let_go()
        else:
            self._refuse(NO_ROOM)

    def _check_sender(self) -> None:
        if self._phase == NOTHING:
            self.close()
        elif self._phase == HEAD and not self.is_paused:
            self._refuse(too_slow("headers"))
        elif not self.is_paused and self.body.is_too_slow():
            self._refuse(too_slow("body"))
        else:  # or it is the server that reads nothing for now
            self.since = self.shared.now

    def look_at(self, due: float) -> None:
        """Be looked at, for what the client sends, at a time of `Connections.now`; `inf` for never."""
        self.since, self.patience = due, 0.0

    def _watch_reader(self) -> None:
        self.write_due = (
            self.shared.now + self.shared.read_s if self._unread.begin(self.shared.now, self.tenant) else inf
        )

    # -- the parser --

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        if self._websocket is not None:
            self._websocket.feed(data)
            return
        if self._is_over:
            return
        may_begin = self._phase != BODY and not self._unparsed
        if may_begin and not self._line and self.known is not None and self.known.starts(data):
            self._take_again(self.known, data)
            return
        self._read(data)
        if may_begin and self.known is not None and self.known.headers is self._headers and self._phase == NOTHING:
            self.known = self.known._replace(text=text_of(data, self.body.received))

    def _take_again(self, known: KnownHead, data: bytes) -> None:
        """Begin a request that came whole, whose head is the last one's, byte for byte; the parser is left out."""
        exchange = Exchange(self, b"POST", known.url, "1.1", known.headers, True, False)
        exchange.put_whole(data[len(known.text) :])
        self._phase, self._receiving, self._begun = BODY, exchange, exchange
        self._line.append(exchange)
        try:
            self._begin(exchange)
        except Exception as error:  # as a callback of the parser does
            self._fail(error)
        if not self._is_over:
            self._read_nothing()

    def _take(self, method: bytes, version: str, *, keep_alive: bool) -> None:
        """Begin a request whose head is complete, or let it wait for those before it."""
        exchange = Exchange(self, method, self._url, version, self._headers, keep_alive, self._expects)
        self._receiving = exchange
        self._line.append(exchange)
        if len(self._line) > 1:
            self.pause_reading()
        else:
            self._begun = exchange
            self._begin(exchange)

    @property
    def _is_answering(self) -> bool:
        """Whether a request has no answer yet, or something is to be done last."""
        return bool(self._line)

    # -- answers, in the order of the requests --

    def _advance(self) -> None:
        """Begin the first of the line, and those behind it while each is answered at once."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._line and self._line[0] is not self._begun:
                first = self._begun = self._line[0]
                if isinstance(first, Exchange):
                    self._begin(first)
                else:
                    self._line.clear()
                    first.act()
        finally:
            self._is_advancing = False

    def _begin(self, exchange: Exchange) -> None:
        turns = self._front.turns
        if turns is None or not turns.defer_request(exchange, partial(self._begin_late, exchange)):
            self._begin_now(exchange)

    def _begin_late(self, exchange: Exchange) -> bool:
        """Begin a request that waited for its tenant's turn; false where there is nothing to begin."""
        if exchange.is_gone or not self._line or self._line[0] is not exchange:
            return False
        try:
            self._begin_now(exchange)
        except Exception:  # one connection harms no other
            log.exception("A connection failed")
            self.transport.abort()
        return True

    def _begin_now(self, exchange: Exchange) -> None:
        if exchange.tenant is not None:
            self.tenant = exchange.tenant.name
        if not self.is_unread:  # else the application waits until the client reads
            exchange.handler = self._front.direct.begin(exchange)
            if exchange.handler is not None or exchange.is_done:
                if exchange.is_whole and exchange.handler is not None:
                    exchange.handler.body_arrived()
                return
        try:
            scope = scope_of(exchange)
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            while self._line[-1] is not exchange:
                self._line.pop()
            self._refuse_exchange(exchange, NO_PATH)
            return
        bridge = Bridge(exchange, self._front.asgi, scope)
        exchange.handler = bridge
        self.shared.start(bridge.run())

    def write(self, *parts: Part) -> None:
        """Send parts of an answer; they count together until all are read."""
        self._unread.last = size = size_of(parts)
        if size < LONG_BYTES:
            self.transport.write(b"".join(parts))
            return
        for part in together(parts):
            self.transport.write(part)

    def answered(self, *, keep_alive: bool) -> None:
        """Go on with the next request, or close."""
        self._line.popleft()
        if not keep_alive or self.shared.is_stopping or self.transport.is_closing():
            self.close()
            return
        if not self._line:
            self._begun = None
            self.read_on()
            if self._phase == NOTHING:
                self.since, self.patience = self.shared.now, self.shared.keep_alive_s
            return
        if isinstance(self._line[0], Exchange):
            self.read_on()
        self._advance()

    def close(self) -> None:
        """Close once everything was sent."""
        self._is_over = True
        self.look_at(inf)
        self.transport.close()
        self._watch_reader()

    def shutdown(self) -> None:
        """Close once the requests that arrived are answered; at once where there are none."""
        if self._websocket is not None:
            self._websocket.shutdown()
        elif not self._line:
            self.close()

    # -- refusals --

    def _refuse(self, error: EdgeInferError) -> None:
        """Answer without the application once it is this one's turn, and close."""
        if self._is_over:
            return
        exchange = self._receiving if self._phase == BODY else None
        if exchange is None:
            method = self._parser.get_method() if self._url else b""
            write = line_of(method, self._url, self._headers, self._head_since, error.code)
            self._end_with(partial(self._write_refusal, error, write))
        elif exchange.is_started:
            self.close()  # it has its answer, or a part of it
        else:
            self._refuse_exchange(exchange, error)

    def _refuse_exchange(self, exchange: Exchange, error: EdgeInferError) -> None:
        """Answer a request, which is the last of the line, in the place of its handler."""
        self._line.pop()
        handler, exchange.handler = exchange.handler, None
        if handler is None:
            write = line_of(exchange.method, exchange.url, exchange.headers, exchange.start, error.code)
        else:
            write = partial(handler.refused, code=error.code)
        self._end_with(partial(self._write_refusal, error, write))

    def _end_with(self, act: Callable[[], None]) -> None:
        """Do the last thing of this connection, once all earlier requests are answered."""
        self._is_over, self._receiving = True, None
        self.look_at(inf)
        self._line.append(_Last(act))
        self._advance()

    def _write_refusal(self, error: EdgeInferError, write: Callable[[int, int], None]) -> None:
        self._front.refusals[error.code] += 1
        refusal = refusal_of(error)
        try:
            write(refusal.status, refusal.size)
        finally:
            self.transport.write(refusal.data)
            self.close()

    # -- another protocol --

    def _hand_over(self, rest: bytes) -> None:
        """Open a WebSocket once all earlier requests are answered, unless its handshake is wrong."""
        head = head_of(self._parser.get_method(), self._url, "1.1", self._headers)
        try:
            scope = {"type": "websocket", "path": path_of(self._url)[0], "root_path": "", "headers": self._headers}
            front, context = self._front, self._front.direct.context
            with suppress(EdgeInferError):  # the application refuses the handshake
                self.tenant = context.keys.tenant_of(self._headers).name
            socket = WebSocket(self, head, context.memory, front.max_body_bytes, front.refusals)
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            self._refuse(NO_PATH)
        except EdgeInferError as error:
            self._refuse(error)
        else:
            self.pause_reading()
            self._end_with(partial(self._open, socket, scope, rest))

    def _open(self, socket: WebSocket, scope: Scope, rest: bytes) -> None:
        self._websocket = socket
        self.shared.start(self._front.open_stream(scope, socket))
        if rest:
            socket.feed(rest)
