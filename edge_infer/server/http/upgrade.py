"""Requests that ask for another protocol: a WebSocket's handshake is tried, and what asks for others is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from websockets.exceptions import SecurityError
from websockets.http11 import Request
from websockets.server import ServerProtocol

from edge_infer.errors import InputError
from edge_infer.server.errors import TooManyHeaders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edge_infer.errors import EdgeInferError

#: How much of a reason is told: it may quote the request.
_MAX_REASON = 200
#: The headers with which a request asks for another protocol; `Connection` names them too.
_ASKING = (b"upgrade", b"http2-settings")


def head_of(method: bytes, url: bytes, version: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write the head of a request."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, lines)


def without_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Leave out of a request's headers what asks for another protocol.

    >>> list(without_upgrade([(b"upgrade", b"h2c"), (b"connection", b"upgrade, close")]))
    [(b'connection', b'close')]
    """
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            yield name, b", ".join(token for token in tokens if token.lower() not in _ASKING)
        elif name not in _ASKING:
            yield name, value


def error_of_handshake(head: bytes) -> EdgeInferError | None:
    """Return the error for a handshake that is none; else None.

    Uvicorn answers one that `websockets` cannot parse with nothing, for ever, and others in plain text.

    Args:
        head: Of the request.
    """
    trial = ServerProtocol()
    trial.receive_data(head)
    for event in trial.events_received():
        assert isinstance(event, Request)
        trial.accept(event)
    if trial.handshake_exc is None:
        return None
    reason = trial.handshake_exc.__cause__ or trial.handshake_exc
    text = f"The handshake of the WebSocket is refused: {reason}"[:_MAX_REASON]
    if isinstance(reason, SecurityError):
        return TooManyHeaders(text, hint="send fewer and shorter headers with it, such as cookies")
    return InputError(text, hint="let a WebSocket client open it: GET with a `Sec-WebSocket-Key`, no body")
