"""The options of a source: fixed and free dimensions, operator set and layout of images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    #: The dimensions of an input; None keeps one free.
    Shape = tuple[int | None, ...]


BATCH = "batch"
#: The names that stand for axes of every input that has them.
WORDS = (BATCH, "height", "width", "sequence")
_NAMED = {"true": 1.0, "false": 0.0}


class Dynamic(NamedTuple):
    """A dimension to make free.

    Attributes:
        name: Its name: one of `WORDS`, or any where the axis is given.
        tensor: The input, empty for all that have such a dimension.
        axis: The axis of that input.
    """

    name: str
    tensor: str = ""
    axis: int = 0


class SourceOptions(NamedTuple):
    """The options of a source.

    Attributes:
        shapes: For each input named, its dimensions; None keeps one free.
        opset: The version of ONNX's operator set to write, or None for the source's own.
        layout: The order of the axes of images at both ends: `onnx` for the source's own, `nhwc` for channels last.
        bind: For each input named, the value that it always has: a number, or one for each element.
        allow_baked: Whether an export may keep a decision or a size of its example inputs.
        dynamic: The dimensions to make free that the model fixes.
    """

    shapes: Mapping[str, Shape] = {}
    opset: int | None = None
    layout: str = "onnx"
    bind: Mapping[str, Any] = {}
    allow_baked: bool = False
    dynamic: tuple[Dynamic, ...] = ()


def unknown_input(name: str, names: list[str]) -> InputError:
    """Return the error for an option that names an input which the model does not have."""
    return InputError(
        f"The model has no input `{name}`; it has {listed(names)}", hint=did_you_mean(name, names), allowed=names
    )


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


def parse_dynamic(given: str | Sequence[str] | None) -> tuple[Dynamic, ...]:
    """Read dimensions as the command line has them.

    Args:
        given: `batch`, `height`, `width`, `sequence`, or `INPUT:AXIS=NAME`; several with commas between.

    Raises:
        InputError: One is written otherwise.

    >>> parse_dynamic("batch,image:2=height")
    (Dynamic(name='batch', tensor='', axis=0), Dynamic(name='height', tensor='image', axis=2))
    """
    texts = [given] if isinstance(given, str) else given or ()
    found: list[Dynamic] = []
    for word in (part.strip() for text in texts for part in text.split(",")):
        place = re.fullmatch(r"(.+):(\d{1,2})=([A-Za-z_]\w*)", word)
        if place is None and word not in WORDS:
            raise InputError(
                f"Dimension {word!r} is not known; choose from {listed(list(WORDS))}, or name its place",
                hint=did_you_mean(word, list(WORDS)) or "--dynamic INPUT:AXIS=NAME, such as image:2=height",
                allowed=list(WORDS),
                got=word,
            )
        found.append(Dynamic(word) if place is None else Dynamic(place[3], place[1], int(place[2])))
    return tuple(dict.fromkeys(found))


def parse_bindings(given: Sequence[str]) -> dict[str, list[float]]:
    """Read values as the command line has them.

    Args:
        given: `NAME=16000`, or `NAME=1,2,3` for each element of the input.

    Raises:
        InputError: One is written otherwise, or an input is given twice.

    >>> parse_bindings(["rate=16000"])
    {'rate': [16000.0]}
    """
    bindings: dict[str, list[float]] = {}
    for text in given:
        name, sign, values = text.rpartition("=")
        try:
            numbers = [_NAMED[word] if word in _NAMED else float(word) for word in values.split(",")]
        except ValueError:
            numbers = []
        if not sign or not name or not numbers:
            raise InputError(
                f"Value {text!r} cannot be read, expected NAME=16000",
                hint="one number for the whole input, or one for each element, with commas between",
                got=text,
            )
        if name in bindings:
            raise InputError(f"Input `{name}` is given two values", hint="give one --bind for each input", tensor=name)
        bindings[name] = numbers
    return bindings
