"""Answer an exchange through an ASGI application: the routes that are not on the fast path."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from edge_infer.server.errors import InternalError
from edge_infer.server.headers import CONTROL, IS_GONE, REFUSED
from edge_infer.server.http.refusal import refusal_of
from edge_infer.server.metrics.access_log import note

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope

    from edge_infer.server.http.exchange import Exchange
    from edge_infer.server.response.parts import Part

log = logging.getLogger(__name__)
#: How many bytes of a body wait for the application before the connection is read no further.
_MAX_WAITING_BYTES = 2**16
#: The characters of a header's name: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WITHOUT_BODY = (204, 304)


def path_of(target: bytes) -> tuple[str, bytes, bytes]:
    """Return the path of a request's target decoded, the path, and the query.

    Raises:
        httptools.HttpParserInvalidURLError: The target is not one of HTTP.
        UnicodeDecodeError: It is not ASCII.
    """
    url = httptools.parse_url(target)
    path = url.path or b"/"
    return unquote(path.decode("ascii")), path, url.query or b""


def scope_of(exchange: Exchange) -> Scope:
    """Return the scope of a request (https://asgi.readthedocs.io/en/latest/specs/www.html).

    Raises:
        httptools.HttpParserInvalidURLError: Its target is not one of HTTP.
        UnicodeDecodeError: Its target is not ASCII.
    """
    path, raw_path, query = path_of(exchange.url)
    transport = exchange.carrier.transport
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": exchange.version,
        "method": exchange.method.decode("ascii"),
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "path": path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": exchange.headers,
        "server": transport.get_extra_info("sockname"),
        "client": transport.get_extra_info("peername"),
        IS_GONE: lambda: exchange.is_gone,
    }


class Bridge:
    """Carries messages between an exchange and an application.

    Args:
        exchange: The exchange, whose turn it is.
        app: The application.
        scope: From `scope_of`.
    """

    def __init__(self, exchange: Exchange, app: ASGIApp, scope: Scope) -> None:
        self._exchange = exchange
        self._app = app
        self._scope = scope
        self._event = asyncio.Event()
        self._is_read = self._is_over = False
        self._head = b""
        self._left = 0  # the bytes of the answer that its Content-Length says are to come
        self._is_chunked = False

    async def run(self) -> None:
        """Run the application; what it leaves unanswered is an error."""
        exchange = self._exchange
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception:
            log.exception("The application failed")
        if exchange.is_done or exchange.is_gone or self._is_over:
            return
        if exchange.is_started:  # the client sees that the answer is cut short
            log.error("The application gave half an answer")
            exchange.carrier.transport.close()
            return
        error = InternalError("The server failed", hint="its log has the traceback; please report it")
        exchange.keep_alive = False
        exchange.send(refusal_of(error).data)
        exchange.finish()

    def body_arrived(self) -> None:
        """Wake the application; slow the client down where the application is slower."""
        self._event.set()
        if sum(map(len, self._exchange.chunks)) > _MAX_WAITING_BYTES:
            self._exchange.carrier.pause_reading()

    def left(self) -> None:
        """Wake the application."""
        self._event.set()

    def refused(self, status: int, size: int, code: str) -> None:
        """Tell the application that the client left, and its line in the log the answer."""
        self._is_over = True
        self._scope[REFUSED] = True
        note(self._scope, status=status, bytes=size, code=code)
        self._event.set()

    async def _receive(self) -> Message:
        exchange = self._exchange
        while not (self._is_over or exchange.is_gone or exchange.is_done):
            if exchange.chunks or (exchange.is_whole and not self._is_read):
                self._is_read = exchange.is_whole
                return {"type": "http.request", "body": exchange.take_body(), "more_body": not exchange.is_whole}
            if not exchange.is_whole:
                exchange.want_body()
            self._event.clear()
            await self._event.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        exchange = self._exchange
        if exchange.is_done:
            raise RuntimeError(f"`{message['type']}` behind the end of an answer")
        await exchange.carrier.drained()
        if exchange.is_gone or self._is_over:
            return
        if message["type"] == "http.response.start" and not self._head:
            self._begin(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self._head:
            self._write(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"`{message['type']}` is out of order")

    def _begin(self, status: int, headers: Any) -> None:
        """Make the head; it is sent with the first part of the body."""
        exchange = self._exchange
        lines: list[bytes] = []
        length: int | None = None
        for name, value in headers:
            name = name.lower()
            if not _TOKEN.fullmatch(name) or CONTROL.search(value):
                raise RuntimeError(f"The header {name!r} cannot be sent")
            if name == b"connection":
                exchange.keep_alive = exchange.keep_alive and value.lower() != b"close"
                continue
            if name == b"content-length":
                length = int(value)
            lines += (name, b": ", value, b"\r\n")
        has_body = exchange.method != b"HEAD" and status not in _WITHOUT_BODY
        if length is None and has_body:
            self._is_chunked = exchange.version == "1.1"
            if self._is_chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                exchange.keep_alive = False
        self._left = -1 if length is None or not has_body else length
        self._head = b"".join((*exchange.head(status), *lines, b"\r\n"))

    def _write(self, body: Part, *, is_last: bool) -> None:
        exchange = self._exchange
        if exchange.method == b"HEAD":
            body = b""
        if self._left >= 0:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("The answer has another length than its Content-Length")
        parts: list[Part] = [] if exchange.is_started else [self._head]
        if self._is_chunked:
            if body:
                parts += (b"%x\r\n" % len(body), body, b"\r\n")
            if is_last:
                parts.append(b"0\r\n\r\n")
        else:
            parts.append(body)
        exchange.send(*parts)
        if is_last:
            exchange.finish()
            self._event.set()
