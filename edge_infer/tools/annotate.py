"""Draw what a pipeline found into the picture it was found in."""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.tasks.image.image import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageDraw import ImageDraw


def annotated(source: str, answer: Any) -> Picture:
    """Return the picture with boxes, points, masks or labels drawn in it.

    Args:
        source: The path of the picture.
        answer: What a pipeline of images answered.

    Raises:
        UnsupportedError: Pillow is not installed.
        InputError: The picture cannot be read, or the answer is not one that can be drawn.
    """
    try:
        from PIL import Image as Pillow
        from PIL import ImageDraw, ImageOps
    except ImportError as error:
        raise UnsupportedError("To draw takes Pillow", hint='pip install "edge-infer[image]"') from error
    if isinstance(answer, Image):
        return Pillow.frombytes("L" if answer.channels == 1 else "RGB", (answer.width, answer.height), answer.data)
    if not isinstance(answer, list) or not all(isinstance(one, dict) and "label" in one for one in answer):
        raise InputError("this answer cannot be drawn", hint="--json prints it")
    try:
        picture = ImageOps.exif_transpose(Pillow.open(source)).convert("RGB")
    except OSError as error:
        raise InputError(f"the image `{source}` cannot be read: {error}") from error
    for one in answer:
        mask = one.get("mask")
        if isinstance(mask, Image):
            shape = Pillow.frombytes("L", (mask.width, mask.height), mask.data).point(lambda level: level // 2)
            picture.paste(_colour(one["label"]), (0, 0), shape)
    draw = ImageDraw.Draw(picture)
    width = max(round(max(picture.size) / 250), 1)
    font_size = max(round(max(picture.size) / 32), 11)
    lines = []
    for one in answer:
        text = one["label"] if one.get("score") is None else f"{one['label']} {one['score']:.2f}"
        colour = _colour(one["label"])
        if "box" in one:
            box = one["box"]
            draw.rectangle((box["xmin"], box["ymin"], box["xmax"], box["ymax"]), outline=colour, width=width)
            _tag(draw, box["xmin"], max(box["ymin"] - font_size * 1.3, 0), text, colour, font_size)
            for point in one.get("keypoints", ()):
                x, y = point["x"], point["y"]
                draw.ellipse((x - 2 * width, y - 2 * width, x + 2 * width, y + 2 * width), fill=colour)
        else:
            lines.append((text, colour))
    for row, (text, colour) in enumerate(lines):
        _tag(draw, font_size * 0.4, font_size * (0.4 + 1.4 * row), text, colour, font_size)
    return picture


def _tag(draw: ImageDraw, x: float, y: float, text: str, colour: tuple[int, int, int], size: int) -> None:
    left, top, right, bottom = draw.textbbox((x + size * 0.25, y), text, font_size=size)
    draw.rectangle((left - size * 0.25, top - size * 0.15, right + size * 0.25, bottom + size * 0.15), fill=colour)
    draw.text((x + size * 0.25, y), text, fill=(0, 0, 0), font_size=size)


def _colour(label: str) -> tuple[int, int, int]:
    """Return a colour that depends on the label alone."""
    hue = sum(ord(letter) * 37 for letter in label) % 360 / 360
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.65, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)
