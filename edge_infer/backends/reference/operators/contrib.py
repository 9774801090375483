"""Operators of `com.microsoft` that conversions and saved sessions have: blocks of weights, fused and quantized ones.

They are those of ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.call import Call
from edge_infer.backends.reference.operators import convolution, elementwise, normalization, pools, products
from edge_infer.backends.reference.operators.elementwise import sigmoid
from edge_infer.backends.reference.operators.quantizers import requantized_floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.backends.reference.call import Array, Operator

_ACTIVATIONS: dict[str, Callable[[Any, list[float]], Any]] = {
    "Relu": lambda x, _: np.maximum(x, 0),
    "Sigmoid": lambda x, _: sigmoid(x),
    "Tanh": lambda x, _: np.tanh(x),
    "LeakyRelu": lambda x, p: np.where(x < 0, x * np.float32(p[0] if p else 0.01), x),
    "Clip": lambda x, p: np.clip(x, np.float32(p[0]), np.float32(p[1])),
    "HardSigmoid": lambda x, p: np.clip(x * np.float32(p[0]) + np.float32(p[1]), 0, 1),
}


def _activated(call: Call, x: Array, parameters: list[float]) -> Array:
    name = call.get("activation", "")
    if name not in _ACTIVATIONS:
        raise ValueError(f"the activation {name} is not known")
    return np.asarray(_ACTIVATIONS[name](x, parameters)).astype(x.dtype, copy=False)


def _unpacked(packed: Array, bits: int, count: int) -> Array:
    """Return the integers of the last axis of bytes, the lowest bits first."""
    if bits not in (2, 4, 8):
        raise ValueError(f"weights of {bits} bits, expected 2, 4 or 8")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    whole = (packed.view(np.uint8)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return whole.reshape(*packed.shape[:-1], -1)[..., :count]


def matmul_n_bits(
    call: Call, a: Array, packed: Array, scales: Array, zeros: Array | None = None, order: Array | None = None,
    bias: Array | None = None,
) -> Array:  # fmt: skip
    """Compute MatMulNBits: [outputs, blocks, bytes of a block], with a scale for each block."""
    if order is not None:
        raise ValueError("an order of groups (g_idx) is not computed here")
    inputs, outputs, bits, block = (call.get(name, 0) for name in ("K", "N", "bits", "block_size"))
    bits = bits or 4
    blocks = -(-inputs // block)
    whole = _unpacked(packed.reshape(outputs, blocks, -1), bits, block).astype(np.float32)
    if zeros is None:
        offset: Array = np.full((outputs, blocks), 2 ** (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        offset = _unpacked(zeros.reshape(outputs, -1), bits, blocks).astype(np.float32)
    else:
        offset = zeros.reshape(outputs, blocks).astype(np.float32)
    weights = (whole - offset[..., None]) * scales.reshape(outputs, blocks, 1).astype(np.float32)
    result = np.matmul(a.astype(np.float32), weights.reshape(outputs, -1)[:, :inputs].T)
    return (result if bias is None else result + bias).astype(a.dtype)


def gather_block_quantized(call: Call, data: Array, places: Array, scales: Array, zeros: Array | None = None) -> Array:
    """Compute GatherBlockQuantized: rows of a table in blocks along its last axis."""
    bits, block = call.get("bits", 4), call.get("block_size", 128)
    axis = call.get("quantize_axis", 1) % data.ndim
    if call.get("gather_axis", 0) % data.ndim != 0 or axis != data.ndim - 1:
        raise ValueError("rows are gathered along the first axis and have their blocks along the last one")
    is_packed = data.dtype == np.uint8
    columns = data.shape[-1] * 8 // bits if is_packed else data.shape[-1]
    rows = np.take(data, places, 0)
    whole = (_unpacked(rows, bits, columns) if is_packed else rows).astype(np.float32)
    row_scales = np.take(scales, places, 0).astype(np.float32)
    offset: Array = np.float32(2 ** (bits - 1) if is_packed else 0)
    if zeros is not None:
        rows = np.take(zeros, places, 0)
        found = _unpacked(rows, bits, row_scales.shape[-1]) if zeros.dtype == np.uint8 else rows
        offset = np.repeat(found.astype(np.float32), block, -1)[..., :columns]
    return ((whole - offset) * np.repeat(row_scales, block, -1)[..., :columns]).astype(scales.dtype)


def fused_conv(call: Call, x: Array, weights: Array, bias: Array | None = None, more: Array | None = None) -> Array:
    """Compute FusedConv: a convolution, what is added to it, and an activation."""
    result = convolution.conv(call, x, weights, bias)
    result = result if more is None else result + more
    return _activated(call, result, call.get("activation_params", None) or []) if call.get("activation", "") else result


def fused_gemm(call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
    """Compute FusedGemm: Gemm with an activation."""
    parameters = [call.get(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    return _activated(call, products.gemm(call, a, b, c), [one for one in parameters if one is not None])


def fused_matmul(call: Call, a: Array, b: Array) -> Array:
    """Compute FusedMatMul: a product of transposed matrices, times a number."""
    if call.get("transBatchA", 0) or call.get("transBatchB", 0):
        raise ValueError("batches are not transposed here")
    a = np.swapaxes(a, -1, -2) if call.get("transA", 0) and a.ndim > 1 else a
    b = np.swapaxes(b, -1, -2) if call.get("transB", 0) and b.ndim > 1 else b
    return np.asarray(products.exact_matmul(a, b) * np.float32(call.get("alpha", 1.0))).astype(a.dtype)


def _real(x: Array, scale: Array, zero: Array | None) -> Array:
    return ((x.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))) * scale.astype(np.float32)).astype(
        "f4"
    )


def _quantized(result: Array, scale: Array, zero: Array | None, like: Array) -> Array:
    return requantized_floats(result, scale, np.zeros((), like.dtype) if zero is None else zero)


def _of_two(function: Operator) -> Operator:
    def compute(
        call: Call, a: Array, a_scale: Array, a_zero: Array | None, b: Array, b_scale: Array, b_zero: Array | None,
        scale: Array, zero: Array | None = None,
    ) -> Array:  # fmt: skip
        return _quantized(function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), scale, zero, a)

    return compute


def _of_one(function: Operator) -> Operator:
    def compute(
        call: Call, x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero: Array | None = None
    ) -> Array:
        return _quantized(function(call, _real(x, x_scale, x_zero)), scale, zero, x)

    return compute


def _pooled(function: Operator) -> Operator:
    """Channels may come last."""

    def compute(call: Call, x: Array) -> Array:
        if not call.get("channels_last", 0):
            return np.asarray(function(call, x))
        return np.moveaxis(np.asarray(function(call, np.moveaxis(x, -1, 1))), 1, -1)

    return _of_one(compute)


def _softmax(call: Call, x: Array) -> Array:
    """The node says itself which set's Softmax it is."""
    versioned = Call(call.node, call.attributes, call.graphs, call.get("opset", 0))
    return np.asarray(normalization.softmax(versioned, x, is_log=False))


def qlinear_concat(call: Call, scale: Array, zero: Array, *parts: Array) -> Array:
    """Compute QLinearConcat: values, scales and zero points, one behind the other."""
    real = [_real(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return requantized_floats(np.concatenate(real, call.get("axis", 0)), scale, zero)


def qlinear_where(
    call: Call, condition: Array, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    scale: Array, zero: Array,
) -> Array:  # fmt: skip
    """Compute QLinearWhere."""
    return _quantized(np.where(condition, _real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), scale, zero, a)


def qgemm(
    call: Call, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    c: Array | None = None, scale: Array | None = None, zero: Array | None = None,
) -> Array:  # fmt: skip
    """Compute QGemm: an integer bias has the scale of the product."""
    left, right = a.astype(np.int32) - a_zero.astype(np.int32), b.astype(np.int32)
    is_turned = bool(call.get("transB", 0))
    right = right - (
        b_zero.astype(np.int32).reshape(-1, 1) if is_turned and b_zero.size > 1 else b_zero.astype(np.int32)
    )
    total = products.whole_matmul(left.T if call.get("transA", 0) else left, right.T if is_turned else right)
    total = total if c is None else total + c
    result = (total * (a_scale.astype(np.float64) * b_scale) * call.get("alpha", 1.0)).astype(np.float32)
    return result if scale is None else _quantized(result, scale, zero, a)


OPERATORS: dict[str, Operator] = {
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "GatherBlockQuantized": gather_block_quantized,
    "Gelu": elementwise.OPERATORS["Gelu"],
    "MatMulNBits": matmul_n_bits,
    "QGemm": qgemm,
    "QLinearAdd": _of_two(np.add),
    "QLinearAveragePool": _pooled(partial(pools.average_pool, counts_overhang=True)),
    "QLinearConcat": qlinear_concat,
    "QLinearGlobalAveragePool": _pooled(pools.OPERATORS["GlobalAveragePool"]),
    "QLinearLeakyRelu": _of_one(elementwise.OPERATORS["LeakyRelu"]),
    "QLinearMul": _of_two(np.multiply),
    "QLinearSigmoid": _of_one(lambda _, x: sigmoid(x)),
    "QLinearSoftmax": _of_one(_softmax),
    "QLinearWhere": qlinear_where,
}
