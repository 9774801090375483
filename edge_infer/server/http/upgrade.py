"""The head of a request written again, with or without what asks for another protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: The headers with which a request asks for another protocol; `Connection` names them too.
_ASKING = (b"upgrade", b"http2-settings")


def head_of(method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write the head of a request."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version.encode(), lines)


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
