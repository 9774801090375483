"""The layers around the application: headers that every answer carries, and one line in the log for each request."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from edge_infer.server.execution.loaded import LoadedModel

access = logging.getLogger("edge_infer.server.access")

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
#: What a page needs for `SharedArrayBuffer`, and with it for threads: https://web.dev/articles/coop-coep
_ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
#: What comes back, so that who asks can find its request, and how much of it.
_ECHOED = (b"x-request-id", b"traceparent")
_MAX_ECHO = 128
#: Where the layers and routes of a request leave what its line in the log says.
_FACTS = "edge_infer.facts"
#: Where the door says in a request's scope that it has answered in the place of the application.
REFUSED = "edge_infer.refused"
NOTHING: Mapping[str, object] = MappingProxyType({})
#: The hexadecimal digits that name a trace.
_TRACE_DIGITS = 32
#: What may not be sent back in a header: https://www.rfc-editor.org/rfc/rfc9110#section-5.5
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def standard_headers(*, isolated: bool) -> dict[str, str]:
    """Return the headers that every answer carries."""
    return {**_ALWAYS, **(_ISOLATION if isolated else {})}


def echoed(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return those of a request's headers that come back in its answer, whatever becomes of it.

    Args:
        headers: Of the request, names in lower case.

    >>> echoed([(b"host", b"example"), (b"x-request-id", b"seven")])
    [(b'x-request-id', b'seven')]
    """
    found = {name: value[:_MAX_ECHO] for name, value in headers if name in _ECHOED}
    return [pair for pair in found.items() if not CONTROL.search(pair[1])]


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


def log_access(
    method: str, path: str, status: int, size: int, start: float, facts: Mapping[str, object] = NOTHING
) -> None:
    """Log one request.

    Args:
        method: Its method.
        path: Its path, decoded.
        status: Of the answer; 0 where the client left before it.
        size: The bytes of the answer's body.
        start: When it came, in seconds of `perf_counter`.
        facts: What else a structured log has of it; what is empty is left out. `status` and `bytes` are those of the
            door, where it has answered in the place of the application.
    """
    answer = {"status": facts.get("status", status), "bytes": facts.get("bytes", size)}
    line = {"method": method, "path": _quoted(path), **answer, "ms": _ms_since(start)}
    access.info("%s %s %d %d B %.0f ms", *line.values(), extra={"facts": line | _known(facts)})


def log_stream(path: str, start: float, facts: Mapping[str, object]) -> None:
    """Log a WebSocket that ended.

    Args:
        path: Its path, decoded.
        start: When it began, in seconds of `perf_counter`.
        facts: What else there is to say; `status` where it was refused, `requests` where it was not.
    """
    line = {
        "method": "WEBSOCKET",
        "path": _quoted(path),
        "status": facts.get("status", int(HTTPStatus.SWITCHING_PROTOCOLS)),
    }
    line |= {"requests": facts.get("requests", 0), "ms": _ms_since(start)}
    access.info("%s %s %d %d requests %.0f ms", *line.values(), extra={"facts": line | _known(facts)})


def facts_of(
    names: Iterable[tuple[bytes, bytes]], model: LoadedModel | None, tenant: str, code: str
) -> dict[str, object]:
    """Return what a structured log has of a request beside its line.

    Args:
        names: The headers that name it, of those that come back.
        model: What it asked.
        tenant: Who asked.
        code: That of its error.
    """
    given = dict(names)
    # `version-trace-parent-flags`: https://www.w3.org/TR/trace-context/#traceparent-header
    trace = given.get(b"traceparent", b"").partition(b"-")[2].partition(b"-")[0]
    return {
        "request_id": given.get(b"x-request-id", b"").decode("latin-1"),
        "trace_id": trace.decode("latin-1") if len(trace) == _TRACE_DIGITS else "",
        "model": "" if model is None else model.name,
        "version": "" if model is None else model.version,
        "tenant": tenant,
        "code": code,
    }


def note(scope: Scope, **facts: object) -> None:
    """Add facts to the line of a request in the log, where there will be one."""
    found: dict[str, object] | None = scope.get(_FACTS)
    if found is not None:
        found.update(_known(facts))


def _quoted(path: str) -> str:
    """Quote a path again: it may hold line breaks and terminal commands once it is decoded."""
    return quote(path, safe="/~!$&'()*+,;=:@")


def _ms_since(start: float) -> float:
    return round((perf_counter() - start) * 1000, 3)


def _known(facts: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in facts.items() if value != ""}


class AccessLog:
    """Logs each request, and each WebSocket that ends; never the query, or a header that may be secret."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        kind = scope["type"]
        if kind not in ("http", "websocket") or not access.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        start, status, size = perf_counter(), 0, 0
        facts = scope[_FACTS] = facts_of(echoed(scope["headers"]), None, "", "")

        async def count(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, count if kind == "http" else send)
        finally:
            if kind == "http":
                log_access(scope["method"], scope["path"], status, size, start, facts)
            else:
                log_stream(scope["path"], start, facts)
