"""The guard at the door: what a connection may take of time and of headers before a request is one.

Uvicorn has no bound on how long a client may take to send a request's headers, how long these may be, or how slowly a
body may come: a few hundred such connections (slow loris) would hold a server's file descriptors for ever.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge_infer.errors import QueueFull
from edge_infer.server.problems import RequestTooSlow, TooManyHeaders, status_of

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from edge_infer.errors import EdgeInferError

_REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class DoorLimits(NamedTuple):
    """What a connection may take.

    Attributes:
        max_connections: How many connections there may be.
        max_header_bytes: How long the names and values of a request's headers may be together.
        header_timeout_s: How long they may take to come.
        body_timeout_s: How long a body may take to come, beside what its length takes at `min_body_rate`.
        min_body_rate: The slowest body, in bytes a second.
    """

    max_connections: int = 16384
    max_header_bytes: int = 32 * 2**10
    header_timeout_s: float = 15.0
    body_timeout_s: float = 30.0
    min_body_rate: float = 10_000.0


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with limits, those of the application: `app.limits.door`.

    A request that comes in one piece, as almost all do, costs no timer.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._door: DoorLimits = self.config.app.limits.door  # type: ignore[union-attr]
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._header_bytes = 0
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection; one too many is refused."""
        super().connection_made(transport)
        if len(self.connections) > self._door.max_connections:
            most = self._door.max_connections
            self._refuse(
                QueueFull(f"The server takes {most} connections", hint="keep connections alive and share them")
            )
        else:
            self._watch(self._door.header_timeout_s, "headers")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and watch what is still to come."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_in_head:
            if self._timer is None:
                self._watch(self._door.header_timeout_s, "headers")
        elif self._timer is None and self._is_unfinished():
            declared = next((value for name, value in self.headers if name == b"content-length"), b"0")
            size = int(declared) if declared.isdigit() and len(declared) < 16 else 0
            self._watch(self._door.body_timeout_s + size / self._door.min_body_rate, "body")

    def handle_websocket_upgrade(self) -> None:
        """Hand over to the protocol of WebSockets, unless the request was refused."""
        if not self._is_refused:
            super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._is_in_head = True
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the path."""
        self._header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; those beyond the limit are not kept."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes <= self._door.max_header_bytes:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, unless its headers were too long."""
        self._is_in_head = False
        self._unwatch()
        if self._header_bytes > self._door.max_header_bytes:
            self._refuse(
                TooManyHeaders(
                    f"The headers have more than {self._door.max_header_bytes} bytes",
                    hint="send tensors in the body",
                    expected=self._door.max_header_bytes,
                )
            )
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unwatch()
        if not self._is_refused:
            super().on_message_complete()

    def _is_unfinished(self) -> bool:
        """Tell whether more of a body is to come that the application still wants."""
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and cycle.more_body and not cycle.response_complete

    def _watch(self, seconds: float, what: str) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow, what)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, what: str) -> None:
        self._timer = None
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()
            return
        self._refuse(RequestTooSlow(f"The request's {what} took too long", hint="send it in one piece"))

    def _refuse(self, error: EdgeInferError) -> None:
        """Answer without the application, and hang up."""
        self._is_refused = True
        status = status_of(error)
        body = json.dumps(error.to_json()).encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        retry = "retry-after: 1\r\n" if status == 503 else ""
        self.transport.write(f"{head}{retry}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
