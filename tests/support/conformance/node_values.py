"""The values of ONNX's node tests as the reference engine has them: bits of the types that numpy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from edge_infer.backends.reference.elements import SMALL, decode, dtype_of

_SMALL = {small.name: small for small in SMALL.values()}


def as_given(value: Any) -> Any:
    """Return a value of a test as the engine takes and gives it: an array, a list of them, or None."""
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if value is None or isinstance(value, list):
        return value if value is None else [as_given(one) for one in value]
    array = np.asarray(value)
    if array.dtype.kind == "U":
        return array.astype(object)
    small = _SMALL.get(array.dtype.name)
    if small is None:
        return array
    bits = np.ascontiguousarray(array).view("u2" if small.bits > 8 else "u1")
    masked = bits & bits.dtype.type((1 << small.bits) - 1)
    return masked.view(dtype_of(small)).reshape(array.shape)


def difference(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    """Say how a result differs from what a test expects; an empty text where it does not."""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"{found}, expected {len(wanted)} elements"
        return next(filter(None, (difference(a, b, rtol, atol) for a, b in zip(found, wanted, strict=True))), "")
    if wanted is None or not isinstance(found, (np.ndarray, np.generic)):
        return "" if found is wanted else f"{type(found).__name__}, expected {type(wanted).__name__}"
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{found.shape}, expected {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind == "O":
        return "" if found.tolist() == wanted.tolist() else f"{found.tolist()}, expected {wanted.tolist()}"
    try:
        wide = complex if wanted.dtype.kind == "c" else float
        np.testing.assert_allclose(decode(found).astype(wide), decode(wanted).astype(wide), rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""
