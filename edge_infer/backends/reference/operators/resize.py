"""Resize and Upsample: one axis after the other, in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.backends.reference.operators.shapes import ints

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _origins(mode: str, size: int, count: int, scale: float, roi: tuple[float, float]) -> Array:
    """Return where each output element lies in the input."""
    x = np.arange(count, dtype=np.float64)
    length = scale * size
    if mode == "align_corners":
        return np.zeros(count) if length == 1 else x * (size - 1) / (length - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if length == 1:
            return np.full(count, (start + end) * (size - 1) / 2)
        return x * (end - start) * (size - 1) / (length - 1) + start * (size - 1)
    if mode == "pytorch_half_pixel" and length == 1:
        return np.full(count, -0.5)
    origins = (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        origins += size / 2 * (1 - count / length)
    return origins


def _cubic(distance: Array, a: float) -> Array:
    """Weigh by Keys' cubic convolution, https://ieeexplore.ieee.org/document/1163711."""
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _nearest(origins: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(origins)
    if mode == "ceil":
        return np.ceil(origins)
    return np.ceil(origins - 0.5) if mode == "round_prefer_floor" else np.floor(origins + 0.5)


def _axis(call: Call, x: Array, axis: int, scale: float, count: int, roi: tuple[float, float]) -> Array:
    """Resize one axis."""
    size, kind = x.shape[axis], call.get("mode", "nearest")
    where = call.get("coordinate_transformation_mode", "half_pixel" if call.opset >= 11 else "asymmetric")
    origins = _origins(where, size, count, scale, roi)
    if kind == "nearest":
        rounding = call.get("nearest_mode", "round_prefer_floor" if call.opset >= 11 else "floor")
        result = np.take(x, np.clip(_nearest(origins, rounding), 0, size - 1).astype(np.intp), axis)
    else:
        # Where it shrinks and `antialias` is set, the weights reach as far as an output element covers.
        reach = min(scale, 1.0) if call.get("antialias", 0) else 1.0
        half = 2 if kind == "cubic" else 1
        first = int(np.floor(-half / reach) + 1)
        steps = np.arange(first, half + 1 - first - (half - 1)) if half == 1 else np.arange(first, 2 - first)
        base = np.ceil(origins) - 1
        places = base[:, None] + steps
        distance = (places - origins[:, None]) * reach
        if kind == "cubic":
            weights = _cubic(distance, call.get("cubic_coeff_a", -0.75))
        else:
            weights = np.clip(1 - np.abs(distance), 0, 1)
        if call.get("exclude_outside", 0):
            weights = np.where((places < 0) | (places >= size), 0, weights)
        if call.get("exclude_outside", 0) or reach < 1:
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        seen = np.take(x, np.clip(places, 0, size - 1).astype(np.intp), axis)
        shape = (*(1,) * axis, *weights.shape, *(1,) * (x.ndim - axis - 1))
        result = np.sum(seen * weights.reshape(shape), axis + 1)
    if where == "tf_crop_and_resize":
        outside = ((origins < 0) | (origins > size - 1)).reshape(-1, *(1,) * (x.ndim - axis - 1))
        result = np.where(outside, call.get("extrapolation_value", 0.0), result)
    return result


def resize(
    call: Call, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """Compute Resize."""
    if call.opset < 11:
        roi, scales = None, roi  # version 10 has the scales only
    axes = [axis % x.ndim for axis in call.get("axes", None) or range(x.ndim)]
    if sizes is not None and sizes.size:
        counts = ints(sizes)
        factors = [count / x.shape[axis] for count, axis in zip(counts, axes, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(axes)
            counts = [int(factor * x.shape[axis] + 0.5) for factor, axis in zip(factors, axes, strict=True)]
    elif scales is not None:
        factors = [float(one) for one in scales]
        counts = [int(factor * x.shape[axis]) for factor, axis in zip(factors, axes, strict=True)]
    else:
        raise ValueError("neither scales nor sizes are given")
    result = x.astype(np.float64) if call.get("mode", "nearest") != "nearest" else x
    crops = call.get("coordinate_transformation_mode", "") == "tf_crop_and_resize" and roi is not None
    for i, axis in enumerate(axes):
        part = (float(roi[i]), float(roi[i + len(axes)])) if crops and roi is not None else (0.0, 1.0)
        if factors[i] == 1 and counts[i] == x.shape[axis] and part == (0.0, 1.0):
            continue
        result = _axis(call, result, axis, factors[i], counts[i], part)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        result = np.clip(np.rint(result), limits.min, limits.max)
    return np.asarray(result).astype(x.dtype)


def upsample(call: Call, x: Array, scales: Array | None = None) -> Array:
    """Compute Upsample, which Resize replaced."""
    factors = [float(one) for one in (call.get("scales", []) if scales is None else scales)]
    result = x.astype(np.float64)
    for axis, factor in enumerate(factors):
        count = int(factor * x.shape[axis])
        if count != x.shape[axis]:
            result = _axis(call, result, axis, factor, count, (0.0, 1.0))
    return result.astype(x.dtype)


OPERATORS: dict[str, Operator] = {"Resize": resize, "Upsample": upsample}
