"""Origins: which pages may ask. Browsers keep pages from reading answers of other servers, not from asking.

Nor do they keep them from WebSockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edge_infer.server.errors import OriginRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def check_origin(headers: Iterable[tuple[bytes, bytes]], allowed: Sequence[str]) -> None:
    """Refuse what the page of another server asks; what is no browser names no origin.

    Args:
        headers: Of the request or handshake.
        allowed: The origins that may, such as `https://shop.example`; `*` for all.

    Raises:
        OriginRefused: The page's origin is neither this server nor allowed.
    """
    origin = host = ""
    for name, value in headers:
        if name == b"origin":
            origin = value.decode("latin-1")
        elif name == b"host":
            host = value.decode("latin-1")
    if origin and "*" not in allowed and origin not in allowed and not _is_own(origin, host):
        raise OriginRefused(
            f"The page of `{origin[:128]}` may not ask for this here", hint=f"serve --cors-origin {origin[:128]}"
        )


def _is_own(origin: str, host: str) -> bool:
    try:
        place = urlsplit(origin).netloc
    except ValueError:  # brackets around what is no address
        return False
    return bool(place) and place == host
