"""The layers around the application: headers that every answer carries, and one line in the log for each request."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

access = logging.getLogger("edge_infer.server.access")

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
#: What a page needs for `SharedArrayBuffer`, and with it for threads: https://web.dev/articles/coop-coep
_ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}


def standard_headers(*, isolated: bool) -> dict[str, str]:
    """Return the headers that every answer carries."""
    return {**_ALWAYS, **(_ISOLATION if isolated else {})}


class ResponseHeaders:
    """Adds the headers of a careful server to every answer, errors included.

    Args:
        app: The application.
        isolated: Whether pages are cross-origin isolated.
    """

    def __init__(self, app: ASGIApp, *, isolated: bool) -> None:
        self._app = app
        self._headers = standard_headers(isolated=isolated)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, add if scope["type"] == "http" else send)


def log_access(method: str, path: str, status: int, size: int, start: float) -> None:
    """Log one request: method, path, status, bytes and time.

    Args:
        method: Its method.
        path: Its path, decoded.
        status: Of the answer.
        size: The bytes of the answer's body.
        start: When it came, in seconds of `perf_counter`.
    """
    if access.isEnabledFor(logging.INFO):
        # Quoted again: a path may hold line breaks and terminal commands once it is decoded.
        milliseconds = (perf_counter() - start) * 1000
        quoted = quote(path, safe="/~!$&'()*+,;=:@")
        access.info("%s %s %d %d B %.0f ms", method, quoted, status, size, milliseconds)


class AccessLog:
    """Logs method, path, status, bytes and time of each request; never the query or a header, which may be secret."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] != "http" or not access.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        start, status, size = perf_counter(), 0, 0

        async def count(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            log_access(scope["method"], scope["path"], status, size, start)
