"""Pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.windows import Windows, padded, taps, windows

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _lowest(dtype: np.dtype[Any]) -> float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def max_pool(call: Call, x: Array) -> Array | tuple[Array, Array]:
    """Compute MaxPool, with the place of each largest element where the node asks for it."""
    at = windows(call, x.shape[2:], call.get("kernel_shape", []))
    wide = padded(x, at, _lowest(x.dtype))
    best: Array = None
    places: Array = None
    grid = padded(np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:]), at, -1)
    if call.outputs < 2:
        for _, seen in taps(wide, at):
            best = np.array(seen) if best is None else np.maximum(best, seen, out=best)
        return best
    for (_, seen), (_, where) in zip(taps(wide, at), taps(grid, at), strict=True):
        if best is None:
            best, places = np.array(seen), np.broadcast_to(where, seen.shape).copy()
            continue
        more = seen > best
        best = np.where(more, seen, best)
        places = np.where(more, where, places)
    area = int(np.prod(x.shape[2:]))
    places = np.asarray(places)
    if call.get("storage_order", 0):
        coordinates = np.unravel_index(places, x.shape[2:])
        places = np.ravel_multi_index(coordinates[::-1], x.shape[2:][::-1])
    starts = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(at.kernel)) * area
    return best, (places + starts).astype(np.int64)


def average_pool(call: Call, x: Array, *, counts_overhang: bool = False) -> Array:
    """Compute AveragePool: over the input's elements, or with the padding's too.

    Args:
        call: The node.
        x: Its input.
        counts_overhang: Whether padding also counts where `ceil_mode` lets a window hang over it.
    """
    at = windows(call, x.shape[2:], call.get("kernel_shape", []))
    ones = np.zeros([size + low + high for size, low, high in zip(x.shape[2:], at.before, at.after, strict=True)])
    if call.get("count_include_pad", 0):
        after = at.after if counts_overhang else at.pads_after
        inner = tuple(slice(0, sum(sizes)) for sizes in zip(x.shape[2:], at.before, after, strict=True))
    else:
        inner = tuple(slice(low, low + size) for low, size in zip(at.before, x.shape[2:], strict=True))
    ones[inner] = 1
    counts = np.zeros(at.output)
    for _, seen in taps(ones, at):
        counts += seen
    return (_sum(padded(x, at), at) / counts).astype(x.dtype)


def _sum(wide: Array, at: Windows) -> Array:
    total: Array = None
    for _, seen in taps(wide, at):
        total = np.array(seen) if total is None else total + seen
    return total


def lp_pool(call: Call, x: Array) -> Array:
    """Compute LpPool."""
    at = windows(call, x.shape[2:], call.get("kernel_shape", []))
    p = call.get("p", 2)
    return (_sum(padded(np.abs(x) ** p, at), at) ** (1 / p)).astype(x.dtype)


def global_pool(call: Call, x: Array, *, largest: bool) -> Array:
    """Compute GlobalMaxPool or GlobalAveragePool."""
    axes = tuple(range(2, x.ndim))
    found = x.max(axes, keepdims=True) if largest else x.mean(axes, keepdims=True)
    return np.asarray(found).astype(x.dtype)


def global_lp_pool(call: Call, x: Array) -> Array:
    """Compute GlobalLpPool."""
    p = call.get("p", 2)
    total = np.sum(np.abs(x) ** p, tuple(range(2, x.ndim)), keepdims=True)
    return np.asarray(total ** (1 / p)).astype(x.dtype)


def max_unpool(call: Call, x: Array, places: Array, shape: Array | None = None) -> Array:
    """Compute MaxUnpool: places count in the smallest output, which a larger one holds at its start."""
    rank = x.ndim - 2
    kernel = call.get("kernel_shape", [])
    strides = call.get("strides", None) or [1] * rank
    pads = call.get("pads", None) or [0] * (2 * rank)
    sizes = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)]
    small = np.zeros((*x.shape[:2], *sizes), x.dtype)
    small.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    if shape is None:
        return small
    result = np.zeros([int(one) for one in shape], x.dtype)
    result[tuple(slice(0, size) for size in small.shape)] = small
    return result


OPERATORS: dict[str, Operator] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": lambda call, x: global_pool(call, x, largest=False),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": lambda call, x: global_pool(call, x, largest=True),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
}
