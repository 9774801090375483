"""The head that a client sends again and again on a connection: known by its bytes, it is not parsed once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edge_infer.server.protocol.head import RequestHead

_VERSION = b" HTTP/1.1"
_END = b"\r\n\r\n"


class KnownHead(NamedTuple):
    """The head of a request that the fast path took.

    Attributes:
        url: Its target.
        headers: Its headers.
        path: Its target as text.
        target: The model and version that it names.
        head: What its headers say.
        text: The head as it came; empty where it did not come in one piece with its body and nothing else.
    """

    url: bytes
    headers: list[tuple[bytes, bytes]]
    path: str
    target: tuple[str, str | None]
    head: RequestHead
    text: bytes = b""

    def starts(self, data: bytes) -> bool:
        """Tell whether this head and its body, of the length that it names, are all of what came."""
        text = self.text
        return len(data) == len(text) + self.head.content_length and data.startswith(text) and text != b""


def text_of(data: bytes, body_bytes: int) -> bytes:
    r"""Return the head in front of a body, where what came is one request of HTTP/1.1; empty where it may be more.

    Args:
        data: What came, where a request begins.
        body_bytes: How many bytes the last body in it has.

    >>> text_of(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 2)
    b'POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n'
    >>> text_of(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", 2)
    b''
    >>> text_of(b"POST / HTTP/1.1\n\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 2)
    b''
    """
    text = data[: len(data) - body_bytes]
    line = text.partition(b"\r\n")[0]
    is_one = line.startswith(b"POST ") and line.endswith(_VERSION) and text.find(_END) == len(text) - len(_END)
    # Where a parser takes a line feed alone for the end of a line, a head may have ended before.
    return text if is_one and text.count(b"\n") == text.count(b"\r\n") else b""
