"""Origins: which pages may ask. Browsers keep pages from reading answers of other servers, not from asking.

Nor do they keep them from WebSockets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edge_infer.errors import InputError
from edge_infer.server.errors import OriginRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


#: What is left out of an origin, because it is the scheme's own.
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


def parse_origin(text: str) -> str:
    """Return an origin as browsers write it: small letters, the scheme's own port left out, nothing behind.

    Args:
        text: Such as `https://shop.example`; `*`, and `null` for pages without an origin, are returned as they are.

    Raises:
        InputError: It is none that a browser could name.

    >>> parse_origin("HTTPS://Shop.example:443/")
    'https://shop.example'
    """
    if text in ("*", "null"):
        return text
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # no port, no address in brackets, or no name
        host, port = "", None
    if not _HOST.fullmatch(host):
        raise InputError(f"`{text[:128]}` is not an origin of a page", hint="--cors-origin https://shop.example")
    host = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS.get(parts.scheme)) else f":{port}")
    rest = parts.path.rstrip("/") + parts.query + parts.fragment
    if "://" not in text or rest or "@" in parts.netloc:
        raise InputError(
            f"`{text[:128]}` is not an origin: scheme, host and port, nothing else", hint=f"--cors-origin {origin}"
        )
    return origin


def check_origin(headers: Iterable[tuple[bytes, bytes]], allowed: Sequence[str]) -> None:
    """Refuse requests by the pages of another server; clients other than browsers send no origin.

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
    except ValueError:  # brackets around what is not an address
        return False
    return bool(place) and place == host
