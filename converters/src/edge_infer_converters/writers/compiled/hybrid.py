"""Layers whose weights alone are integers: their values are quantized while the model runs, then multiplied as int8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer.kernels.declarations import BINARY
from edge_infer_converters.writers.compiled.calls import Value
from edge_infer_converters.writers.compiled.numbers import activation_floats

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls
    from edge_infer_converters.writers.tflite.graph import Operator

#: How rows are quantized, as the kernel `quantize_rows` numbers it.
_LITERT, _SYMMETRIC, _ASYMMETRIC = range(3)


def convolution(
    operator: Operator, calls: Calls, filters: np.ndarray, window: dict[str, int], *, is_connected: bool = False
) -> None:
    """Multiply quantized values by filters of int8; each sample of the batch has a scale of its own.

    Args:
        operator: CONV_2D, FULLY_CONNECTED, or DEPTHWISE_CONV_2D as a dense one.
        calls: Where the calls are added.
        filters: The weights in the layout of the kernels.
        window: The sizes.
        is_connected: Whether it is FULLY_CONNECTED, whose values TFLite quantizes without a zero point.
    """
    outputs = window["output_channels"]
    if calls.rounding == "litert" and _is_pointwise(window):  # XNNPACK takes it as FULLY_CONNECTED
        rows = window["batch"] * window["output_height"] * window["output_width"]
        sides = ("input_height", "input_width", "output_height", "output_width")
        window = window | dict.fromkeys(sides, 1) | {"batch": rows}
    kind = _kind(operator, calls, is_connected=is_connected)
    values, parameters = _quantized(operator, calls, window, kind, 1)
    tensors = {
        "input": values,
        "output": calls.of(operator.outputs[0]),
        "weights": calls.constant(filters),
        "bias": calls.constant(_padded(_bias(operator, outputs))),
        "multipliers": calls.constant(_padded(_scales(operator, outputs))),
        "parameters": parameters,
    }
    options: Any = operator.options
    calls.add("convolution_hybrid", tensors, window, activation_floats(options.fusedActivationFunction))


def depthwise(operator: Operator, calls: Calls, taps: np.ndarray, window: dict[str, int]) -> None:
    """Multiply quantized values by one filter for each channel.

    The integers are held by floats, whose sums of whole numbers below 2^24 are exact; then they are scaled.
    """
    if len(taps) * 255 * 127 >= 2**24:
        raise UnsupportedModel(f"DEPTHWISE_CONV_2D of {len(taps)} weights of int8 beside floats is not supported")
    kind = _LITERT if calls.rounding == "litert" else _ASYMMETRIC
    values, parameters = _quantized(operator, calls, window, kind, 4)
    channels, output = window["output_channels"], operator.outputs[0]
    target = calls.of(output)
    bounds = activation_floats(0)
    tensors = {"input": values, "output": target, "weights": calls.constant(taps.astype(np.float32))}
    tensors["bias"] = calls.constant(np.zeros(channels, np.float32))
    calls.add("depthwise_float", tensors, window, bounds)
    sizes = {"size_0": 1, "size_1": window["batch"], "size_3": channels}
    sizes["size_2"] = window["output_height"] * window["output_width"]
    dense = {"first_0": 0, "first_1": sizes["size_2"] * channels, "first_2": channels, "first_3": 1}
    each_channel = {"second_0": 0, "second_1": 0, "second_2": 0, "second_3": 1}
    each_sample = each_channel | {"second_1": 2, "second_3": 0}  # a scale, then a zero point
    options: Any = operator.options
    steps = (
        ("multiply", calls.constant(_scales(operator, channels)), each_channel, bounds),
        ("multiply", parameters, each_sample, bounds),
        ("add", calls.constant(_bias(operator, channels)), each_channel,
         activation_floats(options.fusedActivationFunction)),
    )  # fmt: skip
    for name, factor, strides, limits in steps:
        operands = {"first": target, "second": factor, "output": target}
        operation = {"operation": BINARY.index(name)}
        calls.add("binary_float", operands, sizes | dense | strides | operation, limits)


def _is_pointwise(window: dict[str, int]) -> bool:
    ones = ("kernel_height", "kernel_width", "stride_height", "stride_width")
    is_one_filter = window["input_channels"] == window["output_channels"] == 1  # a depthwise one for XNNPACK
    return all(window[name] == 1 for name in ones) and not is_one_filter


def _kind(operator: Operator, calls: Calls, *, is_connected: bool) -> int:
    """Return how TFLite or XNNPACK quantize the values of a dense operator."""
    if calls.rounding == "litert":
        return _LITERT
    weights, asked = operator.inputs[1], cast("Any", operator.options)
    is_whole = weights is not None and weights.quantization is not None and len(weights.quantization.scales) == 1
    if is_connected:
        is_whole = not asked.asymmetricQuantizeInputs
    return _SYMMETRIC if is_whole else _ASYMMETRIC


def _quantized(
    operator: Operator, calls: Calls, window: dict[str, int], kind: int, output_bytes: int
) -> tuple[Value, Value]:
    """Quantize the input while the model runs; return its integers, and the scale and the zero point of each sample."""
    given = operator.inputs[0]
    if given is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    rows = window["batch"]
    count = int(np.prod(given.shape, dtype=np.int64))
    values, parameters = Value("quantized", count * output_bytes), Value("scales", rows * 8)
    tensors = {"input": calls.of(given), "output": values, "parameters": parameters}
    calls.add(
        "quantize_rows", tensors, {"rows": rows, "columns": count // rows, "kind": kind, "output_bytes": output_bytes}
    )
    return values, parameters


def _scales(operator: Operator, outputs: int) -> np.ndarray:
    weights = operator.inputs[1]
    if weights is None or weights.quantization is None or weights.quantization.zero_point:
        raise UnsupportedModel(f"{operator.code} has weights of int8 without a scale, or with a zero point")
    return np.broadcast_to(np.asarray(weights.quantization.scales, np.float32), outputs)


def _bias(operator: Operator, outputs: int) -> np.ndarray:
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    return np.zeros(outputs, np.float32) if bias is None or bias.data is None else bias.data.astype(np.float32)


def _padded(values: np.ndarray) -> np.ndarray:
    return np.pad(values, (0, -len(values) % 8))
