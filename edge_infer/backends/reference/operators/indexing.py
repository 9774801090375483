"""Operators that pick and place elements by their indices, and that sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _checked(indices: Array, size: int) -> Array:
    """Return indices from the start, or say which one is outside."""
    outside = (indices < -size) | (indices >= size)
    if np.any(outside):
        raise IndexError(f"index {indices[outside].reshape(-1)[0]} is outside {size} elements")
    return np.where(indices < 0, indices + size, indices)


def gather(call: Call, x: Array, indices: Array) -> Array:
    """Compute Gather."""
    axis = call.get("axis", 0)
    return np.take(x, _checked(indices, x.shape[axis]), axis)


def gather_elements(call: Call, x: Array, indices: Array) -> Array:
    """Compute GatherElements."""
    axis = call.get("axis", 0) % x.ndim
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = _checked(indices, x.shape[axis])
    return x[tuple(grid)]


def gather_nd(call: Call, x: Array, indices: Array) -> Array:
    """Compute GatherND."""
    batch = call.get("batch_dims", 0)
    count = int(np.prod(x.shape[:batch], dtype=np.int64))
    rows = x.reshape(count, *x.shape[batch:])
    places = indices.reshape(count, int(np.prod(indices.shape[batch:-1], dtype=np.int64)), indices.shape[-1])
    found = [row[tuple(np.moveaxis(place, -1, 0))] for row, place in zip(rows, places, strict=True)]
    rest = x.shape[batch + indices.shape[-1] :]
    return np.array(found, x.dtype).reshape(indices.shape[:-1] + rest)


_REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scatter_elements(call: Call, x: Array, indices: Array, updates: Array) -> Array:
    """Compute ScatterElements."""
    axis = call.get("axis", 0) % x.ndim
    grid = list(np.broadcast_arrays(*np.indices(indices.shape, sparse=True)))
    grid[axis] = _checked(indices, x.shape[axis])
    return _placed(x, tuple(grid), updates, call.get("reduction", "none"))


def scatter_nd(call: Call, x: Array, indices: Array, updates: Array) -> Array:
    """Compute ScatterND."""
    return _placed(x, tuple(np.moveaxis(indices, -1, 0)), updates, call.get("reduction", "none"))


def _placed(x: Array, where: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = np.array(x)
    if reduction == "none":
        result[where] = updates
    else:
        _REDUCE[reduction].at(result, where, updates)
    return result


def tensor_scatter(call: Call, cache: Array, update: Array, starts: Array | None = None) -> Array:
    """Compute TensorScatter: rows of a cache from where each sample's begin."""
    axis = call.get("axis", -2) % cache.ndim
    result = np.moveaxis(np.array(cache), axis, 1)
    new = np.moveaxis(update, axis, 1)
    for i in range(result.shape[0]):
        places = np.arange(new.shape[1]) + (0 if starts is None else int(starts[i]))
        if call.get("mode", "linear") == "circular":
            places %= result.shape[1]
        result[i, places] = new[i]
    return np.moveaxis(result, 1, axis)


def compress(call: Call, x: Array, condition: Array) -> Array:
    """Compute Compress."""
    return np.compress(condition, x, call.get("axis", None))


def non_zero(call: Call, x: Array) -> Array:
    """Compute NonZero."""
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


def unique(call: Call, x: Array) -> tuple[Array, ...]:
    """Compute Unique: sorted, or in the order of the first ones."""
    axis = call.get("axis", None)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call.get("sorted", 1):
        order = np.argsort(first)
        places = np.argsort(order)
        values, first, counts, inverse = (
            np.take(values, order, 0 if axis is None else axis),
            first[order],
            counts[order],
            places[inverse],
        )
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def top_k(call: Call, x: Array, k: Array | None = None) -> tuple[Array, Array]:
    """Compute TopK; of equal elements the first comes first."""
    axis = call.get("axis", -1)
    count = call.get("k", 0) if k is None else int(np.asarray(k).reshape(()))
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k is {count}, expected 0 to {x.shape[axis]}")
    if call.get("largest", 1):
        flipped = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(flipped, axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    order = np.take(order, np.arange(count), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def arg(call: Call, x: Array, *, largest: bool) -> Array:
    """Compute ArgMax or ArgMin."""
    axis = call.get("axis", 0) % x.ndim
    find = np.argmax if largest else np.argmin
    is_last = bool(call.get("select_last_index", 0))
    found = x.shape[axis] - 1 - find(np.flip(x, axis), axis) if is_last else find(x, axis)
    found = np.asarray(found).astype(np.int64)
    return np.expand_dims(found, axis) if call.get("keepdims", 1) else found


#: These read the numbers, not only where they lie.
COMPUTES = ("TopK", "ArgMax", "ArgMin", "Unique", "NonZero")
OPERATORS: dict[str, Operator] = {
    "ArgMax": lambda call, x: arg(call, x, largest=True),
    "ArgMin": lambda call, x: arg(call, x, largest=False),
    "Compress": compress,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "NonZero": non_zero,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "TopK": top_k,
    "Unique": unique,
}
