"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def exact_matmul(a: Array, b: Array) -> Array:
    """Multiply; half precision in single, and integers of 8 and 16 bits in double, which holds every sum of them."""
    if a.dtype == np.float16 or b.dtype == np.float16:
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    return np.asarray(np.matmul(a, b))


def whole_matmul(a: Array, b: Array) -> Array:
    """Multiply matrices of small integers: int32, as it wraps."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(np.int32)


def gemm(call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
    """Compute Gemm."""
    product = exact_matmul(a.T if call.get("transA", 0) else a, b.T if call.get("transB", 0) else b)
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if alpha != 1:
        product = np.asarray(product * alpha).astype(product.dtype)
    if c is not None:
        product = product + (c if beta == 1 else c * beta)
    return product.astype(a.dtype, copy=False)


def einsum(call: Call, *inputs: Array) -> Array:
    """Compute Einsum."""
    return np.asarray(np.einsum(call.get("equation", "").replace(" ", ""), *inputs))


def matmul_integer(call: Call, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """Compute MatMulInteger; a zero point may be one for each row of a, or column of b."""
    left, right = a.astype(np.int32), b.astype(np.int32)
    if a_zero is not None:
        zero = a_zero.astype(np.int32)
        left = left - (zero[..., None] if zero.ndim == 1 and zero.size > 1 else zero)
    if b_zero is not None:
        right = right - b_zero.astype(np.int32)
    return whole_matmul(left, right)


def determinant(call: Call, x: Array) -> Array:
    """Compute Det."""
    return np.asarray(np.linalg.det(x)).astype(x.dtype)


OPERATORS: dict[str, Operator] = {
    "Det": determinant,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": lambda call, a, b: exact_matmul(a, b),
    "MatMulInteger": matmul_integer,
}
