"""From the calls of a program to those of a microcontroller: constants as its kernels read them, and places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.kernels.declarations import scratch_bytes
from edge_infer_converters.writers.compiled.calls import Value
from edge_infer_converters.writers.microcontroller import memory
from edge_infer_converters.writers.microcontroller.kernel_source import c_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.compiled.calls import Call, Calls

_OVER = ("convolution_int8", "depthwise_int8", "convolution_float", "depthwise_float", "average_pool", "max_pool")
#: An element is written where it, or one that came later, was read.
_ELEMENTWISE = ("flip_sign", "table_int8", "unary_float", "quantize_float", "requantize", "mean", "softmax")
_FLOAT_WEIGHTS = ("convolution_float", "depthwise_float", "lstm_float")
_FLOAT_BIAS = (*_FLOAT_WEIGHTS, "convolution_hybrid")
#: Kernels whose scratch holds doubles.
_DOUBLES = ("trees", "pair_votes")
#: To the right, of a sum that is scaled in 32 bits.
_MOST_SHIFT = 30
_FLOAT_INPUTS = (
    *("binary_float", "unary_float", "softmax_float", "mean_float", "convolution_float", "depthwise_float"),
    *("average_pool_float", "max_pool_float", "quantize_float", "quantize_float_fixed", "quantize_rows"),
    *("resize_bilinear_float", "trees", "arg_max", "normalize_rows", "distances", "pair_votes", "lstm_float"),
)


class Array(NamedTuple):
    """A constant.

    Attributes:
        name: Its name in C, without the prefix.
        kind: The type of its elements in C.
        data: Its elements.
    """

    name: str
    kind: str
    data: np.ndarray


class Place(NamedTuple):
    """Where a tensor of a call lies: in the arena, or in a constant.

    Attributes:
        offset: Bytes from the start of either.
        array: The constant; None for the arena.
    """

    offset: int
    array: Array | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A call of a kernel.

    Attributes:
        call: The call of the program.
        kernel: The name of its kernel in C.
        tensors: Where each of its tensors lies; None for an absent one.
        used: The bytes of the arena in use while it runs.
    """

    call: Call
    kernel: str
    tensors: dict[str, Place | None]
    used: int


class State(NamedTuple):
    """A variable: where it lies, its size, and its first value, None for zeros."""

    offset: int
    nbytes: int
    first: Array | None


@dataclass(slots=True)
class Layout:
    """A model as a microcontroller computes it.

    Attributes:
        layers: The calls in their order.
        arrays: The constants.
        arena_bytes: The memory of all tensors.
        inputs: Where the inputs lie.
        outputs: Where the outputs lie.
        state: The variables.
        spans: Of each value its name, the calls that use it first and last, its place and its size.
    """

    layers: list[Layer] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    arena_bytes: int = 0
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    state: list[State] = field(default_factory=list)
    spans: list[tuple[str, int, int, int, int]] = field(default_factory=list)


def lay_out(calls: Calls, inputs: Sequence[Value], outputs: Sequence[Value], way: str) -> Layout:
    """Place the values of a program, and write its constants as the kernels of `source/` read them.

    Args:
        calls: The program, settled.
        inputs: The memory of its inputs.
        outputs: That of its outputs.
        way: `size` or `speed`.
    """
    made = Layout()
    scratch: dict[int, Value] = {}
    values: dict[int, Value] = {}
    variables = [one.value.root for one in calls.variables.values()]
    for one in (*inputs, *outputs, *variables):
        values[id(one.root)] = one.root
    for place, call in enumerate(calls.calls):
        for name, part in call.tensors.items():
            if part is None or part.value.root.data is not None:
                continue
            if name == "scratch":
                size = _scratch(call, way)
                if size:
                    scratch[place] = Value("scratch", size, None, place, place)
                    values[id(scratch[place])] = scratch[place]
            else:
                values[id(part.value.root)] = part.value.root
    kept = {id(one) for one in variables}
    over = [one for place, call in enumerate(calls.calls) for one in _over(call, place, way, kept)]
    alignment = 8 if any(call.kernel in _DOUBLES for call in calls.calls) else 4
    plan = memory.place([*values.values()], over, alignment)
    made.arena_bytes = -(-plan.nbytes // 8) * 8
    last = max(len(calls.calls) - 1, 0)
    made.spans = [
        (one.name, max(one.first, 0), min(one.last, last), plan.places[id(one)], one.nbytes) for one in values.values()
    ]
    arrays: dict[tuple[str, bytes], Array] = {}

    def constant(name: str, kind: str, data: np.ndarray) -> Array:
        key = (kind, data.tobytes())
        if key not in arrays:
            arrays[key] = Array(name, kind, data)
        return arrays[key]

    for place, call in enumerate(calls.calls):
        constants = _constants(call)
        tensors: dict[str, Place | None] = {}
        for name, part in call.tensors.items():
            root = None if part is None else part.value.root
            if name == "scratch":
                found = scratch.get(place)
                tensors[name] = None if found is None else Place(plan.places[id(found)])
            elif part is None or root is None:
                tensors[name] = None
            elif root.data is not None:
                tensors[name] = Place(part.offset, constant(f"{name}_{place}", *constants[name]))
            else:
                tensors[name] = Place(plan.places[id(root)] + part.offset)
        used = max((at + size for _, one, to, at, size in made.spans if one <= place <= to), default=0)
        made.layers.append(Layer(call, c_name(call.kernel, call.integers, way), tensors, used))
    made.inputs = [plan.places[id(one.root)] for one in inputs]
    made.outputs = [plan.places[id(one.root)] for one in outputs]
    for number, (value, first) in enumerate(calls.variables.values()):
        start = None
        if first is not None and first.data is not None:
            start = constant(f"state_{number}", "uint8_t", np.frombuffer(first.data, np.uint8))
        made.state.append(State(plan.places[id(value.root)], value.nbytes, start))
    made.arrays = [*arrays.values()]
    return made


def _scratch(call: Call, way: str) -> int:
    """Return the scratch memory of a call: columns or rows of int16 where convolutions are computed for speed."""
    if call.kernel.startswith(("lstm", *_DOUBLES)):
        return scratch_bytes(call.kernel, call.integers)
    if way == "speed" and c_name(call.kernel, call.integers, way) == "convolution_int8":
        taps = call.integers["kernel_height"] * call.integers["kernel_width"] * call.integers["input_channels"]
        places = call.integers["output_height"] * call.integers["output_width"]
        return min(places, 2) * 2 * taps
    if c_name(call.kernel, call.integers, way) == "depthwise_3x3_int8":
        return 4 * 2 * (call.integers["stride_width"] * call.integers["output_width"] + 3)
    return 0


def _over(call: Call, place: int, way: str, kept: set[int]) -> list[memory.Over]:
    """Return the input that the output of a call may lie over."""
    if not call.kernel.startswith((*_OVER, *_ELEMENTWISE)):
        return []
    given, made = call.tensors["input"], call.tensors["output"]
    if given is None or made is None or given.offset or made.offset:
        return []
    source, target = given.value.root, made.value.root
    size = 4 if call.kernel.endswith("_float") else 1
    if source.data is not None or source is target or id(source) in kept or id(target) in kept:
        return []
    if source.last != place or target.first != place:
        return []
    if call.kernel.startswith(_ELEMENTWISE):
        return [memory.Over(target, source, 0)] if target.nbytes <= source.nbytes else []
    if _elements(call, "output") * size != target.nbytes:
        return []
    name = c_name(call.kernel, call.integers, way)
    if name == "depthwise_3x3_int8":
        below = memory.distance_of_rows(call.integers)
        is_over = below < target.nbytes
        return [memory.Over(target, source, below, call.integers["input_channels"])] if is_over else []
    in_columns = name == "convolution_int8" and way == "speed"
    below = memory.distance(call.kernel, call.integers, size, in_columns=in_columns)
    return [memory.Over(target, source, below)] if below < target.nbytes else []


def _elements(call: Call, side: str) -> int:
    names = ("batch", f"{side}_height", f"{side}_width", f"{side}_channels")
    return int(np.prod([call.integers[name] for name in names], dtype=np.int64))


def _constants(call: Call) -> dict[str, tuple[str, np.ndarray]]:
    """Return the constants of a call by name: their types in C and their elements."""
    found = {}
    for name, part in call.tensors.items():
        if name != "scratch" and part is not None and part.value.root.data is not None:
            found[name] = _constant(call, name, part.value.root.data)
    if call.kernel in ("convolution_int8_fixed", "depthwise_int8_fixed") and "weights" in found:
        _settle_empty(call, found)
    return found


def _constant(call: Call, name: str, data: bytes) -> tuple[str, np.ndarray]:
    """Return the type of a constant in C and its elements, in the order that the kernels of `source/` read."""
    kernel, integers = call.kernel, call.integers
    is_window = kernel.startswith(("convolution", "depthwise"))
    if is_window and name == "weights":
        return _weights(kernel, integers, data)
    kind = element_type(kernel, name, integers)
    array: np.ndarray = np.frombuffer(data, {"float": "<f4"}.get(kind, kind.removesuffix("_t")))
    if is_window and name in ("bias", "multipliers", "shifts"):
        array = array[: integers["output_channels"]]
        if name == "shifts":
            return "int8_t", array.astype(np.int8)
    return kind, array


def _settle_empty(call: Call, constants: dict[str, tuple[str, np.ndarray]]) -> None:
    """Give a channel without weights, whose result never changes, a bias and a multiplier that any rounding takes."""
    bias, multipliers, shifts = (constants[name][1].copy() for name in ("bias", "multipliers", "shifts"))
    axis = 0 if call.kernel.startswith("depthwise") else 1
    is_empty = (constants["weights"][1] == call.integers["weights_zero"]).all(axis)
    is_odd = (np.abs(bias.astype(np.int64)) >= 2**30) | (shifts > -1) | (shifts < -_MOST_SHIFT)
    for i in np.flatnonzero(is_empty & is_odd):
        value = _scaled(int(bias[i]), int(multipliers[i]), int(shifts[i]), is_once=bool(call.integers.get("single")))
        bias[i] = 4 * max(-1024, min(value, 1024))  # the bounds of an output are nearer
        multipliers[i], shifts[i] = 2**30, -1
    for name, data in (("bias", bias), ("multipliers", multipliers), ("shifts", shifts)):
        constants[name] = (constants[name][0], data)


def _scaled(value: int, multiplier: int, shift: int, *, is_once: bool) -> int:
    """Return what `scaled_once` and `scaled_twice` of `source/arithmetic.c` do."""
    if is_once:
        return (value * multiplier + (1 << (30 - shift))) >> (31 - shift)
    left, right = max(shift, 0), max(-shift, 0)
    high = (((((value << left) + 2**31) % 2**32 - 2**31) * multiplier) + (1 << 30)) >> 31
    return (high >> right) + ((high & ((1 << right) - 1)) > (((1 << right) - 1) >> 1) + (high < 0))


def _weights(kernel: str, integers: dict[str, int], data: bytes) -> tuple[str, np.ndarray]:
    """Undo the groups of eight channels that large processors want: see `kernels/declarations.py`."""
    outputs = integers["output_channels"]
    taps = integers["kernel_height"] * integers["kernel_width"]
    if kernel == "depthwise_float":
        return "float", np.frombuffer(data, "<f4")
    if kernel.startswith("depthwise"):
        groups = np.frombuffer(data, np.int8).reshape(-1, (taps + 1) // 2, 8, 2)
        rows = groups.transpose(0, 2, 1, 3).reshape(len(groups) * 8, -1)[:outputs, :taps]
        return "int8_t", np.ascontiguousarray(rows.T)
    taps *= integers["input_channels"]
    if kernel == "convolution_float":
        filters = np.frombuffer(data, "<f4").reshape(-1, taps, 8).transpose(0, 2, 1).reshape(-1, taps)[:outputs]
        return "float", np.ascontiguousarray(filters)
    groups = np.frombuffer(data, np.int8).reshape(-1, (taps + 1) // 2, 8, 2)
    rows = groups.transpose(0, 2, 1, 3).reshape(len(groups) * 8, -1)[:outputs, :taps]
    return "int8_t", np.ascontiguousarray(rows)


def has_small_sums(layer: Layer) -> bool:
    """Return whether the sums of an int8 window stay below 2^30, and all are shifted to the right by 1 to 30 bits."""
    arrays = {name: None if one is None else one.array for name, one in layer.tensors.items()}
    weights, bias, shifts = (arrays.get(name) for name in ("weights", "bias", "shifts"))
    if weights is None or bias is None or shifts is None or not layer.call.kernel.endswith("_fixed"):
        return False
    zero = layer.call.integers["input_zero"]
    filters = np.abs(weights.data.astype(np.int64) - layer.call.integers["weights_zero"])
    sums = filters.sum(0 if layer.call.kernel.startswith("depthwise") else 1) * max(128 + zero, 127 - zero)
    is_small = (np.abs(bias.data.astype(np.int64)) + sums < 2**30).all()
    return bool(is_small and (shifts.data <= -1).all() and (shifts.data >= -_MOST_SHIFT).all())


def element_type(kernel: str, name: str, integers: dict[str, int] | None = None) -> str:
    """Return the type of the elements of a tensor in C."""
    if name in ("weights", "recurrent"):
        return "float" if kernel in _FLOAT_WEIGHTS else "int8_t"
    if name == "bias":
        return "float" if kernel in _FLOAT_BIAS else "int32_t"
    if name == "multipliers":
        return "int32_t" if kernel.endswith("_fixed") else "float"
    if name in ("shifts", "recurrent_bias", "roots", "positions", "nodes", "votes"):
        return "int32_t"
    if name in ("base", "points", "sigmoids", "parameters"):
        return "float"
    if name == "table":
        return {"table_int8": "int8_t", "softmax_int8": "float"}.get(kernel, "int32_t")
    if name == "times":
        return "int8_t" if (integers or {}).get("state_bytes", 1) == 1 else "int16_t"
    if name == "features":
        return "int8_t"
    if kernel in _FLOAT_INPUTS:
        return "float"
    if kernel in ("copy", "gather", "requantize", "flip_sign", "resize_nearest"):
        return "uint8_t"
    return "int8_t"
