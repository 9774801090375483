"""The order of versions."""

from __future__ import annotations

import re


def version_order(version: str) -> list[tuple[int, int, str]]:
    """Return what versions are sorted by: numbers by their value, so that `10` comes after `9`.

    >>> max(["9", "10"], key=version_order)
    '10'
    """
    pieces = re.findall(r"\d+|\D+", version)
    return [(1, int(piece), "") if piece.isdecimal() and piece.isascii() else (0, 0, piece) for piece in pieces]
