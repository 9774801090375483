"""The application, as far as its connections know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import Counter

    from starlette.types import ASGIApp, Scope

    from edge_infer.server.http.fast_path import DirectEndpoint
    from edge_infer.server.http.turns import Turns
    from edge_infer.server.http.websocket import WebSocket


class Front(Protocol):
    """The application, as far as a connection knows it.

    Attributes:
        direct: The fast path.
        asgi: Everything else over HTTP.
        turns: Decides whose requests begin now; None where there are no tenants.
        max_body_bytes: The longest message of a WebSocket.
        refusals: Counts refused requests by code.
    """

    direct: DirectEndpoint
    asgi: ASGIApp
    turns: Turns | None
    max_body_bytes: int
    refusals: Counter[str]

    async def open_stream(self, scope: Scope, socket: WebSocket) -> None:
        """Answer the handshake of a WebSocket, and serve it."""
