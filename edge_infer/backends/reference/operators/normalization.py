"""Normalizations and softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def softmax_of(x: Array, axis: int, *, is_log: bool = False) -> Array:
    """Compute softmax along an axis, or its logarithm."""
    moved = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    if is_log:
        return np.asarray(moved - np.log(np.sum(np.exp(moved), axis, keepdims=True)))
    np.exp(moved, out=moved)
    moved /= np.sum(moved, axis, keepdims=True)
    return np.asarray(moved)


def _flat(x: Array, axis: int) -> Array:
    """Return a matrix: the axes before one, and those from it on."""
    return x.reshape([int(np.prod(sizes, dtype=np.int64)) for sizes in (x.shape[:axis], x.shape[axis:])])


def softmax(call: Call, x: Array, *, is_log: bool) -> Array:
    """Compute Softmax or LogSoftmax; before version 13 over all axes from one on."""
    if call.opset >= 13:
        return softmax_of(x, call.get("axis", -1), is_log=is_log)
    axis = call.get("axis", 1) % max(1, x.ndim)
    rows = _flat(x, axis)
    return softmax_of(rows, 1, is_log=is_log).reshape(x.shape)


def hardmax(call: Call, x: Array) -> Array:
    """Compute Hardmax: one at the first largest element."""
    axis = call.get("axis", -1 if call.opset >= 13 else 1) % x.ndim
    if not x.size:
        return x
    rows = x if call.opset >= 13 else _flat(x, axis)
    along = axis if call.opset >= 13 else 1
    result = np.zeros_like(rows)
    np.put_along_axis(result, np.expand_dims(np.argmax(rows, along), along), 1, along)
    return result.reshape(x.shape)


def _wide(call: Call, x: Array) -> Any:
    """Return the type to normalize in: `stash_type`, or wider."""
    return x.astype(np.float32) if x.dtype == np.float16 and call.get("stash_type", 1) == 1 else x


def layer_normalization(call: Call, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, Array, Array]:
    """Compute LayerNormalization."""
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    wide = _wide(call, x)
    mean = wide.mean(axes, keepdims=True)
    centered = wide - mean
    inverse = 1 / np.sqrt(
        np.mean(np.square(centered), axes, keepdims=True) + wide.dtype.type(call.get("epsilon", 1e-5))
    )
    result = (centered * inverse).astype(x.dtype, copy=False) * scale
    if bias is not None:
        result = result + bias
    return result.astype(x.dtype, copy=False), mean, inverse


def rms_normalization(call: Call, x: Array, scale: Array) -> Array:
    """Compute RMSNormalization."""
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    wide = _wide(call, x)
    size = np.sqrt(np.mean(np.square(wide), axes, keepdims=True) + wide.dtype.type(call.get("epsilon", 1e-5)))
    return np.asarray((wide / size).astype(x.dtype) * scale).astype(scale.dtype)


def instance_normalization(call: Call, x: Array, scale: Array, bias: Array) -> Array:
    """Compute InstanceNormalization."""
    axes = tuple(range(2, x.ndim))
    shape = (-1, *(1,) * (x.ndim - 2))
    centered = x - x.mean(axes, keepdims=True)
    size = np.sqrt(np.mean(np.square(centered), axes, keepdims=True) + call.get("epsilon", 1e-5))
    return np.asarray(scale.reshape(shape) * centered / size + bias.reshape(shape)).astype(x.dtype)


def group_normalization(call: Call, x: Array, scale: Array, bias: Array) -> Array:
    """Compute GroupNormalization; before version 21 scale and bias were of groups."""
    groups = call.get("num_groups", 1)
    parts = _wide(call, x).reshape(x.shape[0], groups, -1)
    centered = parts - parts.mean(2, keepdims=True)
    size = np.sqrt(np.mean(np.square(centered), 2, keepdims=True) + call.get("epsilon", 1e-5))
    normal = (centered / size).reshape(x.shape)
    if scale.size == groups and groups != x.shape[1]:
        scale, bias = (np.repeat(one, x.shape[1] // groups) for one in (scale, bias))
    shape = (-1, *(1,) * (x.ndim - 2))
    return np.asarray(normal * scale.reshape(shape) + bias.reshape(shape)).astype(x.dtype)


def batch_normalization(
    call: Call, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Array | tuple[Array, ...]:
    """Compute BatchNormalization; where it trains, by the batch's own mean and variance."""
    shape = (-1, *(1,) * (x.ndim - 2))
    trains = bool(call.get("training_mode", 0))
    new_mean, new_variance = mean, variance
    if trains:
        axes = (0, *range(2, x.ndim))
        share = call.get("momentum", 0.9)
        own, spread = x.mean(axes), x.var(axes)
        new_mean = np.asarray(mean * share + own * (1 - share)).astype(mean.dtype)
        new_variance = np.asarray(variance * share + spread * (1 - share)).astype(variance.dtype)
        mean, variance = own, spread
    factor = scale / np.sqrt(variance + variance.dtype.type(call.get("epsilon", 1e-5)))
    result = x * factor.reshape(shape) + (bias - mean * factor).reshape(shape)
    result = result.astype(x.dtype, copy=False)
    return (result, new_mean, new_variance) if trains else result


def lrn(call: Call, x: Array) -> Array:
    """Compute LRN: over neighbouring channels."""
    size = call.get("size", 1)
    low, high = (size - 1) // 2, size // 2 + 1
    total = np.zeros_like(x)
    for channel in range(x.shape[1]):
        part = x[:, max(0, channel - low) : channel + high]
        total[:, channel] = np.sum(np.square(part), 1)
    scale = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * total
    return np.asarray(x / scale ** call.get("beta", 0.75)).astype(x.dtype)


def lp_normalization(call: Call, x: Array) -> Array:
    """Compute LpNormalization; a row of zeros stays so."""
    axis, p = call.get("axis", -1), call.get("p", 2)
    size = np.sum(np.abs(x), axis, keepdims=True) if p == 1 else np.sqrt(np.sum(np.square(x), axis, keepdims=True))
    return np.divide(x, size, out=np.zeros_like(x), where=size != 0)


def mean_variance(call: Call, x: Array) -> Array:
    """Compute MeanVarianceNormalization."""
    axes = tuple(call.get("axes", [0, 2, 3]))
    centered = x - x.mean(axes, keepdims=True)
    return np.asarray(centered / (np.sqrt(np.mean(np.square(centered), axes, keepdims=True)) + 1e-9)).astype(x.dtype)


OPERATORS: dict[str, Operator] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "Hardmax": hardmax,
    "InstanceNormalization": instance_normalization,
    "LRN": lrn,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": lambda call, x: softmax(call, x, is_log=True),
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance,
    "RMSNormalization": rms_normalization,
    "Softmax": lambda call, x: softmax(call, x, is_log=False),
}
