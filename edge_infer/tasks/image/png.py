"""Write PNG files without a library (https://www.w3.org/TR/png-3/)."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_infer.tasks.image.image import Image

# The numbers that PNG gives to grey and to red, green, blue.
_COLOURS = {1: 0, 3: 2}


def write_png(image: Image) -> bytes:
    """Return the bytes of a PNG file of 8 bits for each channel."""
    stride = image.width * image.channels
    rows = b"".join(b"\0" + image.data[y * stride : (y + 1) * stride] for y in range(image.height))
    head = struct.pack(">IIBBBBB", image.width, image.height, 8, _COLOURS[image.channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(name, body) for name, body in parts)


def _part(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
