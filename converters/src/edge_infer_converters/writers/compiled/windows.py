"""Convolutions, fully connected layers, pools and means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer.kernels.declarations import BINARY
from edge_infer_converters.writers.compiled import hybrid
from edge_infer_converters.writers.compiled.numbers import (
    activation_floats,
    activation_integers,
    fixed_point,
    scale_of,
    signed,
)

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_SAME = 0
_CONVERT = "convert with --precision int8 --calibration DATA, or fp32"
#: A depthwise convolution that gives several channels of each is computed as a dense one, up to so many weights.
_MAX_DENSE = 2**18


def convolution(operator: Operator, calls: Calls) -> None:
    """CONV_2D."""
    given, weights, bias = operands(operator)
    window = _window(operator, given, weights.shape[1:3])
    matrix = signed(weights).reshape(weights.shape[0], -1)
    if matrix.shape[1] != window["kernel_height"] * window["kernel_width"] * window["input_channels"]:
        raise UnsupportedModel(
            f"CONV_2D of {given.shape[-1]} channels by filters of {weights.shape[-1]} is not supported"
        )
    if is_hybrid(given, weights):
        hybrid.convolution(operator, calls, _filters(matrix), window)
        return
    _convolve(operator, calls, matrix, bias, window)


def depthwise(operator: Operator, calls: Calls) -> None:
    """DEPTHWISE_CONV_2D."""
    given, weights, bias = operands(operator)
    window = _window(operator, given, weights.shape[1:3])
    channels, outputs = window["input_channels"], window["output_channels"]
    taps = signed(weights).reshape(-1, outputs)
    if channels == outputs:
        if is_hybrid(given, weights):
            hybrid.depthwise(operator, calls, taps, window)
        else:
            _convolve_depthwise(operator, calls, taps, bias, window)
        return
    if len(taps) * channels * outputs > _MAX_DENSE:
        raise UnsupportedModel(f"DEPTHWISE_CONV_2D of {channels} to {outputs} channels is not supported")
    dense = np.full((outputs, len(taps), channels), _zero_of(weights), taps.dtype)
    for output in range(outputs):
        dense[output, :, output * channels // outputs] = taps[:, output]
    matrix = dense.reshape(outputs, -1)
    if is_hybrid(given, weights):
        hybrid.convolution(operator, calls, _filters(matrix), window)
    else:
        _convolve(operator, calls, matrix, bias, window)


def transposed(operator: Operator, calls: Calls) -> None:
    """TRANSPOSE_CONV: a convolution with the filters turned over an image with zeros between its places."""
    weights, given = operator.inputs[1:3]
    if weights is None or given is None:
        raise UnsupportedModel("TRANSPOSE_CONV lacks an input")
    bias = operator.inputs[3] if len(operator.inputs) > 3 else None
    _check_operands(operator, given, weights, bias)
    output, asked = operator.outputs[0], cast("Any", operator.options)
    (batch, height, width, channels), strides = given.shape, (asked.strideH, asked.strideW)
    stuffed = [(size - 1) * stride + 1 for size, stride in zip((height, width), strides, strict=True)]
    zero = scale_of(given).zero if given.dtype.itemsize == 1 else 0
    value = calls.of(given)
    if strides != (1, 1):
        size = given.dtype.itemsize
        value = calls.temporary(batch * stuffed[0] * stuffed[1] * channels * size)
        calls.add("fill", {"output": value}, {"count": value.nbytes // size, "value": zero, "bytes": size})
        row = stuffed[1] * channels * size
        integers = {"block": channels * size, "size_0": 1, "input_0": 0, "output_0": 0, "size_1": 1, "input_1": 0}
        integers |= {"output_1": 0, "size_2": batch, "input_2": height * width * channels * size}
        integers |= {"output_2": stuffed[0] * row, "size_3": height, "input_3": width * channels * size}
        integers |= {"output_3": strides[0] * row, "size_4": width, "input_4": channels * size}
        integers["output_4"] = strides[1] * channels * size
        calls.add("copy", {"input": calls.of(given), "output": value}, integers)
    if is_hybrid(given, weights):
        raise UnsupportedModel("TRANSPOSE_CONV has weights of int8 and values of float32", hint=_CONVERT)
    turned = signed(weights)[:, ::-1, ::-1, :]
    window = {"batch": batch, "input_channels": channels, "output_channels": weights.shape[0]}
    for axis, (side, pad) in enumerate((("height", "pad_top"), ("width", "pad_left"))):
        kernel, made, stride = weights.shape[1 + axis], output.shape[1 + axis], strides[axis]
        steps = -(-made // stride) if asked.padding == _SAME else -(-(made - kernel + 1) // stride)
        missing = max((steps - 1) * stride + kernel - made, 0)
        window |= {f"input_{side}": stuffed[axis], f"output_{side}": made, f"kernel_{side}": kernel}
        window |= {f"stride_{side}": 1, f"dilation_{side}": 1, pad: kernel - 1 - missing // 2}
    matrix = np.ascontiguousarray(turned).reshape(weights.shape[0], -1)
    _convolve(operator, calls, matrix, bias, window, source=(given, value))


def fully_connected(operator: Operator, calls: Calls) -> None:
    """FULLY_CONNECTED: a convolution of 1x1 over as many places as there are rows."""
    given, weights, bias = operands(operator)
    matrix = signed(weights)
    outputs, inputs = matrix.shape
    rows = int(np.prod(given.shape, dtype=np.int64)) // inputs
    window = rows_window(rows, inputs, outputs)
    if is_hybrid(given, weights):  # each row has a scale of its own
        window |= {"batch": rows, "input_height": 1, "output_height": 1}
        hybrid.convolution(operator, calls, _filters(matrix), window, is_connected=True)
        return
    _convolve(operator, calls, matrix, bias, window, is_connected=True)


def rows_window(rows: int, inputs: int, outputs: int) -> dict[str, int]:
    """Return the sizes of a convolution of 1x1 over so many places: each row of numbers becomes another one."""
    ones = ("batch", "input_width", "output_width", "kernel_height", "kernel_width")
    strides = ("stride_height", "stride_width", "dilation_height", "dilation_width")
    window = dict.fromkeys((*ones, *strides), 1) | {"pad_top": 0, "pad_left": 0}
    return window | {"input_height": rows, "output_height": rows, "input_channels": inputs, "output_channels": outputs}


def average_pool(operator: Operator, calls: Calls) -> None:
    """AVERAGE_POOL_2D."""
    _pool(operator, calls, "average_pool")


def max_pool(operator: Operator, calls: Calls) -> None:
    """MAX_POOL_2D."""
    _pool(operator, calls, "max_pool")


def mean(operator: Operator, calls: Calls) -> None:
    """MEAN over axes that lie beside each other."""
    given, sizes = _reduction(operator)
    reduced = sizes["reduced"]
    tensors = {"input": calls.of(given), "output": calls.of(operator.outputs[0])}
    if given.dtype == np.float32:
        calls.add("mean_float", tensors, sizes)
        return
    source, target = scale_of(given), scale_of(operator.outputs[0])
    zeros = {"input_zero": source.zero, "output_zero": target.zero}
    if calls.rounding == "litert":
        multiplier = float(np.float32(source.step / target.step) / np.float32(reduced))
        calls.add("mean_int8", tensors, sizes | zeros, {"multiplier": multiplier})
        return
    whole, shift = fixed_point(float(source.step) / float(target.step))
    # TFLite folds the count into the multiplier (reduce.cc, as integer_ops/mean.h has it).
    extra = min(63 - _leading_zeros(reduced), 32, 31 + shift)
    calls.add(
        "mean_int8_fixed",
        tensors,
        sizes | zeros | {"multiplier": (whole << extra) // reduced, "shift": shift - extra},
    )


def total(operator: Operator, calls: Calls) -> None:
    """SUM of floats over axes that lie beside each other: their mean, so many times."""
    given, sizes = _reduction(operator)
    if given.dtype != np.float32:
        raise UnsupportedModel(f"SUM of {given.dtype} is not supported")
    output = calls.of(operator.outputs[0])
    calls.add("mean_float", {"input": calls.of(given), "output": output}, sizes)
    loops = {f"{side}_{i}": 1 if side == "size" else 0 for side in ("size", "first", "second") for i in range(4)}
    loops |= {"size_3": sizes["outer"] * sizes["inner"], "first_3": 1, "operation": BINARY.index("multiply")}
    count = calls.constant(np.array([sizes["reduced"]], np.float32))
    calls.add("binary_float", {"first": output, "second": count, "output": output}, loops, activation_floats(0))


def highest(operator: Operator, calls: Calls) -> None:
    """REDUCE_MAX over axes that lie beside each other: a pool as high as they are."""
    given, sizes = _reduction(operator)
    output = operator.outputs[0]
    tensors = {"input": calls.of(given), "output": calls.of(output)}
    ones = ("input_width", "output_width", "output_height", "kernel_width", "stride_height", "stride_width")
    window = dict.fromkeys((*ones, "dilation_height", "dilation_width"), 1) | {"pad_top": 0, "pad_left": 0}
    window |= {"batch": sizes["outer"], "input_height": sizes["reduced"], "kernel_height": sizes["reduced"]}
    window |= {"input_channels": sizes["inner"], "output_channels": sizes["inner"]}
    if given.dtype == np.float32:
        calls.add("max_pool_float", tensors, window, activation_floats(0))
        return
    if given.dtype.itemsize != 1 or scale_of(given) != scale_of(output):
        raise UnsupportedModel(f"REDUCE_MAX of {given.dtype}, or to another scale, is not supported")
    calls.add("max_pool_int8", tensors, window | {"low": -128, "high": 127})


def _reduction(operator: Operator) -> tuple[Tensor, dict[str, int]]:
    """Return what is reduced, and its sizes before, along and behind the axes."""
    given, places = operator.inputs[0], operator.inputs[1]
    if given is None or places is None or places.data is None:
        raise UnsupportedModel(f"{operator.code} needs constant axes")
    axes = sorted({int(axis) % given.rank for axis in places.data.reshape(-1)})
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise UnsupportedModel(f"{operator.code} over the axes {axes} of {given.rank} is not supported")
    parts = (given.shape[: axes[0]], given.shape[axes[0] : axes[-1] + 1], given.shape[axes[-1] + 1 :])
    outer, reduced, inner = (int(np.prod(part, dtype=np.int64)) for part in parts)
    return given, {"outer": outer, "reduced": reduced, "inner": inner}


def multiply_accumulates(kernel: str, integers: dict[str, int]) -> int:
    """Return the multiply-accumulate operations of a call; 0 for kernels that are not convolutions."""
    if not kernel.startswith(("convolution", "depthwise")):
        return 0
    places = integers["batch"] * integers["output_height"] * integers["output_width"]
    taps = integers["kernel_height"] * integers["kernel_width"] * integers["output_channels"]
    return places * taps * (integers["input_channels"] if kernel.startswith("convolution") else 1)


def _leading_zeros(value: int) -> int:
    return 64 - value.bit_length()


def operands(operator: Operator) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return what a convolution reads: values, weights and bias."""
    given, weights = operator.inputs[:2]
    if given is None or weights is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    _check_operands(operator, given, weights, bias)
    return given, weights, bias


def _check_operands(operator: Operator, given: Tensor, weights: Tensor, bias: Tensor | None) -> None:
    if (given.dtype == np.float32) != (weights.dtype == np.float32) and not is_hybrid(given, weights):
        raise UnsupportedModel(
            f"{operator.code} has weights of {weights.dtype} and values of {given.dtype}", hint=_CONVERT
        )
    if weights.quantization is not None and weights.quantization.bits == 4:
        raise UnsupportedModel("weights of 4 bits are not supported", hint="convert with --precision int8")
    if weights.data is None or (bias is not None and bias.data is None):
        raise UnsupportedModel(f"The weights of {operator.code} are computed, expected constants")


def is_hybrid(given: Tensor, weights: Tensor) -> bool:
    """Tell whether the weights alone are integers: the values are quantized while the model runs."""
    return given.dtype == np.float32 and weights.dtype == np.int8


def _zero_of(weights: Tensor) -> int:
    """Return the zero point of int8 weights, or of uint8 ones with their sign flipped."""
    found = weights.quantization
    return 0 if found is None else int(found.zero_point) - (128 if weights.dtype == np.uint8 else 0)


def _window(operator: Operator, given: Tensor, kernel: tuple[int, ...]) -> dict[str, int]:
    options: Any = operator.options
    batch, height, width, channels = given.shape
    _, output_height, output_width, output_channels = operator.outputs[0].shape
    found = {
        "batch": batch,
        "input_height": height,
        "input_width": width,
        "input_channels": channels,
        "output_height": output_height,
        "output_width": output_width,
        "output_channels": output_channels,
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": options.strideH,
        "stride_width": options.strideW,
        "dilation_height": getattr(options, "dilationHFactor", 1),
        "dilation_width": getattr(options, "dilationWFactor", 1),
    }
    for pad, side in (("pad_top", "height"), ("pad_left", "width")):
        span = (found[f"kernel_{side}"] - 1) * found[f"dilation_{side}"] + 1
        missing = (found[f"output_{side}"] - 1) * found[f"stride_{side}"] + span - found[f"input_{side}"]
        found[pad] = max(missing, 0) // 2 if options.padding == _SAME else 0
    return found


def rows_of_eight(array: np.ndarray, fill: float = 0) -> np.ndarray:
    """Pad the first axis to a multiple of 8."""
    missing = -len(array) % 8
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1), constant_values=fill) if missing else array


def _quantized(
    operator: Operator,
    calls: Calls,
    bias: Tensor | None,
    outputs: int,
    *,
    is_connected: bool = False,
    given: Tensor | None = None,
) -> tuple[str, dict[str, Value], dict[str, int]]:
    """Return the suffix of the kernel, its tables and its integers."""
    weights, output = operator.inputs[1], operator.outputs[0]
    given = given or operator.inputs[0]
    if given is None or weights is None or weights.quantization is None:
        raise UnsupportedModel(f"{operator.code} has integers without a scale")
    source, target = scale_of(given), scale_of(output)
    options: Any = operator.options
    integers = {"input_zero": source.zero, "output_zero": target.zero, "weights_zero": _zero_of(weights)}
    integers |= activation_integers(options.fusedActivationFunction, target)
    steps = np.asarray(weights.quantization.scales, np.float32)
    values = np.zeros(outputs, np.int32) if bias is None or bias.data is None else bias.data.astype(np.int32)
    tables = {"bias": calls.constant(rows_of_eight(values))}
    if calls.rounding == "litert":
        multipliers = np.broadcast_to(source.step * steps / target.step, outputs).astype(np.float32)
        return "", tables | {"multipliers": calls.constant(rows_of_eight(multipliers))}, integers
    if is_connected and len(steps) == 1:
        ratios = [float(source.step * steps[0]) / float(target.step)] * outputs
    else:
        ratios = [float(source.step) * float(step) / float(target.step) for step in np.broadcast_to(steps, outputs)]
    pairs = np.array([fixed_point(ratio) for ratio in ratios], np.int32)
    tables |= {
        "multipliers": calls.constant(rows_of_eight(pairs[:, 0])),
        "shifts": calls.constant(rows_of_eight(pairs[:, 1])),
    }
    return "_fixed", tables, integers | {"single": int(is_connected and calls.rounding == "reference")}


def _convolve(
    operator: Operator,
    calls: Calls,
    matrix: np.ndarray,
    bias: Tensor | None,
    window: dict[str, int],
    *,
    is_connected: bool = False,
    source: tuple[Tensor, Value] | None = None,
) -> None:
    output, options = operator.outputs[0], operator.options
    given = operator.inputs[0] if source is None else source[0]
    if given is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    ends = {"input": calls.of(given) if source is None else source[1], "output": calls.of(output)}
    outputs, taps = matrix.shape
    if matrix.dtype == np.float32:
        rows = rows_of_eight(matrix).reshape(-1, 8, taps)
        fused: Any = options
        values = np.zeros(outputs, np.float32) if bias is None or bias.data is None else bias.data
        tables = {"weights": calls.constant(rows.transpose(0, 2, 1)), "bias": calls.constant(rows_of_eight(values))}
        calls.add("convolution_float", ends | tables, window, activation_floats(fused.fusedActivationFunction))
        return
    suffix, tables, integers = _quantized(operator, calls, bias, outputs, is_connected=is_connected, given=given)
    weights = calls.constant(_filters(matrix))
    calls.add(f"convolution_int8{suffix}", ends | tables | {"weights": weights}, window | integers)


def _filters(matrix: np.ndarray) -> np.ndarray:
    """Lay out int8 filters [outputs, taps] as the kernels take them: eight at once, two taps of each."""
    taps = matrix.shape[1]
    rows = rows_of_eight(matrix).reshape(-1, 8, taps)
    even = np.pad(rows, ((0, 0), (0, 0), (0, taps % 2))).reshape(len(rows), 8, -1, 2)
    return even.transpose(0, 2, 1, 3)


def _convolve_depthwise(
    operator: Operator, calls: Calls, taps: np.ndarray, bias: Tensor | None, window: dict[str, int]
) -> None:
    given, output, options = operator.inputs[0], operator.outputs[0], operator.options
    if given is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    ends = {"input": calls.of(given), "output": calls.of(output)}
    channels = taps.shape[1]
    if taps.dtype == np.float32:
        fused: Any = options
        values = np.zeros(channels, np.float32) if bias is None or bias.data is None else bias.data
        tables = {"weights": calls.constant(taps), "bias": calls.constant(values)}
        calls.add("depthwise_float", ends | tables, window, activation_floats(fused.fusedActivationFunction))
        return
    suffix, tables, integers = _quantized(operator, calls, bias, channels)
    integers.pop("single", None)
    # An odd last tap weighs nothing.
    even = np.pad(taps, ((0, len(taps) % 2), (0, 0)), constant_values=integers["weights_zero"])
    padded = rows_of_eight(even.T)  # [channels, taps]
    weights = calls.constant(padded.reshape(-1, 8, padded.shape[1] // 2, 2).transpose(0, 2, 1, 3))
    calls.add(f"depthwise_int8{suffix}", ends | tables | {"weights": weights}, window | integers)


def _pool(operator: Operator, calls: Calls, kind: str) -> None:
    given, output, options = operator.inputs[0], operator.outputs[0], operator.options
    fused: Any = options
    if given is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    window = _window(operator, given, (fused.filterHeight, fused.filterWidth))
    ends = {"input": calls.of(given), "output": calls.of(output)}
    if given.dtype == np.float32:
        calls.add(f"{kind}_float", ends, window, activation_floats(fused.fusedActivationFunction))
        return
    bounds = activation_integers(fused.fusedActivationFunction, scale_of(output))
    is_unsigned = given.dtype == np.uint8 and kind == "average_pool"
    calls.add(f"{kind}_{'uint8' if is_unsigned else 'int8'}", ends, window | bounds)
