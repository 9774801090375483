"""Operators that reduce axes, and running sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.shapes import ints

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.backends.reference.call import Array, Call, Operator


def reduction(function: Callable[..., Any]) -> Operator:
    """Make an operator of a function of an array, axes and whether they are kept."""

    def run(call: Call, x: Array, axes: Array | None = None) -> Array:
        given = call.get("axes", None) if axes is None else ints(axes)
        if not given and call.get("noop_with_empty_axes", 0):
            along: tuple[int, ...] | None = ()
        else:
            along = tuple(given) if given else None
        with np.errstate(divide="ignore"):
            found = function(x, axis=along, keepdims=bool(call.get("keepdims", 1)))
        return np.asarray(found).astype(x.dtype, copy=False)

    return run


def _largest(x: Array, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind == "b":
        return np.any(x, axis=axis, keepdims=keepdims)
    return np.max(x, axis=axis, keepdims=keepdims, initial=-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min)


def _least(x: Array, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind == "b":
        return np.all(x, axis=axis, keepdims=keepdims)
    return np.min(x, axis=axis, keepdims=keepdims, initial=np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max)


def _mean(x: Array, axis: Any, keepdims: bool) -> Any:
    if not x.size:  # numpy would warn
        whole = np.sum(x, axis=axis, keepdims=keepdims)
        return np.full_like(whole, np.nan if x.dtype.kind == "f" else 0)
    return np.mean(x, axis=axis, keepdims=keepdims, dtype=None if x.dtype.kind == "f" else np.float64)


def _log_sum_exp(x: Array, axis: Any, keepdims: bool) -> Any:
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else total.reshape(np.sum(x, axis=axis).shape)


def running(function: Callable[..., Any], nothing: int) -> Operator:
    """Make an operator that accumulates along an axis, with the element itself or without."""

    def run(call: Call, x: Array, axis: Array) -> Array:
        along = int(np.asarray(axis).reshape(()))
        ordered = np.flip(x, along) if call.get("reverse", 0) else x
        found = function(ordered, axis=along, dtype=x.dtype)
        if call.get("exclusive", 0) and x.shape[along]:
            first = np.full_like(np.take(found, [0], along), nothing)
            found = np.concatenate([first, np.take(found, np.arange(x.shape[along] - 1), along)], along)
        return np.flip(found, along) if call.get("reverse", 0) else np.asarray(found)

    return run


OPERATORS: dict[str, Operator] = {
    "CumSum": running(np.cumsum, 0),
    "CumProd": running(np.cumprod, 1),
    "ReduceSum": reduction(np.sum),
    "ReduceMean": reduction(_mean),
    "ReduceMax": reduction(_largest),
    "ReduceMin": reduction(_least),
    "ReduceProd": reduction(np.prod),
    "ReduceL1": reduction(lambda x, **how: np.sum(np.abs(x), **how)),
    "ReduceL2": reduction(lambda x, **how: np.sqrt(np.sum(np.square(x), **how))),
    "ReduceSumSquare": reduction(lambda x, **how: np.sum(np.square(x), **how)),
    "ReduceLogSum": reduction(lambda x, **how: np.log(np.sum(x, **how))),
    "ReduceLogSumExp": reduction(_log_sum_exp),
}
