"""ReduceMean and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.targets.tflite.graph import Layout, to_channels_last

if TYPE_CHECKING:
    from edge_infer_converters.targets.tflite.lowering import Node, Rule

_CODES = {
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "SUM",
}


def reduction(node: Node) -> None:
    """Over some axes; over height and width, as CNNs end, without a transposition."""
    rank = len(node.shape())
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


def _axes(node: Node, rank: int) -> list[int]:
    """Read the axes: an attribute in older operator sets, an input in newer ones; all where there are none."""
    if node.has_input(1):
        given = [int(axis) for axis in node.needed_constant(1).reshape(-1)]
    else:
        given = node.integers("axes", [])
    if given or node.integer("noop_with_empty_axes", 0):
        return given
    return list(range(rank))


RULES: dict[str, Rule] = dict.fromkeys(_CODES, reduction)
