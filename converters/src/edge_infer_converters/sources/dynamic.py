"""Make dimensions of a model's inputs free that its file fixes, and prove that it runs with other sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import ConversionError, InputError, listed
from edge_infer.parity.comparison import INTEGER_GOOD_SQNR_DB
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.data.random_inputs import random_set_that_runs
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.engine import first_line
from edge_infer_converters.sources.options import BATCH, unknown_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer_converters.sources.framework import Framework
    from edge_infer_converters.sources.options import Dynamic

    Feeds = Mapping[str, np.ndarray]
    Run = Callable[[Feeds], Mapping[str, np.ndarray]]
    #: By input, the symbol of each axis.
    Axes = Mapping[str, Mapping[int, str]]

_IMAGE_RANK = 4
#: An axis of an image that is no larger is its channels.
_CHANNELS = 4


def axes_of(
    wanted: Sequence[Dynamic], inputs: Sequence[TensorSpec], fixed: Mapping[str, Sequence[int | None]] | None = None
) -> dict[str, dict[int, str]]:
    """Find the axes that are to be free.

    Args:
        wanted: What is asked for.
        inputs: The model's inputs.
        fixed: The shapes that are asked for at the same time, by input.

    Raises:
        InputError: No input has such a dimension, one is to be fixed too, or one name is given to two sizes.
    """
    axes: dict[str, dict[int, str]] = {}
    sizes: dict[str, tuple[int, str]] = {}
    for one in wanted:
        places = [(one.tensor, one.axis)] if one.tensor else _places(one.name, inputs)
        if not places:
            raise InputError(
                f"No input has a dimension that is known as `{one.name}`: {', '.join(map(str, inputs))}",
                hint=f"name its place: --dynamic {inputs[0].name}:1={one.name}",
            )
        for name, axis in places:
            spec = _input(name, axis, inputs)
            if ((fixed or {}).get(name) or [None] * (axis + 1))[axis] is not None:
                raise InputError(
                    f"Axis {axis} of `{name}` is to be free and of a fixed size at once", hint="use ? in --shape"
                )
            size = spec.shape[axis]
            if isinstance(size, int) and sizes.setdefault(one.name, (size, name))[0] != size:
                first, where = sizes[one.name]
                raise InputError(
                    f"`{one.name}` is {first} in `{where}` and {size} in `{name}`",
                    hint=f"--dynamic {name}:{axis}=ANOTHER_NAME",
                )
            axes.setdefault(name, {})[axis] = one.name
    return axes


def sizes_of(axes: Axes, inputs: Mapping[str, Sequence[int | str]]) -> dict[str, int]:
    """Return the sizes that axes have before they are free, by symbol; a batch is drawn as one sample."""
    found = {}
    for name, one in axes.items():
        for axis, symbol in one.items():
            size = inputs[name][axis]
            if isinstance(size, int) and symbol != BATCH:
                found[symbol] = size
    return found


def specs_of(examples: Mapping[str, np.ndarray]) -> list[TensorSpec]:
    """Describe example inputs as a model that takes these sizes only."""
    return [TensorSpec(name, str(value.dtype), value.shape) for name, value in examples.items()]


def check_free(wanted: Sequence[Dynamic], inputs: Sequence[TensorSpec], framework: Framework) -> None:
    """Refuse an export that fixes what was to be free: the framework's model takes no other size.

    Raises:
        ConversionError: It does; the message is the framework's.
    """
    axes = axes_of(wanted, inputs)
    sizes = {spec.name: spec.shape for spec in inputs}
    for symbol, places in _by_symbol(axes).items():
        larger = dict(framework.examples)
        for name, axis in places.items():
            larger[name] = np.repeat(larger[name], 2, axis)
        first, axis = next(iter(places.items()))
        size = framework.examples[first].shape[axis]
        try:
            framework.run(larger)
        except Exception as error:  # the user's model raises what it likes
            said = f"with {2 * size} in place of {size} {framework.name} says: {first_line(error)}"
            raise _refused(symbol, places, said) from error
        fixed = [name for name, axis in places.items() if isinstance(sizes[name][axis], int)]
        if fixed:
            raise _refused(symbol, places, f"the export keeps {size} in {listed(fixed)}")


def _by_symbol(axes: Axes) -> dict[str, dict[str, int]]:
    """Return by symbol the inputs that have it, each with its axis."""
    found: dict[str, dict[str, int]] = {}
    for name, one in axes.items():
        for axis, symbol in one.items():
            found.setdefault(symbol, {})[name] = axis
    return found


def _input(name: str, axis: int, inputs: Sequence[TensorSpec]) -> TensorSpec:
    names = [spec.name for spec in inputs]
    if name not in names:
        raise unknown_input(name, names)
    spec = inputs[names.index(name)]
    if axis >= len(spec.shape):
        raise InputError(
            f"Input {spec} has no axis {axis}", hint=f"axes count from 0 to {len(spec.shape) - 1}", tensor=name
        )
    return spec


def _places(word: str, inputs: Sequence[TensorSpec]) -> list[tuple[str, int]]:
    """Return where inputs have a dimension of this name."""
    if word == BATCH:
        first = next((spec.shape[0] for spec in inputs if spec.shape), None)
        return [(spec.name, 0) for spec in inputs if spec.shape and spec.shape[0] == first]
    if word == "sequence":
        return [(spec.name, 1) for spec in inputs if len(spec.shape) == 2 and not str(spec.dtype).startswith("float")]
    images = [spec for spec in inputs if len(spec.shape) == _IMAGE_RANK]
    return [(spec.name, (1 if _is_channels_last(spec) else 2) + (word == "width")) for spec in images]


def _is_channels_last(spec: TensorSpec) -> bool:
    small = [isinstance(dim, int) and 1 <= dim <= _CHANNELS for dim in spec.shape]
    return small[3] and not small[1]


def follow(run: Run, inputs: Sequence[TensorSpec], axes: Axes) -> dict[str, dict[int, str]]:
    """Run a model with twice the size of each free dimension; return the axes of the outputs that follow.

    Args:
        run: Runs the model once; it takes other sizes than those of its inputs.
        inputs: Its inputs with the sizes that its file fixes.
        axes: The axes to make free.

    Returns:
        By output, its free axes with their symbols; the symbol is empty where the size is another.

    Raises:
        ConversionError: The model does not run with another size, or two samples at once give other numbers than each
            alone; the message says where.
    """
    calls = random_set_that_runs(inputs, run).calls
    base, other = calls[0], calls[1]
    answer = run(base)
    samples = next((value.shape[0] for value in base.values() if value.ndim), 0)
    found: dict[str, dict[int, str]] = {name: {} for name in answer}
    for symbol, places in _by_symbol(axes).items():
        size = base[next(iter(places))].shape[next(iter(places.values()))]
        second = {name: other[name] if name in places else value for name, value in base.items()}
        larger = {
            name: np.concatenate([value, second[name]], places[name]) if name in places else value
            for name, value in base.items()
        }
        try:
            got = run(larger)
        except ConversionError as error:
            raise _refused(symbol, places, f"with {2 * size} in place of {size}: {error.message}") from error
        for name, value in got.items():
            before = answer[name].shape
            if value.ndim != len(before):
                raise _refused(symbol, places, f"output `{name}` then has {value.ndim} axes, not {len(before)}")
            for axis, (old, new) in enumerate(zip(before, value.shape, strict=True)):
                if old != new and symbol != BATCH and axis == 0 and old == samples:
                    said = f"output `{name}` then has {new} rows in place of {old}, for as many samples"
                    raise _refused(symbol, places, said)
                if old != new:
                    found[name][axis] = symbol if (old, new) == (size, 2 * size) else ""
        if symbol == BATCH:
            _check_alone(answer, run(second), got, found, places)
    return found


def _check_alone(
    first: Feeds, second: Feeds, both: Feeds, found: Mapping[str, Mapping[int, str]], places: Mapping[str, int]
) -> None:
    """Refuse a batch in which samples change one another, or that an output does not have."""
    for name, value in both.items():
        axis = next((axis for axis, symbol in found[name].items() if symbol == BATCH), None)
        if axis is None:
            if not np.array_equal(value, first[name]) or not np.array_equal(value, second[name]):
                raise _refused(BATCH, places, f"output `{name}` has the same shape for twice as many samples")
            continue
        alone = np.concatenate([first[name], second[name]], axis)
        if decibels(noise([{name: alone}], [{name: value}])) < INTEGER_GOOD_SQNR_DB:
            raise _refused(BATCH, places, f"output `{name}` of two samples at once is another than that of each alone")


def _refused(symbol: str, places: Mapping[str, int], said: str) -> ConversionError:
    where = ", ".join(f"axis {axis} of `{name}`" for name, axis in places.items())
    return ConversionError(
        f"`{symbol}` ({where}) cannot become free: {said[:1].lower() + said[1:]}",
        hint="export the model with it free, or leave it out of --dynamic",
        found=dict(places),
    )
