"""Inputs where nobody gives any: drawn at random from the specs, or rows of a table's examples."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer.tensors.drawn import CYCLE, can_draw, draw
from edge_infer.tensors.dtypes import DType
from edge_infer_converters.data.calibration import RANDOM, CalibrationSet
from edge_infer_converters.data.told_values import told_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.data.calibration import Feeds

RANDOM_CALLS = 32
#: What a free dimension other than the batch becomes in random inputs. The first at which the model runs is taken.
RANDOM_SIZES = (16, 64, 224)
# A row of numbers without a length may be a sound, of which wav2vec2 takes 400 samples at least: half a second.
_SOUND_SIZE = 8000


def random_set(
    specs: Sequence[TensorSpec],
    free_size: int = RANDOM_SIZES[0],
    inner_size: int | None = None,
    known: Mapping[str, int] | None = None,
) -> CalibrationSet:
    """Draw inputs from the specs; the same specs always give the same inputs.

    Floats are normal with deviation 1; 8-bit integers span their range; other integers are 0 or 1, which every
    vocabulary and mask takes; a free first dimension is 1, and so is every other dimension of its name. What an input
    tells by its name is not drawn (`told_values`).

    Args:
        specs: The model's inputs.
        free_size: The size of the other free dimensions.
        inner_size: The size of those that are not the last of their input, where it is another.
        known: The sizes of free dimensions by name, where they are known.
    """
    sizes: dict[str, int] = dict(known or {})
    for spec in specs:
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, str) and (axis == 0 or dim not in sizes) and dim not in (known or {}):
                is_inner = axis < len(spec.shape) - 1 and inner_size is not None
                sizes[dim] = 1 if axis == 0 else inner_size if is_inner and inner_size is not None else free_size
    shapes = {spec.name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape) for spec in specs}
    told = told_values(specs, shapes)
    starts: list[dict[str, int]] = []
    place = 0
    for _ in range(RANDOM_CALLS):
        starts.append({})
        for spec in specs:
            is_drawn = can_draw(spec.dtype) and spec.name not in told
            starts[-1][spec.name] = place % CYCLE if is_drawn else -1
            place += prod(shapes[spec.name])  # each input goes on where the last one ended
    calls = tuple(
        {spec.name: _draw(spec, shapes[spec.name], one[spec.name], told.get(spec.name)) for spec in specs}
        for one in starts
    )
    return CalibrationSet(calls, None, RANDOM, starts=tuple(starts))


def random_set_that_runs(
    specs: Sequence[TensorSpec],
    run: Callable[[Feeds], Mapping[str, np.ndarray] | None],
    known: Mapping[str, int] | None = None,
) -> CalibrationSet:
    """Draw inputs with which a model runs: free dimensions have limits that no spec tells.

    Sizes with which an output is empty, 0 everywhere or not finite are taken only where it is so with all: they show
    nothing of it.

    Args:
        specs: The model's inputs.
        run: Runs it once; gives its outputs, or None where they do not matter.
        known: The sizes of free dimensions by name, where they are known.

    Raises:
        ConversionError: It runs with none of `RANDOM_SIZES`, nor with half a second of sound.
    """
    is_free = any(isinstance(dim, str) for spec in specs for dim in spec.shape[1:])
    failure: ConversionError | None = None
    blank: CalibrationSet | None = None
    # A state may have its batch as a free dimension of no name, between layers and width: 1 at last.
    sizes = [(size, inner) for inner in (None, 1) for size in RANDOM_SIZES] if is_free else [(RANDOM_SIZES[0], None)]
    wide = [spec for spec in specs if len(spec.shape) > 1]
    if len(wide) == 1 and len(wide[0].shape) == 2 and isinstance(wide[0].shape[1], str):
        sizes.append((_SOUND_SIZE, None))
    for size, inner in sizes:
        drawn = random_set(specs, size, inner, known)
        try:
            outputs = run(drawn.calls[0])
        except ConversionError as error:
            failure = error
            continue
        if outputs is None or all(map(_shows, outputs.values())):
            return drawn
        blank = blank or drawn
    if blank is not None:
        return blank
    raise ConversionError(
        f"The model does not run on random inputs: {failure.message if failure else 'there are none'}",
        hint=f"give it real ones: --calibration FILE.npz, with an array for each of {', '.join(map(str, specs))}",
    ) from failure


def _shows(output: np.ndarray) -> bool:
    return bool(output.any()) and (output.dtype.kind != "f" or bool(np.isfinite(output).all()))


def rows_of(examples: Mapping[str, np.ndarray]) -> CalibrationSet:
    """Return example rows of a table as a call for each of them."""
    count = min(len(next(iter(examples.values()))), RANDOM_CALLS)
    calls = tuple({name: value[i : i + 1] for name, value in examples.items()} for i in range(count))
    return CalibrationSet(calls, None, "rows drawn from its categories")


def _draw(spec: TensorSpec, shape: tuple[int, ...], start: int, told: int | None) -> np.ndarray:
    if told is not None:
        return np.full(shape, told, str(spec.dtype))
    if spec.dtype is DType.STRING:
        return np.array([f"text {i}" for i in range(prod(shape))], dtype=object).reshape(shape)
    return np.array(np.frombuffer(draw(spec.dtype, shape, start).data(), str(spec.dtype)).reshape(shape))
