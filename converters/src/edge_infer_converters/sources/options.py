"""The options of a source: fixed dimensions, operator set and layout of images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    #: The dimensions of an input; None keeps one free.
    Shape = tuple[int | None, ...]


class SourceOptions(NamedTuple):
    """The options of a source.

    Attributes:
        shapes: For each input named, its dimensions; None keeps one free.
        opset: The version of ONNX's operator set to write, or None for the source's own.
        layout: The order of the axes of images at both ends: `onnx` for the source's own, `nhwc` for channels last.
        bind: For each input named, the value that it always has: a number, or one for each element.
        allow_baked: Whether an export may keep a decision or a size of its example inputs.
    """

    shapes: Mapping[str, Shape] = {}
    opset: int | None = None
    layout: str = "onnx"
    bind: Mapping[str, Any] = {}
    allow_baked: bool = False


def parse_shapes(given: Sequence[str]) -> dict[str, Shape]:
    """Read shapes as the command line has them.

    Args:
        given: `NAME=1x3x224x224`; `?` keeps a dimension free, and nothing behind the `=` is a scalar.

    Raises:
        InputError: One is written otherwise, a dimension is not positive, or two shapes of one input differ.

    >>> parse_shapes(["image=1x3x?x?"])
    {'image': (1, 3, None, None)}
    """
    shapes: dict[str, Shape] = {}
    for text in given:
        name, sign, dims = text.rpartition("=")
        words = dims.split("x") if dims else []
        if not sign or not name or not all(re.fullmatch(r"[1-9]\d{0,9}|\?", word) for word in words):
            raise InputError(
                f"Shape {text!r} cannot be read, expected NAME=1x3x224x224",
                hint="sizes of 1 and more with x between; ? keeps the dimension of the model",
                got=text,
            )
        shape = tuple(None if word == "?" else int(word) for word in words)
        if shapes.get(name, shape) != shape:
            raise InputError(f"Input `{name}` is given two shapes", hint="give one --shape for each input", tensor=name)
        shapes[name] = shape
    return shapes
