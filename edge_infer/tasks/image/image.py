"""An image in memory: 8-bit pixels, rows first, the channels of a pixel side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Self


class Image:
    """Pixels that a step has read or made.

    Attributes:
        width: Pixels in a row.
        height: Rows.
        channels: 1 (grey) or 3 (red, green, blue).
        pillow: The same pixels as Pillow holds them, where nobody else changes those: the steps that Pillow does then
            need no copy of the bytes. None elsewhere.
    """

    __slots__ = ("_data", "channels", "height", "pillow", "width")

    def __init__(self, data: bytes, width: int, height: int, channels: int) -> None:
        self._data: bytes | None = data
        self.width = width
        self.height = height
        self.channels = channels
        self.pillow: Any = None

    @classmethod
    def of_pillow(cls, pillow: Any) -> Self:
        """Return the pixels of an image of Pillow's in mode `L` or `RGB`, which is not changed afterwards."""
        image = cls(b"", pillow.width, pillow.height, 1 if pillow.mode == "L" else 3)
        image._data, image.pillow = None, pillow
        return image

    @property
    def data(self) -> bytes:
        """`height * width * channels` bytes, row by row from the top, the channels of a pixel side by side."""
        if self._data is None:
            self._data = self.pillow.tobytes()
        return self._data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        size = (self.width, self.height, self.channels)
        return size == (other.width, other.height, other.channels) and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.data, self.width, self.height, self.channels))

    def __repr__(self) -> str:
        return f"Image({self.width} x {self.height}, channels={self.channels})"
