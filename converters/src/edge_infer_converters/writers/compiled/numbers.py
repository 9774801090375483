"""The integers of quantized operators: scales, multipliers, activation ranges, tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.tflite.graph import Tensor

#: `ActivationFunctionType` of the schema: what floats are clamped to.
_FLOAT_MAX = float(np.finfo(np.float32).max)
_RANGES = {0: (-_FLOAT_MAX, _FLOAT_MAX), 1: (0.0, _FLOAT_MAX), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_FLIP = 128


class Scale(NamedTuple):
    """What int8 stands for: step * (integer - zero). A uint8 tensor counts as int8 with its sign flipped."""

    step: np.float32
    zero: int


def scale_of(tensor: Tensor) -> Scale:
    """Return the scale of a tensor that has one for all of its elements.

    Raises:
        UnsupportedModel: It has none, or several.
    """
    found = tensor.quantization
    if found is None or len(found.scales) != 1:
        raise UnsupportedModel(f"`{tensor.name}` has no scale of its own", hint="convert the float model")
    return Scale(np.float32(found.scales[0]), int(found.zero_point) - (_FLIP if tensor.dtype == np.uint8 else 0))


def signed(tensor: Tensor) -> np.ndarray:
    """Return the value of an int8 or uint8 constant as int8."""
    if tensor.data is None:
        raise UnsupportedModel(f"The weights `{tensor.name}` are computed, expected a constant")
    data = tensor.data
    return (data.astype(np.int16) - _FLIP).astype(np.int8) if data.dtype == np.uint8 else data


def fixed_point(value: float) -> tuple[int, int]:
    """Split a multiplier into 31 bits and a shift, positive to the left.

    The rule of TFLite's QuantizeMultiplier (tensorflow/lite/kernels/internal/quantization_util.cc).
    """
    if not value:
        return 0, 0
    share, shift = math.frexp(value)
    whole = math.floor(abs(share) * 2**31 + 0.5)
    if whole == 2**31:
        whole, shift = whole // 2, shift + 1
    return (0, 0) if shift < -31 else (int(math.copysign(whole, share)), min(shift, 30))


def activation_floats(code: int) -> dict[str, float]:
    """Return the bounds of a fused activation.

    Raises:
        UnsupportedModel: It is not a clamp.
    """
    if code not in _RANGES:
        raise UnsupportedModel(f"the fused activation {code} is not supported", hint="RELU, RELU6 and RELU_N1_TO_1 are")
    low, high = _RANGES[code]
    return {"low": low, "high": high}


def activation_integers(code: int, scale: Scale) -> dict[str, int]:
    """Return the bounds of a fused activation as integers of the output (CalculateActivationRangeQuantized)."""
    bounds = activation_floats(code)

    def quantized(value: float) -> int:
        return scale.zero + int(np.float32(_away(np.float32(value) / scale.step)))

    low, high = -128, 127
    if code in (1, 2, 3):
        low = max(low, quantized(bounds["low"]))
    if code in (2, 3):
        high = min(high, quantized(bounds["high"]))
    return {"low": low, "high": high}


def rescaled(value: int, multiplier: int, shift: int) -> int:
    """Multiply as the kernels do in fixed point: MultiplyByQuantizedMultiplier, rounded twice."""
    product = (value << max(shift, 0)) * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    total = product + nudge
    high = total // 2**31 if total >= 0 else -(-total // 2**31)
    right = max(-shift, 0)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def added(first: Scale, second: Scale, output: Scale, *, subtract: bool = False) -> dict[str, int]:
    """Return the integers of XNNPACK's int8 addition: both ratios with 20 bits behind the larger one's point.

    The rule of xnn_init_qs8_add_minmax_scalar_params (XNNPACK, src/microparams-init.c).
    """
    ratios = [np.float32(first.step / output.step), np.float32(second.step / output.step)]
    shift = 20 - (math.frexp(float(max(ratios)))[1] - 1)
    one, two = (round(math.ldexp(float(ratio), shift)) for ratio in ratios)  # halves to even, as lrintf does
    two = -two if subtract else two
    bias = (1 << (shift - 1)) - one * first.zero - two * second.zero
    return {"first_multiplier": one, "second_multiplier": two, "bias": bias, "shift": shift}


def table_of(function: Callable[[np.ndarray], np.ndarray], given: Scale, output: Scale) -> np.ndarray:
    """Return what each int8 becomes under a function of floats, rounded to the nearest, ties to even, int8 [256]."""
    values = (np.arange(-128, 128) - given.zero).astype(np.float32) * given.step
    with np.errstate(over="ignore"):
        results = function(values).astype(np.float32) / output.step
    table: np.ndarray = np.clip(np.rint(results) + output.zero, -128, 127).astype(np.int8)
    return table


def rescaling_table(given: Scale, output: Scale, rounding: str) -> np.ndarray:
    """Return what each int8 becomes in another scale, int8 [256].

    `litert` is XNNPACK's conversion, a multiplier with 8 bits behind the point (qs8-vcvt); `reference` is TFLite's
    Requantize in fixed point.
    """
    ratio = given.step / output.step
    if rounding == "litert" and 2**-8 <= ratio <= 2**7:  # XNNPACK takes no others
        factor = round(256 * float(ratio))
        values = [(((i - given.zero) * factor + 128) >> 8) + output.zero for i in range(-128, 128)]
    else:
        values = _in_fixed_point(given, output, float(given.step) / float(output.step))
    return np.clip(values, -128, 127).astype(np.int8)


def clamping_table(given: Scale, output: Scale, bounds: dict[str, int]) -> np.ndarray:
    """Return what each int8 becomes by a RELU or its like, int8 [256].

    In fixed point, with XNNPACK too; TFLite divides the scales as floats (activations.cc, ReluPrepare).
    """
    values = _in_fixed_point(given, output, float(given.step / output.step))
    return np.clip(values, bounds["low"], bounds["high"]).astype(np.int8)


def _in_fixed_point(given: Scale, output: Scale, ratio: float) -> list[int]:
    multiplier, shift = fixed_point(ratio)
    return [rescaled(i - given.zero, multiplier, shift) + output.zero for i in range(-128, 128)]


def joining_table(given: Scale, output: Scale) -> np.ndarray:
    """Return what each uint8, its sign flipped, becomes where it is joined to others of another scale, int8 [256].

    TFLite's ConcatenationWithScaling (reference/concatenation.h): in floats, halves away from zero.
    """
    ratio = given.step / output.step
    bias = np.float32(-(given.zero + _FLIP)) * ratio
    values = [_away(np.float32(i) * ratio + bias) + output.zero for i in range(256)]
    return np.clip(values, -128, 127).astype(np.int8)


def leaky_table(given: Scale, output: Scale, alpha: float, rounding: str) -> np.ndarray:
    """Return what each int8 becomes by LEAKY_RELU, int8 [256].

    `litert` is XNNPACK's, products of 16 bits (qs8-vlrelu); `reference` is TFLite's QuantizeLeakyRelu.
    """
    ratio = given.step / output.step
    negative = ratio * np.float32(alpha)
    values = []
    if rounding == "litert" and 2**-8 <= ratio <= 2**7 and -(2**7) < negative <= 2**7 and abs(negative) >= 2**-8:
        factors = [round(-256 * float(one)) for one in (ratio, negative)]
        for i in range(-128, 128):
            part = (given.zero - i) * 128
            product = (part * (factors[0] if part < 0 else factors[1]) + 0x4000) >> 15
            values.append(min(max(product, -32768), 32767) + output.zero)
    else:
        # TFLite divides the scales as floats.
        scales = [fixed_point(float(ratio)), fixed_point(float(given.step * np.float32(alpha) / output.step))]
        for i in range(-128, 128):
            part = i - given.zero
            values.append(rescaled(part, *scales[0 if part >= 0 else 1]) + output.zero)
    return np.clip(values, -128, 127).astype(np.int8)


def hard_swish_table(given: Scale, output: Scale) -> np.ndarray:
    """Return what each int8 becomes by HARD_SWISH, int8 [256].

    In 16 bits (reference/hard_swish.h); XNNPACK leaves it to TFLite.
    """
    hires = np.float32(1 / 128) * given.step
    product, product_shift = _in_sixteen_bits(float(hires / output.step))
    relu, relu_shift = _in_sixteen_bits(float(hires / np.float32(3 / 32768)))
    values = []
    for i in range(-128, 128):
        part = (i - given.zero) * 128
        before = _times_sixteen(part, product)
        gate = part
        if relu_shift > 0:
            gate = _saturated(gate * 2 ** (relu_shift - 1))
        gate = _times_sixteen(gate, relu)
        if relu_shift > 0:
            gate = _saturated(gate * 2)
        elif relu_shift < 0:
            gate = _divided(gate, -relu_shift)
        gate = (gate + 32768) >> 1
        value = 32767 if gate == before == -32768 else math.trunc(gate * before / 32768)
        values.append(_divided(value, -product_shift) + output.zero)
    return np.clip(values, -128, 127).astype(np.int8)


def _in_sixteen_bits(value: float) -> tuple[int, int]:
    whole, shift = fixed_point(value)
    return min((whole + 2**15) >> 16, 32767), shift


def _saturated(value: int) -> int:
    return min(max(value, -32768), 32767)


def _times_sixteen(first: int, second: int) -> int:
    """Multiply as gemmlowp's SaturatingRoundingDoublingHighMul of int16."""
    product = first * second
    return math.trunc((product + (2**14 if product >= 0 else 1 - 2**14)) / 2**15)


def _divided(value: int, shift: int) -> int:
    """Divide by 2^shift, halves away from zero; a negative shift multiplies."""
    if shift <= 0:
        return value << -shift
    mask = (1 << shift) - 1
    rest = value & mask
    return (value >> shift) + (rest > (mask >> 1) + (value < 0))


def _away(value: np.float32) -> float:
    """Round halves away from zero, as std::round does."""
    return math.copysign(math.floor(abs(float(value)) + 0.5), float(value))


def softmax_table(given: Scale, beta: float) -> np.ndarray:
    """Return the exponentials of the softmax in fixed point, of 255 steps below the maximum up to it, int32 [256].

    TFLite's reference (PreprocessSoftmaxScaling, reference/softmax.h): 5 bits before the point; 0 where the
    difference is too large.
    """
    multiplier, shift = fixed_point(min(beta * float(given.step) * 2.0**26, 2.0**31 - 1))
    lowest = -math.floor(31 * 2.0 ** (26 - shift))
    table = []
    for difference in range(-255, 1):
        scaled = _times_whole(difference << shift, multiplier) if shift >= 0 else 0
        table.append(_exponential_of_negative(scaled) if difference >= lowest else 0)
    return np.array(table, np.int64).astype(np.int32)


def micro_table(given: Scale, *, is_tanh: bool) -> np.ndarray:
    """Return what each int8 becomes by TANH or LOGISTIC in TFLite Micro, int8 [256].

    In fixed point with 4 bits before the point (reference/integer_ops/logistic.h and tanh.h).
    """
    bits = 4
    multiplier, shift = fixed_point(float(given.step) * 2.0 ** (31 - bits))
    radius = math.floor((2**bits - 1) * 2.0 ** (31 - bits - shift))
    values = []
    for i in range(-128, 128):
        part = i - given.zero
        if abs(part) >= radius:
            values.append(-128 if part < 0 else 127)
        elif is_tanh:
            values.append(_divided(_tangent(rescaled(part, multiplier, shift), bits), 24))
        else:
            values.append(_divided(_logistic(rescaled(part, multiplier, shift), bits), 23) - 128)
    return np.clip(values, -128, 127).astype(np.int8)


def _logistic(value: int, bits: int) -> int:
    """Return 1/(1 + e^-value) with 31 bits behind the point: gemmlowp's logistic of int32."""
    if value == 0:
        return 1 << 30
    result = _inverse(_exponential_of_negative(-abs(value), bits))[0]
    return result if value > 0 else 2**31 - 1 - result


def _tangent(value: int, bits: int) -> int:
    """Return the hyperbolic tangent with 31 bits behind the point: gemmlowp's tanh of int32."""
    if value == 0:
        return 0
    doubled = _exponential_of_negative(-abs(value), bits + 1)  # of twice the value: a bit more before the point
    result = _inverse(doubled)[1]
    return result if value > 0 else -result


def _inverse(value: int) -> tuple[int, int]:
    """Return 1/(1 + x) and (1 - x)/(1 + x) for x from 0 to 1, by three steps of Newton's method."""
    half = (value + 2**31 - 1 + 1) // 2
    x = 1515870810 + _times_whole(half, -1010580540)
    for _ in range(3):
        x += _times_whole(x, (1 << 29) - _times_whole(half, x)) * 4
    top = 2**31 - 1
    return min(x * 2, top), max(min((x - (1 << 29)) * 4, top), -top - 1)


#: e^-(2^power) with 31 bits behind the point, as gemmlowp has them (fixedpoint/fixedpoint.h).
_POWERS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}


def _exponential_of_negative(value: int, bits: int = 5) -> int:
    """Return e^value of a value <= 0 with so many bits before the point: gemmlowp's exp_on_negative_values of int32."""
    if value == 0:
        return 2**31 - 1
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    part = (value & (quarter - 1)) - quarter
    x = (part << bits) + (1 << 28)
    square = _times_whole(x, x)
    fourth, third = _times_whole(square, square), _times_whole(square, x)
    tail = _divided(_times_whole(_divided(fourth, 2) + third, 715827883) + square, 1)
    result = 1895147668 + _times_whole(1895147668, x + tail)
    rest = part - value
    for power, factor in _POWERS.items():
        if power < bits and rest & (1 << (fraction + power)):
            result = _times_whole(result, factor)
    return result


def _times_whole(first: int, second: int) -> int:
    """Multiply as gemmlowp's SaturatingRoundingDoublingHighMul of int32."""
    product = first * second
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return min(nudged // 2**31 if nudged >= 0 else -(-nudged // 2**31), 2**31 - 1)
