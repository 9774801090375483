"""Softmax, and BatchNormalization where it could not be folded into a convolution."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Layout
from edge_infer_converters.writers.tflite.node import BatchDependent, Unsupported, reshape
from edge_infer_converters.writers.tflite.rules.elementwise import layout_of

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule

# Before this operator set, Softmax ran over all axes from `axis` on, taken as one.
_ONE_AXIS_OPSET = 13


def softmax(node: Node) -> None:
    """Directly over the last axis; over another one between two transpositions."""
    rank = node.rank()
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
    if node.integer("training_mode", 0):
        raise Unsupported("training mode")
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
        raise BatchDependent(node.inputs[0])
    rows = prod(signature[:axis]) if -1 not in signature[:axis] else -1
    flat = (rows, prod(signature[axis:]))
    before, after = node.scratch("flat", flat), node.scratch("softmax", flat)
    reshape(node.graph, node.input(), before)
    _softmax(node, before, after)
    reshape(node.graph, after, node.output())


def _turn(node: Node, value: Tensor, target: Tensor, order: list[int]) -> None:
    stored = node.stored("order", np.array(order, np.int32))
    node.graph.add("TRANSPOSE", [value, stored], [target], schema.TransposeOptionsT())


def layer_normalization(node: Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over the axes from `axis` on."""
    f, value = Formula(node), node.input()
    axes = list(range(node.integer("axis", -1) % value.rank, value.rank))
    mean = f.reduce("MEAN", value, axes)
    centred = f.subtract(value, mean)
    inverse = _inverse_deviation(f, centred, axes, node.number("epsilon", 1e-5))
    result = f.multiply(f.multiply(centred, inverse), node.input(1))
    node.give(f.add(result, node.input(2)) if node.has_input(2) else result)
    for index, tensor in ((1, mean), (2, inverse)):
        if node.gives(index):
            node.give(tensor, index=index)


def instance_normalization(node: Node) -> None:
    """Each channel of each sample by its own mean and deviation."""
    f, rank = Formula(node), node.rank()
    value = node.input(0, Layout.CHANNELS_LAST)
    axes = list(range(1, rank - 1))
    centred = f.subtract(value, f.reduce("MEAN", value, axes))
    scaled = f.multiply(centred, _inverse_deviation(f, centred, axes, node.number("epsilon", 1e-5)))
    node.give(f.add(f.multiply(scaled, node.input(1)), node.input(2)), Layout.CHANNELS_LAST)


def lp_normalization(node: Node) -> None:
    """Divide by the norm along one axis; zeros stay."""
    f, value = Formula(node), node.input()
    axes = [node.integer("axis", -1)]
    if node.integer("p", 2) == 1:
        norm = f.reduce("SUM", f.unary("ABS", value), axes)
    else:
        norm = f.unary("SQRT", f.reduce("SUM", f.multiply(value, value), axes))
    node.give(f.divide(value, f.binary("MAXIMUM", norm, float(np.finfo(np.float32).tiny))))


def local_response_normalization(node: Node) -> None:
    """Divide by a power of the squares of the channels around each."""
    size = node.integer("size", 1)
    if size % 2 == 0:
        raise Unsupported("an even size")
    options = schema.LocalResponseNormalizationOptionsT()
    options.radius = size // 2
    options.bias = node.number("bias", 1.0)
    options.alpha = node.number("alpha", 1e-4) / size
    options.beta = node.number("beta", 0.75)
    layout = Layout.CHANNELS_LAST
    node.graph.add("LOCAL_RESPONSE_NORMALIZATION", [node.input(0, layout)], [node.output(0, layout)], options)


def hardmax(node: Node) -> None:
    """1 at the first largest element along one axis, else 0."""
    f, rank = Formula(node), node.rank()
    axis = node.integer("axis", -1 if node.opset >= _ONE_AXIS_OPSET else 1) % rank
    if node.opset < _ONE_AXIS_OPSET and axis != rank - 1:
        raise Unsupported("several axes taken as one")
    value = node.input()
    order = [i for i in range(rank) if i != axis] + [axis]
    turned = f.transpose(value, order)
    options = schema.ArgMaxOptionsT()
    options.outputType = schema.TensorType.INT32
    last = node.stored("axis", np.array(rank - 1, np.int32))
    place = f.operator("ARG_MAX", [turned, last], turned.signature[:-1], np.dtype(np.int32), options)
    one_hot = schema.OneHotOptionsT()
    one_hot.axis = -1
    stored = [f.constant(np.array(one)) for one in (np.int32(node.size(axis)), np.float32(1), np.float32(0))]
    row = f.operator("ONE_HOT", [place, *stored], turned.signature, value.dtype, one_hot)
    node.give(f.transpose(row, [int(i) for i in np.argsort(order)]))


def _inverse_deviation(f: Formula, centred: Tensor, axes: list[int], epsilon: float) -> Tensor:
    variance = f.reduce("MEAN", f.multiply(centred, centred), axes)
    return f.unary("RSQRT", f.add(variance, epsilon))


RULES: dict[str, Rule] = {
    "BatchNormalization": batch_normalization,
    "Hardmax": hardmax,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response_normalization,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": softmax,
    "LpNormalization": lp_normalization,
    "Softmax": softmax,
}
