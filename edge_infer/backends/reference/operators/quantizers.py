"""Casts, and operators of quantized numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.elements import (
    SMALL,
    cast,
    decode,
    encode,
    number_of,
    numpy_dtype,
    small_of,
)
from edge_infer.backends.reference.operators.convolution import conv_integer
from edge_infer.backends.reference.operators.products import whole_matmul

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def cast_to(call: Call, x: Array) -> Array:
    """Compute Cast."""
    return cast(x, call.get("to", 1), saturate=bool(call.get("saturate", 1)), towards=call.get("round_mode", "up"))


def cast_like(call: Call, x: Array, like: Array) -> Array:
    """Compute CastLike."""
    return cast(x, number_of(like.dtype), saturate=bool(call.get("saturate", 1)), towards=call.get("round_mode", "up"))


def bit_cast(call: Call, x: Array) -> Array:
    """Compute BitCast."""
    dtype = numpy_dtype(call.get("to", 1))
    if dtype.itemsize != x.dtype.itemsize:
        raise ValueError(f"{x.dtype.itemsize} bytes of an element, expected {dtype.itemsize}")
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape)


def _over(parameter: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """Spread a scale or zero point over an input: one, one for each slice of an axis, or one for each block of it."""
    if parameter.size == 1 and not block:
        return parameter.reshape(())
    axis %= len(shape)
    if block:
        repeated = np.repeat(parameter, block, axis)
        return np.take(repeated, np.arange(shape[axis]), axis)
    return parameter.reshape(-1, *(1,) * (len(shape) - axis - 1))


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    small = small_of(dtype)
    if small is None:
        return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    return (-(2 ** (small.bits - 1)), 2 ** (small.bits - 1) - 1) if small.is_signed else (0, 2**small.bits - 1)


def quantize_linear(call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """Compute QuantizeLinear."""
    axis, block = call.get("axis", 1), call.get("block_size", 0)
    kind = number_of(zero.dtype) if zero is not None else call.get("output_dtype", 0) or 2
    precision = call.get("precision", 0)
    numbers, scales = decode(x), _over(decode(scale), x.shape, axis, block)
    if precision:
        numbers, scales = (decode(cast(one, precision)) for one in (numbers, scales))
    if numbers.dtype.kind != "f":
        numbers = numbers.astype(scales.dtype)
    with np.errstate(all="ignore"):
        ratio = np.asarray(numbers / scales)
        if kind in SMALL and SMALL[kind].exponent:
            return encode(ratio, SMALL[kind], saturate=bool(call.get("saturate", 1)))
        low, high = _limits(numpy_dtype(kind))
        offset = 0 if zero is None else _over(decode(zero), x.shape, axis, block).astype(np.float64)
        return cast(np.clip(np.rint(ratio.astype(np.float64)) + offset, low, high), kind)


def dequantize_linear(call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """Compute DequantizeLinear."""
    axis, block = call.get("axis", 1), call.get("block_size", 0)
    numbers = decode(x)
    wide = numbers.astype(np.float32 if numbers.dtype.kind == "f" else np.int64)
    if zero is not None and numbers.dtype.kind != "f":
        wide = wide - _over(decode(zero), x.shape, axis, block)
    scales = _over(decode(scale), x.shape, axis, block)
    result = np.asarray(wide.astype(np.float32) * scales.astype(np.float32))
    if scales.dtype == np.float64:
        result = np.asarray(wide * scales)
    return cast(result, call.get("output_dtype", 0) or number_of(scale.dtype))


def dynamic_quantize_linear(call: Call, x: Array) -> tuple[Array, ...]:
    """Compute DynamicQuantizeLinear."""
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    whole = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return whole, np.array(scale, np.float32), np.array(zero, np.uint8)


def _requantized(total: Array, scale: Array, out_scale: Array, out_zero: Array) -> Array:
    low, high = _limits(out_zero.dtype)
    ratio = scale.astype(np.float64) / decode(out_scale).astype(np.float64)
    moved = np.rint(total.astype(np.float64) * ratio) + out_zero.astype(np.float64)
    return np.clip(moved, low, high).astype(out_zero.dtype)


def requantized_floats(x: Array, scale: Array, zero: Array) -> Array:
    """Return floats as integers of the type of a zero point."""
    low, high = _limits(zero.dtype)
    moved = np.rint((x / scale.astype(np.float32)).astype(np.float64)) + zero.astype(np.float64)
    return np.clip(moved, low, high).astype(zero.dtype)


def qlinear_matmul(
    call: Call, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array,
    y_zero: Array,
) -> Array:  # fmt: skip
    """Compute QLinearMatMul."""

    def rows(one: Array) -> Array:
        return one[..., None] if one.ndim and one.size > 1 and one.ndim == 1 else one

    a_scale, b_scale = decode(a_scale), decode(b_scale)
    total = whole_matmul(
        a.astype(np.int32) - rows(a_zero).astype(np.int32), b.astype(np.int32) - b_zero.astype(np.int32)
    )
    return _requantized(total, rows(a_scale).astype(np.float64) * b_scale, y_scale, y_zero)


def qlinear_conv(
    call: Call, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array,
    y_zero: Array, bias: Array | None = None,
) -> Array:  # fmt: skip
    """Compute QLinearConv."""
    total = conv_integer(call, x, w, x_zero, w_zero)
    shape = (-1, *(1,) * (x.ndim - 2))
    if bias is not None:
        total = total + bias.reshape(shape)
    return _requantized(total, x_scale.astype(np.float64) * w_scale.reshape(shape), y_scale, y_zero)


OPERATORS: dict[str, Operator] = {
    "BitCast": bit_cast,
    "Cast": cast_to,
    "CastLike": cast_like,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
}
