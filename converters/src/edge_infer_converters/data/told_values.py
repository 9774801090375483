"""Inputs whose values their names tell, so that none are drawn: lengths of other inputs, settings of generation."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import TensorSpec

#: The last word of an input that tells how much of another is used, and words that make it a bound.
_LENGTHS, _BOUNDS = {"len", "lens", "length", "lengths"}, {"max", "min"}
_WHOLE = (DType.INT32, DType.INT64)
#: What a setting is: of these types, and one number.
_SETTINGS = (*_WHOLE, DType.FLOAT32)


def told_values(specs: Sequence[TensorSpec], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return what inputs hold that are not drawn, by name.

    One that is a length by its name, such as `waveforms_lens`, holds the size of the last free dimension of the first
    input that has one. A model with a `max_length` generates, as those with ONNX Runtime's `BeamSearch` do: it may
    write as much as it was given, and each other number, such as `num_beams` or `repetition_penalty`, is 1.

    Args:
        specs: The model's inputs.
        shapes: Their shapes, by name.
    """
    size = next((shapes[one.name][free[-1]] for one in specs if (free := _free_axes(one))), None)
    if size is None:
        return {}
    words = {one.name: [word.lower() for word in re.findall(r"[A-Z]?[a-z]+", one.name)] for one in specs}
    lengths = [
        one.name for one in specs if one.dtype in _WHOLE and len(one.shape) < 2 and _LENGTHS & {*words[one.name][-1:]}
    ]
    told = {name: size for name in lengths if not _BOUNDS.intersection(words[name])}
    limits = {name: 2 * size for name in lengths if "max" in words[name]}
    if limits:
        settings = (
            one.name for one in specs if one.dtype in _SETTINGS and len(one.shape) < 2 and prod(shapes[one.name]) == 1
        )
        told = {**dict.fromkeys(settings, 1), **told, **limits}
    return told


def _free_axes(spec: TensorSpec) -> list[int]:
    return [axis for axis, dim in enumerate(spec.shape) if axis and isinstance(dim, str)]
