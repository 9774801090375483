"""Requests that ask for another protocol: a WebSocket's handshake is tried before it is handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from websockets.exceptions import SecurityError
from websockets.http11 import Request
from websockets.server import ServerProtocol

from edge_infer.errors import InputError
from edge_infer.server.errors import TooManyHeaders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_infer.errors import EdgeInferError

#: How much of a reason is told: it may quote the request.
_MAX_REASON = 200


def head_of(method: bytes, url: bytes, version: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write the head of a request."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, lines)


def refusal_of_handshake(head: bytes) -> EdgeInferError | None:
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
