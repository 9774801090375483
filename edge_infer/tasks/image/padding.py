"""Pad an image with one colour."""

from __future__ import annotations

from edge_infer.tasks.image.image import Image


def padded(image: Image, left: int, top: int, right: int, bottom: int, level: int) -> Image:
    """Return the image with as many pixels more on each side, all channels at one level."""
    stride, width = image.width * image.channels, image.width + left + right
    pixel = bytes([level]) * image.channels
    before, after, empty = pixel * left, pixel * right, pixel * width
    lines = [empty] * top
    lines += [before + image.data[y * stride : (y + 1) * stride] + after for y in range(image.height)]
    lines += [empty] * bottom
    return Image(b"".join(lines), width, image.height + top + bottom, image.channels)
