"""Operators on single elements, softmax, and changes of type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer.kernels.declarations import BINARY, UNARY
from edge_infer_converters.writers.compiled.numbers import (
    activation_floats,
    activation_integers,
    added,
    clamping_table,
    fixed_point,
    hard_swish_table,
    joining_table,
    leaky_table,
    micro_table,
    rescaling_table,
    scale_of,
    softmax_table,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_BINARY = {
    "ADD": "add",
    "SUB": "subtract",
    "MUL": "multiply",
    "DIV": "divide",
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "PRELU": "prelu",
    "SQUARED_DIFFERENCE": "squared_difference",
}
_UNARY = {
    "LOGISTIC": "logistic",
    "TANH": "tanh",
    "EXP": "exp",
    "HARD_SWISH": "hard_swish",
    "LEAKY_RELU": "leaky_relu",
    "ABS": "abs",
    "NEG": "neg",
    "SQRT": "sqrt",
    "RSQRT": "rsqrt",
    "SQUARE": "square",
    "ELU": "elu",
    "LOG": "log",
}
_CLAMPS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
#: What int8 becomes: LiteRT computes these from a table of its own.
_TABLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LOGISTIC": lambda values: 1 / (1 + np.exp(-values)),
    "TANH": np.tanh,
}
_WIDE = (np.dtype(np.int16), np.dtype(np.int32))
_INT8_FLOATS = (np.dtype(np.int8), np.dtype(np.uint8))


def binary(operator: Operator, calls: Calls) -> None:
    """ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, PRELU, SQUARED_DIFFERENCE."""
    first, second = _given(operator, 0), _given(operator, 1)
    output = operator.outputs[0]
    values = {"first": calls.of(first), "second": calls.of(second), "output": calls.of(output)}
    strides = _broadcast(first, second, output)
    options: Any = operator.options
    fused = getattr(options, "fusedActivationFunction", 0)
    in_place = [calls.of(one) for one in (first, second) if one.shape == output.shape]
    if output.dtype == np.float32:
        operation = {"operation": BINARY.index(_BINARY[operator.code])}
        calls.add("binary_float", values, strides | operation, activation_floats(fused), in_place)
        return
    if output.dtype not in _INT8_FLOATS or operator.code not in ("ADD", "SUB", "MUL"):
        raise UnsupportedModel(f"{operator.code} of {output.dtype} is not supported")
    one, two, target = scale_of(first), scale_of(second), scale_of(output)
    integers = {"first_zero": one.zero, "second_zero": two.zero, "output_zero": target.zero}
    integers |= strides | activation_integers(fused, target)
    if operator.code == "MUL":
        ratio = float(one.step) * float(two.step) / float(target.step)
        if calls.rounding == "litert" and 2**-16 <= ratio < 2**8:  # XNNPACK takes no others
            calls.add("multiply_int8", values, integers, {"multiplier": float(np.float32(ratio))}, in_place)
            return
        multiplier, shift = fixed_point(ratio)
        calls.add("multiply_int8_fixed", values, integers | {"multiplier": multiplier, "shift": shift}, {}, in_place)
        return
    is_less = operator.code == "SUB"
    ratios = [float(scale.step) / float(target.step) for scale in (one, two)]
    if calls.rounding == "litert":
        if not all(2**-10 <= ratio < 2**8 for ratio in ratios):  # XNNPACK takes no others
            raise UnsupportedModel(f"{operator.code} of scales that are {max(ratios):.3g} times the output's")
        sums = added(one, two, target, subtract=is_less)
        bounds = {name: number for name, number in integers.items() if not name.endswith(("first_zero", "second_zero"))}
        calls.add("add_int8", values, bounds | sums, {}, in_place)
        return
    twice = 2 * max(float(one.step), float(two.step))
    for side, ratio in (
        ("first", float(one.step) / twice),
        ("second", float(two.step) / twice),
        ("output", twice / (2**20 * float(target.step))),
    ):
        integers[f"{side}_multiplier"], integers[f"{side}_shift"] = fixed_point(ratio)
    calls.add("add_int8_fixed", values, integers | {"subtract": int(is_less)}, {}, in_place)


def unary(operator: Operator, calls: Calls) -> None:
    """LOGISTIC, TANH, EXP and their like; RELU and its like."""
    given, output = _given(operator, 0), operator.outputs[0]
    source, target = calls.of(given), calls.of(output)
    if given.dtype in _INT8_FLOATS:
        _unary_int8(operator, calls, given, output)
        return
    if given.dtype != np.float32:
        raise UnsupportedModel(f"{operator.code} of {given.dtype} is not supported")
    options: Any = operator.options
    is_clamp = operator.code in _CLAMPS
    floats = {"alpha": float(getattr(options, "alpha", 0.0)), **activation_floats(_CLAMPS.get(operator.code, 0))}
    number = UNARY.index("clamp" if is_clamp else _UNARY[operator.code])
    ends = {"input": source, "output": target}
    calls.add("unary_float", ends, {"count": _count(output), "operation": number}, floats, [source])


def power(operator: Operator, calls: Calls) -> None:
    """POW of floats by a constant of .5, 1 or 2: a root, a copy, a square."""
    given, exponent, output = _given(operator, 0), _given(operator, 1), operator.outputs[0]
    found = None if exponent.data is None else {float(one) for one in exponent.data.reshape(-1)}
    if given.dtype != np.float32 or found not in ({0.5}, {1.0}, {2.0}) or given.shape != output.shape:
        raise UnsupportedModel("POW by another number than .5, 1 or 2 is not supported")
    if found == {1.0}:
        calls.share(output, given)
        return
    source, operation = calls.of(given), UNARY.index("square" if found == {2.0} else "sqrt")
    floats = {"alpha": 0.0, **activation_floats(0)}
    integers = {"count": _count(output), "operation": operation}
    calls.add("unary_float", {"input": source, "output": calls.of(output)}, integers, floats, [source])


def _unary_int8(operator: Operator, calls: Calls, given: Tensor, output: Tensor) -> None:
    source, target = scale_of(given), scale_of(output)
    if operator.code in _TABLES and calls.rounding == "tflm":
        table = micro_table(source, is_tanh=operator.code == "TANH")
    elif operator.code in _TABLES:
        table = table_of(_TABLES[operator.code], source, target)
    elif operator.code == "LEAKY_RELU":
        asked: Any = operator.options
        table = leaky_table(source, target, asked.alpha, calls.rounding)
    elif operator.code == "HARD_SWISH":
        table = hard_swish_table(source, target)
    elif operator.code in _CLAMPS:
        bounds = activation_integers(_CLAMPS[operator.code], target)
        table = clamping_table(source, target, bounds)
    else:
        raise UnsupportedModel(f"{operator.code} of {given.dtype} is not supported")
    _look_up(calls, given, output, table)


def softmax(operator: Operator, calls: Calls) -> None:
    """SOFTMAX and LOG_SOFTMAX over the last axis."""
    given, output = _given(operator, 0), operator.outputs[0]
    options: Any = operator.options
    columns = output.shape[-1]
    sizes = {"rows": _count(output) // columns, "columns": columns}
    values = {"input": calls.of(given), "output": calls.of(output)}
    if given.dtype == np.float32:
        is_log = operator.code == "LOG_SOFTMAX"
        floats = {"beta": 1.0 if is_log else options.beta}
        calls.add("softmax_float", values, sizes | {"is_log": int(is_log)}, floats, [values["input"]])
        return
    if operator.code == "LOG_SOFTMAX":
        raise UnsupportedModel(f"LOG_SOFTMAX of {given.dtype} is not supported")
    source, target = scale_of(given), scale_of(output)
    sizes["output_bytes"] = output.dtype.itemsize
    if calls.rounding == "tflm" or output.dtype == np.int16:
        values["table"] = calls.constant(softmax_table(source, options.beta))
        calls.add("softmax_int8_fixed", values, sizes)
        return
    steps = -source.step * np.float32(options.beta) * np.arange(255, -1, -1).astype(np.float32)
    values["table"] = calls.constant(np.exp(steps).astype(np.float32))
    calls.add("softmax_int8", values, sizes | {"output_zero": target.zero}, {"output_scale": float(target.step)})


def quantize(operator: Operator, calls: Calls) -> None:
    """QUANTIZE: floats to int8, or int8 in one scale to int8 in another."""
    given, output = _given(operator, 0), operator.outputs[0]
    target = scale_of(output)
    if given.dtype in _WIDE or (output.dtype in _WIDE and given.dtype != np.float32):
        _requantize(calls, given, output)
        return
    if output.dtype not in _INT8_FLOATS or given.dtype not in (*_INT8_FLOATS, np.dtype(np.float32)):
        raise UnsupportedModel(f"QUANTIZE of {given.dtype} to {output.dtype} is not supported")
    if given.dtype != np.float32:
        _look_up(calls, given, output, rescaling_table(scale_of(given), target, calls.rounding))
        return
    kernel = "quantize_float" if calls.rounding == "litert" else "quantize_float_fixed"
    integers = {"count": _count(output), "zero": target.zero, "low": -128, "high": 127}
    ends = {"input": calls.of(given), "output": calls.of(output)}
    calls.add(kernel, ends, integers, {"scale": float(target.step)})


def _requantize(calls: Calls, given: Tensor, output: Tensor) -> None:
    """Turn integers of one width and scale into those of another, as TFLite's Requantize does."""
    source, target = scale_of(given), scale_of(output)
    multiplier, shift = fixed_point(float(source.step) / float(target.step))
    limits = np.iinfo(np.int8 if output.dtype == np.uint8 else output.dtype)
    integers = {"count": _count(output), "input_bytes": given.dtype.itemsize, "output_bytes": output.dtype.itemsize}
    integers |= {"input_zero": source.zero, "output_zero": target.zero, "multiplier": multiplier, "shift": shift}
    ends = {"input": calls.of(given), "output": calls.of(output)}
    calls.add("requantize", ends, integers | {"low": int(limits.min), "high": int(limits.max)})


def dequantize(operator: Operator, calls: Calls) -> None:
    """DEQUANTIZE: int8 to floats."""
    given, output = _given(operator, 0), operator.outputs[0]
    if given.dtype not in _INT8_FLOATS:
        raise UnsupportedModel(f"DEQUANTIZE of {given.dtype} is not supported")
    source = scale_of(given)
    ends = {"input": calls.of(given), "output": calls.of(output)}
    floats = {"scale": float(source.step)}
    calls.add("dequantize_int8", ends, {"count": _count(output), "zero": source.zero}, floats)


def joined(calls: Calls, given: Tensor, output: Tensor) -> Value:
    """Return the memory of a quantized input of CONCATENATION in the scale of its output."""
    source, target = scale_of(given), scale_of(output)
    if source == target:
        return calls.of(given)
    if given.dtype != np.uint8:
        raise UnsupportedModel("CONCATENATION of int8 in different scales is not supported, by LiteRT neither")
    table = calls.constant(joining_table(source, target))
    value = calls.temporary(_count(given))
    calls.add("table_int8", {"input": calls.of(given), "output": value, "table": table}, {"count": _count(given)})
    return value


def _look_up(calls: Calls, given: Tensor, output: Tensor, table: np.ndarray) -> None:
    source = calls.of(given)
    values = {"input": source, "output": calls.of(output), "table": calls.constant(table)}
    calls.add("table_int8", values, {"count": _count(output)}, {}, [source])


def _given(operator: Operator, place: int) -> Tensor:
    found = operator.inputs[place] if place < len(operator.inputs) else None
    if found is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    return found


def _count(tensor: Tensor) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64))


def _broadcast(first: Tensor, second: Tensor, output: Tensor) -> dict[str, int]:
    """Return the sizes of the output and the strides of both operands, as four dimensions."""
    shape = list(output.shape)
    operands = [[1] * (len(shape) - one.rank) + list(one.shape) for one in (first, second)]
    dims = [list(one) for one in zip(shape, *operands, strict=True)]
    merged: list[list[int]] = []
    for dim in dims:
        if merged and _are_alike(merged[-1], dim):
            merged[-1] = [a * b for a, b in zip(merged[-1], dim, strict=True)]
        else:
            merged.append(dim)
    if len(merged) > 4:
        raise UnsupportedModel(f"operands of the shapes {first.shape} and {second.shape} are not supported")
    merged = [[1, 1, 1]] * (4 - len(merged)) + merged
    found = {f"size_{i}": dim[0] for i, dim in enumerate(merged)}
    for side, name in ((1, "first"), (2, "second")):
        stride = 1
        for i in reversed(range(4)):
            size = merged[i][side]
            found[f"{name}_{i}"] = stride if size > 1 else 0
            stride *= size
    return found


def _are_alike(one: list[int], other: list[int]) -> bool:
    """Tell whether each operand is whole in both dimensions, or repeated in both: they are one dimension then."""
    if one[0] == 1 or other[0] == 1:
        return True
    return all((a == one[0]) == (b == other[0]) for a, b in zip(one, other, strict=True))
