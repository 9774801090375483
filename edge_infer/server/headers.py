"""The layers around the application: headers that every answer carries, and one line in the log for each request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
#: What a page needs for `SharedArrayBuffer`, and with it for threads: https://web.dev/articles/coop-coep
_ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
#: Headers of a request that its answer repeats, so that a client can match the two, and the most characters of each.
_ECHOED = (b"x-request-id", b"traceparent")
_MAX_ECHO = 128
#: Where the door says in a request's scope that it has answered in the place of the application.
REFUSED = "edge_infer.refused"
#: Where the server says in a request's scope how to ask whether the client left; other ASGI servers do not.
IS_GONE = "edge_infer.is_gone"
#: Where the application says in a request's scope which version answers it.
ANSWERING = "edge_infer.answering"
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
