"""The guard at the door: what a connection may take of time and of headers before a request is one.

Uvicorn has no bound on how long a client may take to send a request's headers, how long these may be, or how slowly a
body may come: a few hundred such connections (slow loris) would hold a server's file descriptors for ever.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge_infer.errors import QueueFull
from edge_infer.server.ingestion.direct import DirectRequest
from edge_infer.server.problems import RequestTooSlow, TooManyHeaders, status_of

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.ingestion.direct import DirectEndpoint

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
        app: Any = self.config.app
        self._door: DoorLimits = app.limits.door
        self._direct: DirectEndpoint = app.direct
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = self._is_in_body = False
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
        cycle: Any = getattr(self, "cycle", None)
        if type(cycle) is DirectRequest:
            cycle.leave()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and watch what is still to come."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_in_head:
            if self._timer is None:
                self._watch(self._door.header_timeout_s, "headers")
        elif self._timer is None and self._is_in_body:
            declared = next((value for name, value in self.headers if name == b"content-length"), b"0")
            size = int(declared) if declared.isdigit() and len(declared) < 16 else 0
            self._watch(self._door.body_timeout_s + size / self._door.min_body_rate, "body")

    def handle_websocket_upgrade(self) -> None:
        """Hand over to the protocol of WebSockets, unless the request was refused."""
        if not self._is_refused:
            super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """Begin to count. The scope is made once it is needed."""
        self._is_in_head = True
        self._header_bytes = 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        """Count the path."""
        self._header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; those beyond the limit are not kept."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes <= self._door.max_header_bytes:
            name = name.lower()
            self.headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        """Start the request, unless its headers were too long."""
        self._is_in_head, self._is_in_body = False, True
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
        request = self._taken()
        if request is None:
            url, headers, is_expecting = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.expect_100_continue = url, is_expecting
            self.headers += headers
            super().on_headers_complete()
        else:
            self.cycle = request  # type: ignore[assignment]

    def _taken(self) -> DirectRequest | None:
        """Take the request if it is a common one that no other on this connection is before.

        One whose client does not read its answers is left to the application, which waits until it does.
        """
        cycle: RequestResponseCycle | None = self.cycle
        parser = self.parser
        if (
            (cycle is not None and not cycle.response_complete)
            or self.expect_100_continue
            or self.pipeline
            or self.flow.write_paused
            or parser.get_method() != b"POST"
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
        ):
            return None
        return self._direct.begin(self, self.url, self.headers)

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        cycle: Any = self.cycle
        if type(cycle) is DirectRequest:
            if not cycle.response_complete:
                cycle.chunks.append(body)
        elif not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._is_in_body = False
        self._unwatch()
        cycle: Any = self.cycle
        if type(cycle) is DirectRequest:
            if not cycle.response_complete:
                cycle.run()
        elif not self._is_refused:
            super().on_message_complete()

    def _watch(self, seconds: float, what: str) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow, what)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, what: str) -> None:
        self._timer = None
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        if what == "body" and cycle is not None and cycle.response_started:
            self.transport.close()  # it has its answer, or a part of it
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
