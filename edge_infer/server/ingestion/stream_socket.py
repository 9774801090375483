"""What a stream needs: a WebSocket, of this server or of another one, and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from edge_infer.server.response.parts import Part
    from edge_infer.server.scheduling.shares import Tenant


class Socket(Protocol):
    """A WebSocket, of this server or of another ASGI server."""

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> Awaitable[None]:
        """Open it, with more headers in the answer to its handshake."""

    def refuse(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Awaitable[None]:
        """Answer its handshake with an error."""

    def receive(self) -> Awaitable[bytes | None]:
        """Return the next message, None for one of text.

        Raises:
            ClientLeft: There is none.
        """

    def send(self, parts: Sequence[Part]) -> Awaitable[None]:
        """Send a message; it counts in the server's memory until the client has read it."""

    def close(self, code: int, reason: str) -> Awaitable[None]:
        """Close it."""


class Turns(Protocol):
    """Decides whose requests begin now; see `edge_infer.server.http.turns`."""

    def wait(self, tenant: Tenant) -> Awaitable[None]:
        """Wait until a tenant may begin one more request."""
