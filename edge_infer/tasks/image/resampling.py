"""Pillow's resampling of 8-bit images, bit for bit: integer weights of 22 bits, two passes.

The algorithm is that of https://github.com/python-pillow/Pillow (src/libImaging/Resample.c): the filter's weights are
made in float64, normalised, rounded to integers; each pass sums integers, rounds, shifts and clips to 8 bits. Pillow
itself does the passes where it is installed; numpy does them where that is; else plain Python does.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.platform import installed
from edge_infer.tasks.image.image import Image
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

_BITS = 22  # 32 less 8 for the pixel and 2 for the sums that overshoot
_HALF = 1 << (_BITS - 1)
#: 0.54 and 0.46 as Pillow has them: in float32.
_HAMMING = (0.5400000214576721, 0.46000000834465027)


def _sinc(x: float) -> float:
    return 1.0 if x == 0 else math.sin(x * math.pi) / (x * math.pi)


def _box(x: float) -> float:
    return 1.0 if -0.5 < x <= 0.5 else 0.0


def _bilinear(x: float) -> float:
    x = abs(x)
    return 1.0 - x if x < 1.0 else 0.0


def _hamming(x: float) -> float:
    x = abs(x)
    if x == 0:
        return 1.0
    if x >= 1:
        return 0.0
    x *= math.pi
    base, swing = _HAMMING
    return math.sin(x) / x * (base + swing * math.cos(x))


def _bicubic(x: float) -> float:
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    if x < 2.0:
        return (((x - 5) * x + 8) * x - 4) * a
    return 0.0


def _lanczos(x: float) -> float:
    return _sinc(x) * _sinc(x / 3) if -3.0 <= x < 3.0 else 0.0


#: Each filter's function and how far it reaches, in pixels of the smaller image.
FILTERS: dict[str, tuple[Callable[[float], float], float]] = {
    "box": (_box, 0.5),
    "bilinear": (_bilinear, 1.0),
    "hamming": (_hamming, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
#: Which pass goes first shows in the last bit. Pillow up to 12.1, which published models were trained with, always
#: began with the horizontal one; 12.2 and 13.0 changed that for some sizes.
ORDERS = ("horizontal", "pillow12.2", "pillow13")


class Taps(NamedTuple):
    """What one pixel of the new line is made of: the first pixel of the old line, and the weights from there."""

    first: int
    weights: tuple[int, ...]


@lru_cache(maxsize=64)
def taps(old: int, new: int, name: str) -> tuple[Taps, ...]:
    """Return the taps of each pixel of a line of `new` pixels that is made of one of `old`."""
    function, reach = FILTERS[name]
    scale = old / new
    stretch = max(scale, 1.0)
    reach *= stretch
    step = 1.0 / stretch
    found: list[Taps] = []
    for i in range(new):
        center = (i + 0.5) * scale
        first = max(int(center - reach + 0.5), 0)
        last = min(int(center + reach + 0.5), old)
        weights: list[float] = []
        total = 0.0  # `sum` compensates its errors since Python 3.12, and C does not
        for x in range(first, last):
            weights.append(function((x - center + 0.5) * step))
            total += weights[-1]
        if total != 0.0:
            weights = [weight / total for weight in weights]
        scaled = (weight * (1 << _BITS) for weight in weights)
        found.append(Taps(first, tuple(int(one - 0.5 if one < 0 else one + 0.5) for one in scaled)))
    return tuple(found)


def is_vertical_first(image: Image, width: int, height: int, order: str) -> bool:
    """Tell which pass goes first.

    The rules were found by comparing 5,243 sizes with Pillow 12.2, 12.3 and 13.0 (python-pillow/Pillow#9549).
    """
    if image.width == width or image.height == height or order == "horizontal":
        return False
    if order == "pillow12.2":
        return image.height > 100 * image.width and height < image.height
    return height < image.height and image.height - height > 2 * (image.width - width)


def resized(image: Image, width: int, height: int, name: str, order: str) -> Image:
    """Return the image in another size.

    Args:
        image: 1 or 3 channels.
        width: Of the new image, in pixels.
        height: Likewise.
        name: The filter: a key of `FILTERS`, or `nearest`.
        order: One of `ORDERS`.
    """
    if (image.width, image.height) == (width, height):
        return image
    if name == "nearest":
        return _nearest(image, width, height)
    vertical_first = is_vertical_first(image, width, height, order)
    own = _order_of_pillow() if _has_pillow() else None
    if own is not None and is_vertical_first(image, width, height, own) == vertical_first:
        return _by_pillow(image, width, height, name)
    if vertical_first:
        return _horizontal(_vertical(image, height, name), width, name)
    return _vertical(_horizontal(image, width, name), height, name)


def _nearest(image: Image, width: int, height: int) -> Image:
    columns, lines = nearest_places(image.width, width), nearest_places(image.height, height)
    stride, depth = image.width * image.channels, image.channels
    made: dict[int, bytes] = {}
    for y in lines:
        if y not in made:
            row = image.data[y * stride : (y + 1) * stride]
            made[y] = b"".join(row[x * depth : (x + 1) * depth] for x in columns)
    return Image(b"".join(made[y] for y in lines), width, height, depth)


def nearest_places(old: int, new: int) -> list[int]:
    """Return the old place of each new one; Pillow adds up the steps (src/libImaging/Geometry.c), and so does this."""
    step = old / new
    at, places = step * 0.5, []
    for _ in range(new):
        places.append(min(int(at), old - 1))
        at += step
    return places


def _horizontal(image: Image, width: int, name: str) -> Image:
    if image.width == width:
        return image
    if _has_pillow():
        return _by_pillow(image, width, image.height, name)
    found = taps(image.width, width, name)
    if has_numpy():
        import numpy as np

        pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width, image.channels)
        columns = _summed(np.ascontiguousarray(pixels.transpose(1, 0, 2)), found)
        return Image(columns.transpose(1, 0, 2).tobytes(), width, image.height, image.channels)
    stride, depth = image.width * image.channels, image.channels
    made = bytearray(image.height * width * depth)
    for y in range(image.height):
        row = image.data[y * stride : (y + 1) * stride]
        for channel in range(depth):
            plane = row[channel::depth]
            made[y * width * depth + channel : (y + 1) * width * depth : depth] = bytes(
                _clipped(_HALF + sum(map(int.__mul__, plane[first : first + len(weights)], weights)))
                for first, weights in found
            )
    return Image(bytes(made), width, image.height, depth)


def _vertical(image: Image, height: int, name: str) -> Image:
    if image.height == height:
        return image
    if _has_pillow():
        return _by_pillow(image, image.width, height, name)
    found = taps(image.height, height, name)
    stride = image.width * image.channels
    if has_numpy():
        import numpy as np

        rows = _summed(np.frombuffer(image.data, np.uint8).reshape(image.height, stride), found)
        return Image(rows.tobytes(), image.width, height, image.channels)
    made: list[bytes] = []
    for first, weights in found:
        sums = [_HALF] * stride
        for offset, weight in enumerate(weights):
            row = image.data[(first + offset) * stride : (first + offset + 1) * stride]
            sums = [total + level * weight for total, level in zip(sums, row, strict=True)]
        made.append(bytes(map(_clipped, sums)))
    return Image(b"".join(made), image.width, height, image.channels)


def _clipped(total: int) -> int:
    level = total >> _BITS
    return 0 if level < 0 else 255 if level > 255 else level


def _summed(rows: np.ndarray, found: tuple[Taps, ...]) -> np.ndarray:
    """Return the new rows: integer sums, which are exact in any order."""
    import numpy as np

    made = np.empty((len(found), *rows.shape[1:]), np.uint8)
    flat = rows.reshape(rows.shape[0], -1)
    for i, (first, weights) in enumerate(found):
        sums = np.full(flat.shape[1], _HALF, np.int32)
        for offset, weight in enumerate(weights):
            sums += flat[first + offset] * np.int32(weight)
        made[i] = np.clip(sums >> _BITS, 0, 255).reshape(rows.shape[1:])
    return made


def _has_pillow() -> bool:
    return installed.origin_of("PIL") is not None


@lru_cache(maxsize=1)
def _order_of_pillow() -> str | None:
    """Return the order of the installed Pillow's passes; None for a version whose order is not known."""
    from PIL import __version__

    version = tuple(map(int, __version__.split(".")[:2]))
    if version < (12, 2):
        return "horizontal"
    return "pillow12.2" if version < (13, 0) else "pillow13" if version < (14, 0) else None


def _by_pillow(image: Image, width: int, height: int, name: str) -> Image:
    """Resize with Pillow: one pass, which is that of this module in every version, or both in Pillow's order."""
    from PIL import Image as Pillow

    pixels = image.pillow
    if pixels is None:
        pixels = Pillow.frombytes("L" if image.channels == 1 else "RGB", (image.width, image.height), image.data)
    return Image.of_pillow(pixels.resize((width, height), Pillow.Resampling[name.upper()]))
