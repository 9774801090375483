"""ReduceMean and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Layout, Tensor, to_channels_last
from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.rules.elementwise import absolute

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule

_CODES = {
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "SUM",
}


def reduction(node: Node) -> None:
    """Over some axes; over height and width, as CNNs end, without a transposition."""
    if node.dtype() == np.bool_:
        raise Unsupported("elements of bool")
    rank = node.rank()
    axes = [axis % rank for axis in _axes(node, rank)]
    if not axes:
        node.alias(node.input())
        return
    keep = bool(node.integer("keepdims", 1))
    order = to_channels_last(rank)
    left = [axis for axis in order if axis not in axes]
    is_last = node.is_channels_last() and (keep or left == sorted(left))
    layout = Layout.CHANNELS_LAST if is_last else Layout.PLAIN
    places = sorted(order.index(axis) for axis in axes) if is_last else sorted(axes)
    options = schema.ReducerOptionsT()
    options.keepDims = keep
    # Without the axes that were summed, the rest is in plain order in either case.
    target = node.output(0, layout if keep else Layout.PLAIN)
    stored = node.stored("axes", np.array(places, np.int32))
    node.graph.add(_CODES[node.op_type], [node.input(0, layout), stored], [target], options)


def composed(node: Node) -> None:
    """ReduceL1 and its relatives: a function of the sum of a function of each element."""
    f, value = Formula(node), node.input()
    axes = [axis % value.rank for axis in _axes(node, value.rank)]
    keep = bool(node.integer("keepdims", 1))
    if not axes and value.dtype != np.float32:
        raise Unsupported("no axes")
    kind = node.op_type
    if kind == "ReduceLogSumExp":
        largest = f.reduce("REDUCE_MAX", value, axes) if axes else value
        total = f.unary("LOG", _sum(f, f.unary("EXP", f.subtract(value, largest)), axes, keep=True))
        result = f.add(total, largest)
        kept = [dim for i, dim in enumerate(result.signature) if i not in axes]
        node.give(result if keep else f.reshape(result, kept))
        return
    if kind == "ReduceL1":
        value = absolute(f, value)
    elif kind in ("ReduceL2", "ReduceSumSquare"):
        value = f.multiply(value, value)
    total = _sum(f, value, axes, keep=keep)
    last = {"ReduceL2": "SQRT", "ReduceLogSum": "LOG"}.get(kind)
    node.give(f.unary(last, total) if last else total)


def _sum(f: Formula, value: Tensor, axes: list[int], *, keep: bool) -> Tensor:
    return f.reduce("SUM", value, axes, keep=keep) if axes else value


def _axes(node: Node, rank: int) -> list[int]:
    """Read the axes: an attribute in older operator sets, an input in newer ones; all where there are none."""
    if node.has_input(1):
        given = [int(axis) for axis in node.needed_constant(1).reshape(-1)]
    else:
        given = node.integers("axes", [])
    if given or node.integer("noop_with_empty_axes", 0):
        return given
    return list(range(rank))


_COMPOSED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
RULES: dict[str, Rule] = {**dict.fromkeys(_CODES, reduction), **dict.fromkeys(_COMPOSED, composed)}
