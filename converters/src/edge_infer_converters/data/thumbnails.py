"""Write small PNG pictures of inputs that are images, without Pillow."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

# Larger images are thinned to about this many pixels a side.
_MAX_SIDE = 96


def data_url(array: np.ndarray) -> str | None:
    """Return an image as a `data:` address, or None where the array is none.

    Args:
        array: One input: [1, c, h, w] or [1, h, w, c] (or without the 1), c being 1, 3 or 4, of uint8 or floats;
            floats are stretched so that the smallest is black and the largest white.
    """
    if array.dtype.kind not in "fu" or (array.dtype.kind == "u" and array.itemsize > 1):
        return None
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim != 3 or not array.size or not np.isfinite(array).all():
        return None
    if array.shape[0] in (1, 3, 4) and min(array.shape[1:]) > 4:
        array = np.moveaxis(array, 0, 2)
    if array.shape[2] not in (1, 3, 4) or min(array.shape[:2]) <= 4:
        return None
    step = max(1, -(-max(array.shape[:2]) // _MAX_SIDE))
    array = array[::step, ::step, :3]
    if array.dtype != np.uint8:
        low, high = float(array.min()), float(array.max())
        array = ((array.astype(np.float64) - low) / (high - low or 1) * 255).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(_png(np.ascontiguousarray(array))).decode()


def _png(pixels: np.ndarray) -> bytes:
    """Write [h, w, 1 or 3] bytes (PNG specification, third edition: each row unfiltered)."""
    height, width, channels = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
