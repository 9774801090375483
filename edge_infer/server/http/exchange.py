"""One HTTP request and its answer, on one connection."""

from __future__ import annotations

from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from edge_infer.server.response.parts import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_infer.server.http.connections import Connections
    from edge_infer.server.http.repeated import KnownHead
    from edge_infer.server.response.parts import Part, Parts
    from edge_infer.server.scheduling.shares import Tenant

STATUS_LINES = {status.value: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"


class Carrier(Protocol):
    """The connection of an exchange or a WebSocket, as far as they know it.

    Attributes:
        shared: What it shares with others.
        transport: Its socket.
        is_paused: Whether nothing is read for now.
        known: The last head that the fast path took.
        tenant: Whose it is; empty where that is not known.
    """

    shared: Connections
    transport: Any
    is_paused: bool
    known: KnownHead | None
    tenant: str

    @property
    def is_unread(self) -> bool:
        """Whether the client does not read what was sent."""

    def write(self, *parts: Part) -> None:
        """Send parts of an answer; long ones are not copied."""

    def answered(self, *, keep_alive: bool) -> None:
        """Go on with the next request, or close."""

    def close(self) -> None:
        """Close once everything was sent."""

    def look_at(self, due: float) -> None:
        """Be looked at, for what the client sends, at a time of `Connections.now`."""

    def read_on(self) -> None:
        """Read again, if reading was paused for this exchange."""

    def pause_reading(self) -> None:
        """Read nothing for now."""

    async def drained(self) -> None:
        """Wait until the client has read what was sent."""


class Handler(Protocol):
    """Answers an exchange."""

    def body_arrived(self) -> None:
        """Take note of a piece of the body, or of its end."""

    def left(self) -> None:
        """Take note that the client left."""

    def refused(self, status: int, size: int, code: str) -> None:
        """Take note that the connection has answered: the body broke a limit."""


class Exchange:
    """A request whose head is complete.

    Args:
        carrier: Its connection.
        method: Its method.
        url: Its target.
        version: Its version of HTTP.
        headers: Its headers, names in lower case.
        keep_alive: Whether the client wants the connection kept.
        expects: Whether the client waits for `100 Continue`.

    Attributes:
        carrier: As given, as are `method`, `url`, `version`, `headers` and `keep_alive`.
        start: When its head was complete, in seconds of `perf_counter`.
        chunks: The pieces of the body that nobody has taken yet.
        received: How many bytes of the body arrived.
        is_whole: Whether all of the body arrived.
        is_gone: Whether the client left.
        is_started: Whether a part of the answer was sent.
        is_done: Whether all of it was sent.
        handler: Answers it, once it is its turn.
        tenant: Whose it is, where that is known already.
    """

    __slots__ = (
        "_expects",
        "carrier",
        "chunks",
        "handler",
        "headers",
        "is_done",
        "is_gone",
        "is_started",
        "is_whole",
        "keep_alive",
        "method",
        "received",
        "start",
        "tenant",
        "url",
        "version",
    )

    def __init__(
        self,
        carrier: Carrier,
        method: bytes,
        url: bytes,
        version: str,
        headers: list[tuple[bytes, bytes]],
        keep_alive: bool,
        expects: bool,
    ) -> None:
        self.carrier = carrier
        self.method = method
        self.url = url
        self.version = version
        self.headers = headers
        self.keep_alive = keep_alive
        self._expects = expects
        self.start = perf_counter()
        self.chunks: list[bytes] = []
        self.received = 0
        self.is_whole = self.is_gone = self.is_started = self.is_done = False
        self.handler: Handler | None = None
        self.tenant: Tenant | None = None

    def want_body(self) -> None:
        """Let the client send the body."""
        if self._expects:
            self._expects = False
            if not self.is_started:
                self.carrier.transport.write(_CONTINUE)
        if self.carrier.is_paused:
            self.carrier.read_on()

    def put_whole(self, body: bytes) -> None:
        """Take note of all of the body, which came with the head."""
        self.chunks.append(body)
        self.received = len(body)
        self.is_whole = True

    def take_body(self) -> bytes:
        """Return the pieces of the body that arrived since the last call."""
        chunks, self.chunks = self.chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def head(self, status: int) -> tuple[bytes, bytes, bytes]:
        """Return the first lines of the answer: its status, its date, and that the connection ends, if it does."""
        shared = self.carrier.shared
        self.keep_alive = self.keep_alive and not shared.is_stopping
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return line, shared.date, b"" if self.keep_alive else _CLOSE

    def respond(self, status: int, lines: Iterable[bytes], body: Parts) -> None:
        """Send the whole answer.

        Args:
            status: Its status.
            lines: The lines of its headers, but for its date, its length and what becomes of the connection.
            body: Its body.
        """
        self.send(*self.head(status), *lines, b"content-length: %d\r\n\r\n" % size_of(body), *body)
        self.finish()

    def respond_prepared(self, status: int, rest: bytes) -> None:
        """Send the whole answer, of which all behind the first lines is written already.

        Args:
            status: Its status.
            rest: The other lines of its headers, an empty line, and the body.
        """
        self.send(*self.head(status), rest)
        self.finish()

    def send(self, *parts: Part) -> None:
        """Send parts of the answer."""
        self.is_started = True
        if not self.is_gone:
            self.carrier.write(*parts)

    def finish(self) -> None:
        """Take note that the answer was sent; the connection goes on."""
        self.is_started = self.is_done = True
        self.handler = None  # it refers to the exchange: a cycle for the garbage collector
        self.chunks = []
        if not self.is_gone:
            self.carrier.answered(keep_alive=self.keep_alive)
