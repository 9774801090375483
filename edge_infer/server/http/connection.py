"""The guard at the door: what a connection may take of time and of headers before a request is one.

Uvicorn has no bound on how long a client may take to send a request's headers, how long these may be, or how slowly a
body may come: a few hundred such connections (slow loris) would hold a server's file descriptors for ever.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge_infer.errors import InputError, QueueFull
from edge_infer.server.errors import RequestTooSlow, TooManyHeaders
from edge_infer.server.headers import REFUSED
from edge_infer.server.http.body_reader import MIN_BYTES, BodyReader
from edge_infer.server.http.fast_path import DirectRequest
from edge_infer.server.http.read_timeouts import SenderWatch
from edge_infer.server.http.refusal import line_of, refusal_of
from edge_infer.server.http.upgrade import error_of_handshake, head_of, without_upgrade
from edge_infer.server.http.write_timeouts import ReaderWatch
from edge_infer.server.metrics.access_log import note

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.http.fast_path import DirectEndpoint
    from edge_infer.server.http.limits import DoorLimits


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with limits, those of the application: `app.limits.door`.

    A request that comes in one piece, as almost all do, costs no timer.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        app: Any = self.config.app
        self._door: DoorLimits = app.limits.door
        self._direct: DirectEndpoint = app.direct
        self._is_in_head = self._is_in_body = False
        self._header_bytes = 0
        self._since_progress = 0  # the bytes that came since the last head began, or the last piece of a body was read
        self._is_over = False  # what comes is for this protocol no more
        self._last: Callable[[], None] | None = None
        self._idle_since = 0.0
        self.url, self.headers = b"", []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection; one too many is refused."""
        super().connection_made(transport)
        door, memory = self._door, self._direct.context.memory
        self._reader = ReaderWatch(transport, self.loop, memory, door.read_timeout_s, door.min_body_rate)
        self._sender = SenderWatch(self.loop, self.flow, door, self._too_slow)
        if len(self.connections) > self._door.max_connections:
            most = self._door.max_connections
            self._refuse(
                QueueFull(f"The server takes {most} connections", hint="keep connections alive and share them")
            )
        else:
            self._sender.await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._sender.end()
        self._reader.end()
        self._forget_idle()
        super().connection_lost(exc)
        cycle: Any = getattr(self, "cycle", None)
        if type(cycle) is DirectRequest:
            cycle.leave()

    def pause_writing(self) -> None:
        """Watch that the client reads."""
        super().pause_writing()
        self._reader.begin()

    def resume_writing(self) -> None:
        """It does; what is left once the connection is closing is watched to its end."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._reader.end()

    def timeout_keep_alive_handler(self) -> None:
        """Hang up on a connection that nothing came on for long; look again later where something did."""
        left: float = self.timeout_keep_alive
        if not self._is_in_head and not self._is_in_body and self.cycle.response_complete:
            left += self._idle_since - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
            return
        self.timeout_keep_alive_task = None
        super().timeout_keep_alive_handler()
        self._reader.begin()

    def _unset_keepalive_if_required(self) -> None:
        """Do nothing: the timer looks for itself, and a new one for each request costs 1.5 us."""

    def _forget_idle(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def data_received(self, data: bytes) -> None:
        """Parse what came, and watch what is still to come."""
        if self._is_over:
            return
        self._since_progress += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_on(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._is_over:
            return
        if self._since_progress > self._door.max_header_bytes:  # of a head, or of what is behind the last chunk
            self._refuse(self._too_long())
        elif self._is_in_head:
            if self._sender.timer is None:
                self._sender.await_headers()
        elif self._is_in_body:
            if self._sender.timer is None:
                self._sender.await_body()
            else:
                self._sender.received += len(data)
            cycle: Any = self.cycle
            if type(cycle) is DirectRequest and cycle.left >= MIN_BYTES:
                self._read_by(BodyReader(self, cycle, self._sender))

    def _read_by(self, protocol: GuardedProtocol | BodyReader) -> None:
        """Let a protocol have what comes next. Only while it does not read does a transport take another kind."""
        transport: Any = self.transport
        if transport.is_closing() or self.scheme == "https":
            return
        transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()

    def take_back(self) -> None:
        """Go on behind a body that was read by `BodyReader`, of which the parser knows nothing."""
        self._read_by(self)
        self._begin_anew()
        self.on_message_complete()

    def _begin_anew(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def _read_on(self, rest: memoryview) -> None:
        """Read what is behind the head of a request for another protocol, which the parser leaves alone.

        A WebSocket is handed over. Any other request is read as if it did not ask, as RFC 9110 section 7.8 allows:
        else its body would be taken for the next request.
        """
        while not self._is_over:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            head = head_of(method, self.url, version, without_upgrade(self.headers))
            self._begin_anew()
            try:
                self.parser.feed_data(head)
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                continue
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            return

    def handle_websocket_upgrade(self) -> None:
        """Hand over to the protocol of WebSockets, unless the request is refused."""
        if self._is_over:
            return
        error = error_of_handshake(head_of(self.parser.get_method(), self.url, b"1.1", self.headers))
        if error is not None:
            self._refuse(error)
            return
        self.flow.pause_reading()
        self._end_with(self._hand_over)

    def _hand_over(self) -> None:
        super().handle_websocket_upgrade()
        if self.flow.write_paused:  # by answers before it that are not read yet, of which its protocol knows nothing
            transport: Any = self.transport
            transport.get_protocol().pause_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP as every other error, not with uvicorn's plain text."""
        self.logger.warning(msg)
        if not self._is_over:
            self._refuse(InputError(msg, hint="speak HTTP/1.1; over TLS, https://"))

    def _end_with(self, last: Callable[[], None]) -> None:
        """Do the last thing that this protocol does, once all earlier requests of the connection are answered."""
        self._is_over = True
        self._sender.end()
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or (cycle.more_body and not self.pipeline):
            self._end(last)
            return
        if cycle.more_body:  # it waits for its turn, and is not to have it
            self.pipeline.popleft()
        self._last = last

    def _end(self, last: Callable[[], None]) -> None:
        self._forget_idle()
        self._reader.end()
        self.flow.resume_reading()
        last()
        if self.transport.is_closing():
            self._reader.begin()

    def on_response_complete(self) -> None:
        """Go on with the next request, or with what waited for this answer."""
        is_last = not self.pipeline
        if is_last and self.timeout_keep_alive_task is not None:  # as uvicorn does, but with the timer that there is
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        else:
            super().on_response_complete()
        self._idle_since = self.loop.time()
        if self.transport.is_closing():
            self._reader.begin()
        elif self._last is not None and is_last:
            last, self._last = self._last, None
            self._end(last)

    def on_message_begin(self) -> None:
        """Begin to count. The scope is made once it is needed."""
        self._is_in_head = True
        self._header_bytes = self._since_progress = 0
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
        if self._is_over:
            return
        if self._header_bytes > self._door.max_header_bytes:
            self._refuse(self._too_long())
            return
        self._is_in_head, self._is_in_body = False, True
        if self._sender.timer is not None:
            self._sender.end()
        request = self._taken()
        if request is not None:
            self.cycle = request  # type: ignore[assignment]
        elif self.parser.should_upgrade() and not self._should_upgrade():
            self._is_in_body = False  # `_read_on` begins it
            if self.parser.get_method() == b"CONNECT":
                self._refuse(InputError("The server is no proxy", hint="GET or POST, not CONNECT"))
        else:
            url, headers, is_expecting = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.expect_100_continue = url, is_expecting
            self.headers += headers
            super().on_headers_complete()
            self.headers = headers  # no more those of the scope: what comes behind the last chunk is no header of it

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
        if self._is_over:
            return
        self._since_progress = 0
        cycle: Any = self.cycle
        if type(cycle) is DirectRequest:
            cycle.add(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._is_over:
            return
        self._is_in_body = False
        if self._sender.timer is not None:
            self._sender.end()
        cycle: Any = self.cycle
        if cycle is not None and cycle.response_complete:  # it was refused before its body, which nobody waits for
            self._idle_since = self.loop.time()
        elif self.parser.should_upgrade():
            return  # it has no cycle: this is that of the one before
        elif type(cycle) is DirectRequest:
            cycle.run()
        else:
            super().on_message_complete()

    def _too_slow(self, what: str) -> None:
        self._refuse(RequestTooSlow(f"The request's {what} took too long", hint="send it in one piece"))

    def _too_long(self) -> TooManyHeaders:
        most = self._door.max_header_bytes
        return TooManyHeaders(
            f"The headers have more than {most} bytes", hint="send tensors in the body", expected=most
        )

    def _refuse(self, error: EdgeInferError) -> None:
        """Answer without the application, once it is this one's turn, and hang up."""
        cycle = self._cycle_of_body()
        if cycle is not None and cycle.response_started:
            self.transport.close()  # it has its answer, or a part of it
            self._reader.begin()
            return
        self._end_with(partial(self._write_refusal, error, self._line_of(error)))

    def _cycle_of_body(self) -> RequestResponseCycle | None:
        """Return that of the request whose body is being read."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle if self._is_in_body and cycle is not None and cycle.more_body else None

    def _line_of(self, error: EdgeInferError) -> Callable[[int, int], None]:
        """Return what logs a refusal, given its status and size: one that the application has begun logs itself."""
        cycle: Any = self._cycle_of_body()
        if type(cycle) is DirectRequest:
            return partial(cycle.leave, error.code)
        if cycle is not None and not self.pipeline:
            cycle.scope[REFUSED] = True
            return lambda status, size: note(cycle.scope, status=status, bytes=size, code=error.code)
        start = perf_counter() if self._sender.timer is None else self._sender.since
        return line_of(self.parser.get_method() if self.url else b"", self.url, self.headers, start, error.code)

    def _write_refusal(self, error: EdgeInferError, log: Callable[[int, int], None]) -> None:
        app: Any = self.config.app
        app.refusals[error.code] += 1
        refusal = refusal_of(error)
        log(refusal.status, refusal.size)
        self.transport.write(refusal.data)
        self.transport.close()
