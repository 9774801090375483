"""`image.decode`: a file, bytes, a Pillow image or an array of pixels to an `Image`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.raw_file import read_raw

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "mode": Parameter("choice", "RGB", choices=("RGB", "L")),
    # What is under transparent pixels: transformers and torchvision drop the alpha channel, which is null here.
    "background": Parameter("numbers", None, length=3, low=0, high=255),
}
#: An image of more pixels is refused before it is decoded: 100 million take 300 MB.
MAX_PIXELS = 100_000_000
#: The longest side, which is JPEG's: the weights that resize a line are as many as its pixels.
MAX_SIDE = 65_535
#: The largest file.
MAX_BYTES = 256 * 2**20
# Formats whose pictures other programs draw: a file must not start one.
_DRAWN = ("EPS", "WMF")
# The tag of EXIF that says how the camera was held; 1 is upright.
_ORIENTATION = 0x0112
_CHANNELS = {"RGB": 3, "L": 1}
_INSTALL = 'pip install "edge-infer[image]", or give pixels: an array [height, width, 3] of uint8'


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that reads an image.

    A file is turned upright as its EXIF data say. Grey is `(19595 R + 38470 G + 7471 B + 32768) >> 16`, as in Pillow.
    """
    mode, background = parameters["mode"], parameters["background"]

    def apply(value: Any, item: Item) -> Image:
        image = value if isinstance(value, Image) else _read(value, mode, background)
        _check_size(image.width, image.height)
        if image.channels != _CHANNELS[mode]:
            image = _converted(image, mode)
        item.width, item.height = image.width, image.height
        return image

    return apply


def pixels_of(data: bytes) -> int:
    """Return how many pixels the file of an image has, by its head; 0 where that cannot be read."""
    import io
    import warnings

    try:
        from PIL import Image as Pillow

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of many pixels, which the caller asks for
            with Pillow.open(io.BytesIO(data)) as image:
                return image.width * image.height
    except Exception:  # whatever it is, decoding the file says so
        return 0


def _read(value: Any, mode: str, background: list[float] | None) -> Image:
    if isinstance(value, (str, os.PathLike)):
        return _decoded(read_raw(os.fspath(value), MAX_BYTES, "image"), mode, background)
    if isinstance(value, (bytes, bytearray)):
        return _decoded(bytes(value), mode, background)
    if hasattr(value, "convert") and hasattr(value, "getexif"):
        made = _of_pillow(value, mode, background)
        # The caller may draw on an image that was taken as it is.
        return Image(made.data, made.width, made.height, made.channels) if made.pillow is value else made
    return _of_array(value)


def _decoded(data: bytes, mode: str, background: list[float] | None) -> Image:
    import io

    try:
        from PIL import Image as Pillow
        from PIL import UnidentifiedImageError
    except ImportError as error:
        raise UnsupportedError(
            "To read images from files takes Pillow, which is not installed", hint=_INSTALL
        ) from error
    errors = (OSError, ValueError, SyntaxError, UnidentifiedImageError, Pillow.DecompressionBombError, EOFError)
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own limit is a warning; ours is checked before pixels are read
            with Pillow.open(io.BytesIO(data)) as image:
                if image.format in _DRAWN:
                    raise ValueError(f"{image.format} is a drawing, and has no pixels")
                _check_size(*image.size)
                return _of_pillow(image, mode, background)
    except errors as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, Pillow.DecompressionBombError):  # its head says so: nothing was decoded
            raise _too_large("too many") from error
        said = str(error)
        if isinstance(error, UnidentifiedImageError):  # Pillow names its buffer's place in memory
            said = "it is of no format that Pillow knows" if data else "it is empty"
        raise InputError(
            f"the image cannot be read: {said}", hint="give a JPEG, PNG, WebP, BMP, GIF or TIFF file that is whole"
        ) from error


def _of_pillow(image: Any, mode: str, background: list[float] | None) -> Image:
    from PIL import Image as Pillow
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image
    if upright.mode in ("I;16", "I;16L", "I;16B", "I"):  # 16 bits: the upper 8 of them, as libpng gives them
        upright = upright.convert("I").point(lambda level: level * (1 / 256)).convert("L")
    if background is not None and (upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info):
        under = Pillow.new("RGBA", upright.size, (*(int(one) for one in background), 255))
        upright = Pillow.alpha_composite(under, upright.convert("RGBA"))
    upright = upright if upright.mode == mode else upright.convert(mode)
    upright.load()
    return Image.of_pillow(upright)


def _of_array(value: Any) -> Image:
    expected = "an array [height, width], [height, width, 1] or [height, width, 3] of uint8"
    hint = "give a path, the bytes of a file, a Pillow image, or " + expected
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    if shape is None:
        raise InputError(f"`{type(value).__name__}` is not an image", hint=hint)
    channels = shape[2] if len(shape) == 3 else 1
    if len(shape) not in (2, 3) or channels not in (1, 3) or dtype != "uint8":
        raise InputError(f"an image is {dtype}{list(shape)}, expected {expected}", hint=hint, got=list(shape))
    height, width = int(shape[0]), int(shape[1])
    _check_size(width, height)
    return Image(memoryview(value).tobytes(), width, height, int(channels))


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1 or width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise _too_large(f"{width} x {height}", got=[width, height])


def _too_large(count: str, **facts: Any) -> InputError:
    return InputError(
        f"an image has {count} pixels, expected 1 to {MAX_PIXELS} in all and sides up to {MAX_SIDE}",
        hint="give a smaller one",
        **facts,
    )


def _converted(image: Image, mode: str) -> Image:
    if mode == "RGB":
        data = bytearray(3 * len(image.data))
        for channel in range(3):
            data[channel::3] = image.data
        return Image(bytes(data), image.width, image.height, 3)
    planes = (image.data[channel::3] for channel in range(3))
    grey = bytes((19595 * r + 38470 * g + 7471 * b + 32768) >> 16 for r, g, b in zip(*planes, strict=True))
    return Image(grey, image.width, image.height, 1)
