"""The rest of a large body, read from the socket into the place where it stays.

On the common way a body is copied four times: out of the socket, into bytes, out of these by the parser of HTTP, and
into one piece. Of an image that is more than all the rest of its request costs. So once the headers and the first part
are there, the connection's protocol is this one until the body is complete; what was refused already is thrown away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import numpy

if TYPE_CHECKING:
    from edge_infer.server.http.read_timeouts import SenderWatch

#: A shorter rest stays with the parser: two changes of protocol cost as much as copying it.
MIN_BYTES = 32 * 2**10
#: Where all bodies go that nobody reads.
_WASTE = memoryview(bytearray(256 * 2**10))


class Connection(Protocol):
    """The protocol of a connection, as far as a reader of its body knows it."""

    def take_back(self) -> None:
        """Go on behind the body."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that it was closed."""

    def eof_received(self) -> None:
        """Take note that the client sends no more."""

    def pause_writing(self) -> None:
        """Write no more for now."""

    def resume_writing(self) -> None:
        """Write again."""


class PartialRequest(Protocol):
    """A request whose body is not complete.

    Attributes:
        left: How many bytes of the body are missing.
        response_complete: Whether it was refused already.
        chunks: The parts that were read.
    """

    left: int
    response_complete: bool
    chunks: list[bytes | memoryview]


class BodyReader(asyncio.BufferedProtocol):
    """Stands in for a connection's protocol until a body is complete.

    Args:
        protocol: The connection's own.
        request: Whose body it is.
        sender: Watches that it comes.

    Attributes:
        left: How many bytes are to come.
    """

    def __init__(self, protocol: Connection, request: PartialRequest, sender: SenderWatch) -> None:
        self._protocol = protocol
        self._request = request
        self._sender = sender
        self.left = request.left
        self._body: memoryview | None = None
        if not request.response_complete:
            first = b"".join(request.chunks)
            # Not filled with zeros: memory for what never comes is never touched.
            self._body = numpy.empty(len(first) + self.left, numpy.uint8).data
            self._body[: len(first)] = first

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return where what comes next belongs; never more than the body, what follows is another request's."""
        if self._body is None:
            return _WASTE[: self.left]
        return self._body[len(self._body) - self.left :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of what came."""
        self.left -= nbytes
        self._sender.received += nbytes
        if self.left:
            return
        if self._body is not None:
            self._request.chunks = [self._body]
        self._protocol.take_back()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection's protocol. The body goes at once, not when the garbage collector comes by."""
        self._body = None
        self._protocol.connection_lost(exc)

    def eof_received(self) -> None:
        """Tell the connection's protocol."""
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Tell the connection's protocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection's protocol."""
        self._protocol.resume_writing()
