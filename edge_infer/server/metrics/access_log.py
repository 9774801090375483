"""The access log: one line of JSON for each request."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from http import HTTPStatus
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

from edge_infer.server.headers import echoed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from edge_infer.server.execution.loaded_model import LoadedModel

access = logging.getLogger("edge_infer.server.access")
#: Where the layers and routes of a request leave what its line in the log says.
_FACTS = "edge_infer.facts"
NOTHING: Mapping[str, object] = MappingProxyType({})
#: The hexadecimal digits that name a trace.
_TRACE_DIGITS = 32


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
    """Logs each request; never the query, or a header that may be secret."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] != "http" or not access.isEnabledFor(logging.INFO):
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
            await self._app(scope, receive, count)
        finally:
            log_access(scope["method"], scope["path"], status, size, start, facts)


@contextmanager
def logged_stream(scope: Scope) -> Iterator[None]:
    """Log a WebSocket once it has ended."""
    if not access.isEnabledFor(logging.INFO):
        yield
        return
    start = perf_counter()
    facts = scope[_FACTS] = facts_of(echoed(scope["headers"]), None, "", "")
    try:
        yield
    finally:
        log_stream(scope["path"], start, facts)
