"""One answer of a server: status, headers and body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Reply(NamedTuple):
    """An answer of HTTP: its status, headers in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
