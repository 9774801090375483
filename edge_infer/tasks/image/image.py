"""An image in memory: 8-bit pixels, rows first, the channels of a pixel side by side."""

from __future__ import annotations

from typing import NamedTuple


class Image(NamedTuple):
    """Pixels that a step has read or made.

    Attributes:
        data: `height * width * channels` bytes, row by row from the top, the channels of a pixel side by side.
        width: Pixels in a row.
        height: Rows.
        channels: 1 (grey) or 3 (red, green, blue).
    """

    data: bytes
    width: int
    height: int
    channels: int
