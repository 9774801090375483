"""Softmax, and BatchNormalization where it could not be folded into a convolution."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.targets.tflite.graph import Layout
from edge_infer_converters.targets.tflite.lowering import Unsupported, reshape
from edge_infer_converters.targets.tflite.rules.elementwise import layout_of

if TYPE_CHECKING:
    from edge_infer_converters.targets.tflite.graph import Tensor
    from edge_infer_converters.targets.tflite.lowering import Node, Rule

# Before this operator set, Softmax ran over all axes from `axis` on, taken as one.
_ONE_AXIS_OPSET = 13


def softmax(node: Node) -> None:
    """Over the last axis as it is; over another one between two transpositions."""
    rank = len(node.shape())
    axis = node.integer("axis", -1 if node.opset >= _ONE_AXIS_OPSET else 1) % rank
    if node.opset < _ONE_AXIS_OPSET and axis != rank - 1:
        _softmax_of_many_axes(node, axis)
    elif axis == 1 and node.is_channels_last():
        _softmax(node, node.input(0, Layout.CHANNELS_LAST), node.output(0, Layout.CHANNELS_LAST))
    elif axis == rank - 1:
        _softmax(node, node.input(), node.output())
    else:
        order = [i for i in range(rank) if i != axis] + [axis]
        signature = [node.signature()[i] for i in order]
        turned, result = node.scratch("turned", signature), node.scratch("softmax", signature)
        _turn(node, node.input(), turned, order)
        _softmax(node, turned, result)
        _turn(node, result, node.output(), list(np.argsort(order)))


def batch_normalization(node: Node) -> None:
    """Give x * factor + shift, for each channel."""
    scale, bias, mean, variance = (node.needed_constant(i).astype(np.float64) for i in range(1, 5))
    factor = scale / np.sqrt(variance + node.number("epsilon", 1e-5))
    shift = bias - mean * factor
    layout = layout_of(node)
    value = node.input(0, layout)
    dims = (-1,) if layout is Layout.CHANNELS_LAST else (-1, *[1] * (value.rank - 2))
    scaled = node.scratch("scaled", value.signature)
    by = [
        node.stored(name, array.reshape(dims).astype(value.dtype)) for name, array in (("by", factor), ("plus", shift))
    ]
    node.graph.add("MUL", [value, by[0]], [scaled], schema.MulOptionsT())
    node.graph.add("ADD", [scaled, by[1]], [node.output(0, layout)], schema.AddOptionsT())


def _softmax(node: Node, value: Tensor, target: Tensor) -> None:
    if node.op_type == "LogSoftmax":
        node.graph.add("LOG_SOFTMAX", [value], [target], schema.LogSoftmaxOptionsT())
        return
    options = schema.SoftmaxOptionsT()
    options.beta = 1.0
    node.graph.add("SOFTMAX", [value], [target], options)


def _softmax_of_many_axes(node: Node, axis: int) -> None:
    signature = node.signature()
    if -1 in signature[axis:]:
        raise Unsupported("a free size among the axes that it sums over")
    rows = prod(signature[:axis]) if -1 not in signature[:axis] else -1
    flat = (rows, prod(signature[axis:]))
    before, after = node.scratch("flat", flat), node.scratch("softmax", flat)
    reshape(node.graph, node.input(), before)
    _softmax(node, before, after)
    reshape(node.graph, after, node.output())


def _turn(node: Node, value: Tensor, target: Tensor, order: list[int]) -> None:
    stored = node.stored("order", np.array(order, np.int32))
    node.graph.add("TRANSPOSE", [value, stored], [target], schema.TransposeOptionsT())


RULES: dict[str, Rule] = {"BatchNormalization": batch_normalization, "LogSoftmax": softmax, "Softmax": softmax}
