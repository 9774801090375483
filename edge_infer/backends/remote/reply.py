"""One answer of a server: status, headers and body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The most bytes of an answer that a client takes: 16 times what a server gives unless it is told otherwise.
MAX_ANSWER_BYTES = 2**30


class Reply(NamedTuple):
    """An answer of HTTP: its status, headers in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
