"""Bounds of every value of a model, for any inputs.

Interval arithmetic (Moore, Interval Analysis, 1966) over what is known before the model runs: constants, the ranges of
element types, sizes (an ArgMax lies below the size of its axis), functions whose results are bounded, indices (ONNX
refuses one that lies outside of its axis). Bounds of floats are widened for rounding.
"""

from __future__ import annotations

from math import ceil, floor, inf, isfinite, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer_converters.passes.graphs import attributes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx

    from edge_infer_converters.writers.tflite.specialise import Specialised

    Rule = Callable[["_Reading"], "Interval"]

# More than the rounding of any operator of float32 here.
_ROUNDING = 1e-5


class Interval(NamedTuple):
    """All numbers from `low` to `high`, both included: exact integers for integers, floats for floats."""

    low: float
    high: float

    def fits(self, dtype: np.dtype | type) -> bool:
        """Tell whether an integer type holds them all."""
        limits = np.iinfo(dtype)
        return limits.min <= self.low and self.high <= limits.max

    def joined(self, other: Interval) -> Interval:
        """Return the smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def within(self, other: Interval) -> Interval:
        """Return what both hold; this one where they share nothing."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high) if low <= high else self


#: What an int64 may be of which nothing is known.
ANYTHING = Interval(-(2**63), 2**63 - 1)


def intervals_of(model: Specialised) -> Mapping[str, Interval]:
    """Bound every value of a model; large constants of floats are left out."""
    found: dict[str, Interval] = {}
    for name, value in model.constants.items():
        if name in model.varying or (value.dtype.kind == "f" and value.size > 1):
            continue
        if value.size and value.dtype.kind in "biuf" and np.isfinite(value).all():
            found[name] = Interval(_number(value.min()), _number(value.max()))
    for node in model.nodes:  # an index that lies outside is an error in ONNX, whatever reads it besides
        for place, size in _indices(node, model):
            index = node.input[place]
            found[index] = found.get(index, _of_type(model.dtypes[index])).within(Interval(-size, size - 1))
    for node in model.nodes:
        for i, name in enumerate(node.output):
            if not name or model.dtypes[name].kind not in "biuf":
                continue
            reading = _Reading(node, model, found, i)
            everything = _of_type(model.dtypes[name])
            made = _RULES.get(node.op_type, lambda _, full=everything: full)(reading)
            if model.dtypes[name].kind in "iu" and not (everything.low <= made.low and made.high <= everything.high):
                made = everything  # it wraps around
            if name in found:
                made = made.within(found[name])
            found[name] = made
    return found


def _indices(node: onnx.NodeProto, model: Specialised) -> list[tuple[int, int]]:
    """Return which inputs are indices, and the fixed size of the axis that each runs along."""
    if node.op_type not in ("Gather", "GatherElements") or node.input[1] in model.constants:
        return []
    shape = model.signatures[node.input[0]]
    axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
    size = shape[axis] if shape else -1
    return [(1, size)] if size > 0 else []


class _Reading:
    """A node, and the bounds of what it reads."""

    def __init__(self, node: onnx.NodeProto, model: Specialised, known: Mapping[str, Interval], output: int) -> None:
        self.op_type = node.op_type
        self.output = output
        self.dtype = model.dtypes[node.output[output]]
        self._node = node
        self._model = model
        self._known = known
        self.attributes = attributes_of(node)

    @property
    def inputs(self) -> list[Interval]:
        """The bounds of every input that is given."""
        return [self.input(i) for i, name in enumerate(self._node.input) if name]

    def has_input(self, index: int) -> bool:
        """Tell whether an optional input is given."""
        return index < len(self._node.input) and bool(self._node.input[index])

    def input(self, index: int) -> Interval:
        """Return the bounds of an input."""
        name = self._node.input[index]
        return self._known.get(name, _of_type(self._model.dtypes[name]))

    def constant(self, index: int) -> np.ndarray | None:
        """Return the value of an input, or None where it is computed or left out."""
        name = self._node.input[index] if self.has_input(index) else ""
        return None if name in self._model.varying else self._model.constants.get(name)

    def size(self, index: int, axes: Sequence[int] | None) -> float:
        """Return how many elements an input has along some axes, or all; infinite where one follows the batch."""
        shape = self._model.signatures[self._node.input[index]]
        dims = shape if axes is None else [shape[axis] for axis in axes] if shape else []
        return inf if -1 in dims else prod(dims)

    def reduced(self) -> float:
        """Return how many elements a reduction takes together."""
        given: Any = self.attributes.get("axes")
        if self.has_input(1):
            stored = self.constant(1)
            if stored is None:
                return inf
            given = [int(axis) for axis in stored.reshape(-1)]
        if not given and self.attributes.get("noop_with_empty_axes", 0):
            return 1
        return self.size(0, given or None)


def _number(value: Any) -> float:
    """Return a Python number: an exact one of an integer."""
    number: float = value.item()
    return int(number) if isinstance(number, bool) else number


def _of_type(dtype: np.dtype) -> Interval:
    if dtype.kind == "b":
        return Interval(0, 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return Interval(int(limits.min), int(limits.max))
    return Interval(-inf, inf)


def _around(one: Interval, dtype: np.dtype) -> Interval:
    """Widen the bounds of a float for rounding; those of an integer are exact."""
    if dtype.kind != "f":
        return one
    low, high = (bound if bound == bound else inf for bound in one)  # inf - inf
    low = -inf if low == inf else low - abs(low) * _ROUNDING if isfinite(low) else low
    high = high + abs(high) * _ROUNDING if isfinite(high) else high
    return Interval(low, high)


def _times(one: float, other: float) -> float:
    return 0 if one == 0 or other == 0 else one * other  # zero times infinity is 0 here: the bound is never reached


def _product(one: Interval, other: Interval) -> Interval:
    corners = [_times(a, b) for a in one for b in other]
    return Interval(min(corners), max(corners))


def _largest(one: Interval) -> float:
    return max(abs(one.low), abs(one.high))


def _moved(reading: _Reading) -> Interval:
    return reading.input(0)


def _all_joined(reading: _Reading) -> Interval:
    first, *rest = reading.inputs
    for one in rest:
        first = first.joined(one)
    return first


def _added(reading: _Reading) -> Interval:
    one, other = reading.input(0), reading.input(1)
    return _around(Interval(one.low + other.low, one.high + other.high), reading.dtype)


def _subtracted(reading: _Reading) -> Interval:
    one, other = reading.input(0), reading.input(1)
    return _around(Interval(one.low - other.high, one.high - other.low), reading.dtype)


def _multiplied(reading: _Reading) -> Interval:
    return _around(_product(reading.input(0), reading.input(1)), reading.dtype)


def _divided(reading: _Reading) -> Interval:
    """Integers are cut towards zero; by a divisor that may be zero, they become no larger than they were."""
    one, other = reading.input(0), reading.input(1)
    if reading.dtype.kind == "f":
        if other.low <= 0 <= other.high:
            return _of_type(reading.dtype)
        return _around(_product(one, Interval(1 / other.high, 1 / other.low)), reading.dtype)
    if other.low > 0 or other.high < 0:
        corners = [_cut(int(a), int(b)) for a in one for b in other]
        return Interval(min(min(corners), 0), max(max(corners), 0))
    return Interval(-_largest(one), _largest(one))


def _cut(one: int, other: int) -> int:
    size = abs(one) // abs(other)
    return size if (one < 0) == (other < 0) else -size


def _rest(reading: _Reading) -> Interval:
    """The rest has the divisor's sign, with `fmod` the dividend's, and is smaller than the divisor."""
    one, other = reading.input(0), reading.input(1)
    if reading.dtype.kind == "f" or not isfinite(_largest(other)):
        return _of_type(reading.dtype)
    most = max(_largest(other) - 1, 0)
    sign = one if reading.attributes.get("fmod", 0) else other
    return Interval(0 if sign.low >= 0 else -most, 0 if sign.high <= 0 else most)


def _power(reading: _Reading) -> Interval:
    """Of integers to a constant exponent."""
    one, exponent = reading.input(0), reading.input(1)
    if reading.dtype.kind == "f" or exponent.low != exponent.high or exponent.low not in range(64):
        return _of_type(reading.dtype)
    count = int(exponent.low)
    corners = [int(one.low) ** count, int(one.high) ** count]
    return Interval(min(*corners, *((0,) if one.low <= 0 else ())), max(*corners, *((0,) if one.low <= 0 else ())))


def _absolute(reading: _Reading) -> Interval:
    one = reading.input(0)
    least = 0 if one.low <= 0 <= one.high else min(abs(one.low), abs(one.high))
    return Interval(least, _largest(one))


def _negated(reading: _Reading) -> Interval:
    one = reading.input(0)
    return Interval(-one.high, -one.low)


def _largest_of(reading: _Reading) -> Interval:
    return Interval(max(one.low for one in reading.inputs), max(one.high for one in reading.inputs))


def _least_of(reading: _Reading) -> Interval:
    return Interval(min(one.low for one in reading.inputs), min(one.high for one in reading.inputs))


def _clipped(reading: _Reading) -> Interval:
    low, high = reading.attributes.get("min", -inf), reading.attributes.get("max", inf)
    one = reading.input(0)
    least = reading.input(1) if reading.has_input(1) else Interval(low, low)
    most = reading.input(2) if reading.has_input(2) else Interval(high, high)
    return Interval(
        min(max(one.low, least.low), most.low) if isfinite(most.low) else max(one.low, least.low),
        min(max(one.high, least.high), most.high),
    )


def _cast(reading: _Reading) -> Interval:
    """To an integer, towards zero."""
    one = reading.input(0)
    if reading.dtype.kind == "b":
        return Interval(0, 1)
    if reading.dtype.kind == "f":
        return _around(Interval(float(one.low), float(one.high)), reading.dtype)
    if not (isfinite(one.low) and isfinite(one.high)):
        return _of_type(reading.dtype)
    return Interval(floor(one.low), ceil(one.high))


def _rounded(reading: _Reading) -> Interval:
    one = reading.input(0)
    return Interval(
        *(round_(bound) if isfinite(bound) else bound for round_, bound in ((floor, one.low), (ceil, one.high)))
    )


def _place(reading: _Reading) -> Interval:
    size = reading.size(0, [reading.attributes.get("axis", 0)])
    return Interval(0, size - 1) if isfinite(size) else _of_type(reading.dtype)


def _top(reading: _Reading) -> Interval:
    """The largest values, and their places."""
    if reading.output == 0:
        return reading.input(0)
    size = reading.size(0, [reading.attributes.get("axis", -1)])
    return Interval(0, size - 1) if isfinite(size) else _of_type(reading.dtype)


def _total(reading: _Reading) -> Interval:
    one, count = reading.input(0), reading.reduced()
    if reading.op_type == "ReduceL1":
        one = Interval(0, _largest(one))
    elif reading.op_type == "ReduceSumSquare":
        one = Interval(0, _times(_largest(one), _largest(one)))
    if not isfinite(count):
        return _of_type(reading.dtype)
    return _around(Interval(_times(one.low, count), _times(one.high, count)), reading.dtype)


def _running_total(reading: _Reading) -> Interval:
    axis = reading.constant(1)
    count = inf if axis is None else reading.size(0, [int(axis.reshape(()))])
    if not isfinite(count):
        return _of_type(reading.dtype)
    one = reading.input(0)
    return _around(
        Interval(min(_times(one.low, count), one.low, 0), max(_times(one.high, count), one.high, 0)), reading.dtype
    )


def _padded(reading: _Reading) -> Interval:
    if reading.attributes.get("mode", b"constant") != b"constant":
        return reading.input(0)
    fill = reading.input(2) if reading.has_input(2) else Interval(0, 0)
    return reading.input(0).joined(fill)


def _with_zero(reading: _Reading) -> Interval:
    return reading.input(0).joined(Interval(0, 0))


def _not_below_zero(reading: _Reading) -> Interval:
    one = reading.input(0)
    return Interval(max(one.low, 0), max(one.high, 0))


def _chosen(reading: _Reading) -> Interval:
    return reading.input(1).joined(reading.input(2))


def _scattered(reading: _Reading) -> Interval:
    if reading.attributes.get("reduction", b"none") != b"none":
        return _of_type(reading.dtype)
    return reading.input(0).joined(reading.input(2))


def _from(low: float, high: float) -> Rule:
    return lambda _: Interval(low, high)


_MOVING = (
    "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool",
    "ReduceMax", "ReduceMean", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
)  # fmt: skip
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVING, _moved),
    **dict.fromkeys(("ArgMax", "ArgMin"), _place),
    **dict.fromkeys(("Ceil", "Floor", "Round"), _rounded),
    **dict.fromkeys(("Cos", "Erf", "Sin", "Softsign", "Tanh"), _from(-1.0, 1.0)),
    **dict.fromkeys(("HardSigmoid", "Hardmax", "Sigmoid", "Softmax"), _from(0.0, 1.0 + _ROUNDING)),
    **dict.fromkeys(("ReduceL1", "ReduceSum", "ReduceSumSquare"), _total),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scattered),
    "Abs": _absolute,
    "Add": _added,
    "Cast": _cast,
    "Clip": _clipped,
    "Concat": _all_joined,
    "CumSum": _running_total,
    "Div": _divided,
    "Max": _largest_of,
    "Min": _least_of,
    "Mod": _rest,
    "Mul": _multiplied,
    "Neg": _negated,
    "OneHot": lambda reading: reading.input(2),
    "Pad": _padded,
    "Pow": _power,
    "Relu": _not_below_zero,
    "Sign": _from(-1, 1),
    "Sub": _subtracted,
    "TopK": _top,
    "Trilu": _with_zero,
    "Where": _chosen,
}
