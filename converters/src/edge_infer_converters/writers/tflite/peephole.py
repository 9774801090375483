"""Tidy a TFLite graph: fuse activations and biases, join what does one thing, drop what nothing reads."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor

#: Operators that others can apply to what they give, by their number in an operator's options.
ACTIVATIONS = {
    "RELU": schema.ActivationFunctionType.RELU,
    "RELU6": schema.ActivationFunctionType.RELU6,
    "RELU_N1_TO_1": schema.ActivationFunctionType.RELU_N1_TO_1,
}
_REDUCTIONS = ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")
_MOVES = ("GATHER", "RESHAPE", "SLICE", "STRIDED_SLICE", "TRANSPOSE")
_WITH_BIAS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
# Operators whose options can name an activation.
_FUSING = (
    "ADD",
    "AVERAGE_POOL_2D",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "DIV",
    "FULLY_CONNECTED",
    "MAX_POOL_2D",
    "MUL",
    "SUB",
)


def tidy(graph: Graph, *, reorders: bool = True) -> None:
    """Simplify a graph in place; the values of its outputs stay what they are.

    Args:
        graph: The graph.
        reorders: Whether weights may be stored in another order, and equal values be one; not where they have scales.
    """
    if reorders:
        _join_equal(graph)
    _join_reshapes(graph)
    _drop_dimensions_in_reductions(graph)
    if reorders:
        _read_rows_in_another_order(graph)
    _fuse_biases(graph)
    fuse_activations(graph)
    _drop_unread(graph)


def widen_halves(graph: Graph) -> bool:
    """Let constants in half precision be the float32 numbers that DEQUANTIZE makes of them.

    Returns:
        Whether the graph has neither halves nor scales then.
    """
    for operator in [one for one in graph.operators if one.code == "DEQUANTIZE"]:
        (given,) = operator.inputs
        if given is not None and given.data is not None and given.dtype == np.float16:
            operator.outputs[0].data = given.data.astype(np.float32)
            graph.operators.remove(operator)
    read = (tensor for one in graph.operators for tensor in (*one.inputs, *one.outputs) if tensor is not None)
    every = (*read, *graph.inputs, *graph.outputs)
    return all(tensor.dtype != np.float16 and tensor.quantization is None for tensor in every)


def _fuse_biases(graph: Graph) -> None:
    """Let a convolution or FULLY_CONNECTED add the constant that an ADD behind it adds to each channel or row."""
    for dense, add in _pairs(graph, _WITH_BIAS, ("ADD",)):
        other = [tensor for tensor in add.inputs if tensor is not None and tensor is not dense.outputs[0]]
        weights, own = dense.inputs[1:3]
        if len(other) != 1 or other[0].data is None or weights is None or dense.outputs[0].quantization is not None:
            continue
        if own is not None and (own.data is None or _activation(dense) != schema.ActivationFunctionType.NONE):
            continue
        width = weights.shape[-1 if dense.code == "DEPTHWISE_CONV_2D" else 0]
        is_row = other[0].data.size == width == other[0].shape[-1]
        if is_row and add.outputs[0].signature == dense.outputs[0].signature:  # a row of more axes would add some
            row = other[0].data.reshape(-1)
            dense.inputs[2] = graph.constant(f"{other[0].name}/bias", row if own is None else own.data + row)
            _skip(graph, dense, add)


def _read_rows_in_another_order(graph: Graph) -> None:
    """Let FULLY_CONNECTED read flattened images as they lie, its weights in that order: a TRANSPOSE before goes."""
    readers = Counter(id(tensor) for one in graph.operators for tensor in one.inputs)
    of_dense = {id(reshape): dense for reshape, dense in _pairs(graph, ("RESHAPE",), ("FULLY_CONNECTED",))}
    for turn, reshape in _pairs(graph, ("TRANSPOSE",), ("RESHAPE",)):
        dense = of_dense.get(id(reshape))
        given, order = turn.inputs
        if dense is None or given is None or order is None or order.data is None:
            continue
        axes = [int(axis) for axis in order.data.reshape(-1)]
        rows, weights = reshape.outputs[0], dense.inputs[1]
        turned = turn.outputs[0].shape
        if axes[0] or dense.inputs[0] is not rows or rows.shape != (turned[0], math.prod(turned[1:])):
            continue
        if weights is None or weights.data is None or weights.dtype != np.float32 or readers[id(weights)] > 1:
            continue
        columns = weights.data.reshape(-1, *turned[1:]).transpose(0, *(axes.index(i) for i in range(1, len(axes))))
        graph.store(weights, columns.reshape(weights.shape))
        reshape.inputs[0] = given
        graph.operators.remove(turn)


def _activation(operator: Operator) -> int:
    return int(getattr(operator.options, "fusedActivationFunction", schema.ActivationFunctionType.NONE))


def fuse_activations(graph: Graph) -> None:
    """Let an operator of floats apply, in place, the activation behind it.

    In float that saves little. In int8 an activation by itself changes the scale, for which LiteRT has no fast kernel.
    """
    for producer, activation in _pairs(graph, _FUSING, tuple(ACTIVATIONS)):
        options = producer.options
        if producer.outputs[0].quantization is not None:
            continue
        if getattr(options, "fusedActivationFunction", None) == schema.ActivationFunctionType.NONE:
            setattr(options, "fusedActivationFunction", ACTIVATIONS[activation.code])  # noqa: B010  untyped schema
            _skip(graph, producer, activation)


def _join_equal(graph: Graph) -> None:
    """Let what moves the same elements to the same places do it once."""
    at_the_end = {id(tensor) for tensor in graph.outputs}
    known: dict[tuple[object, ...], Operator] = {}
    given: dict[int, Tensor] = {}
    kept = []
    for operator in graph.operators:
        operator.inputs = [one if one is None else given.get(id(one), one) for one in operator.inputs]
        is_move = (
            operator.code in _MOVES
            and id(operator.outputs[0]) not in at_the_end
            and not any(one is not None and one.is_variable for one in operator.inputs)
        )
        settings = {} if operator.options is None else vars(operator.options)
        key = (operator.code, *map(id, operator.inputs), operator.outputs[0].signature, repr(sorted(settings.items())))
        if is_move and key in known:
            given[id(operator.outputs[0])] = known[key].outputs[0]
            continue
        if is_move:
            known[key] = operator
        kept.append(operator)
    graph.operators = kept


def _join_reshapes(graph: Graph) -> None:
    """Of two reshapes in a row the second is enough."""
    dropped: set[int] = set()
    for first, second in _pairs(graph, ("RESHAPE",), ("RESHAPE",)):  # in order: of three, the last reads the first's
        second.inputs[0] = first.inputs[0]
        dropped.add(id(first))
    graph.operators = [one for one in graph.operators if id(one) not in dropped]


def _drop_dimensions_in_reductions(graph: Graph) -> None:
    """Let a reduction drop the dimensions of 1 that a reshape behind it takes away: pooling and flattening at once."""
    for reduction, reshape in _pairs(graph, _REDUCTIONS, ("RESHAPE",)):
        axes = reduction.inputs[1]
        if not getattr(reduction.options, "keepDims", False) or axes is None or axes.data is None:
            continue
        gone = {int(axis) for axis in axes.data.reshape(-1)}
        left = tuple(dim for i, dim in enumerate(reduction.outputs[0].signature) if i not in gone)
        if left == reshape.outputs[0].signature:
            setattr(reduction.options, "keepDims", False)  # noqa: B010  untyped schema
            _skip(graph, reduction, reshape)


def _pairs(graph: Graph, first: tuple[str, ...], second: tuple[str, ...]) -> list[tuple[Operator, Operator]]:
    """Find each operator of the second kinds that alone reads what one of the first kinds gives."""
    readers: dict[int, list[Operator]] = {}
    makers: dict[int, Operator] = {}
    for operator in graph.operators:
        for tensor in operator.inputs:
            if tensor is not None:
                readers.setdefault(id(tensor), []).append(operator)
        for tensor in operator.outputs:
            makers[id(tensor)] = operator
    at_the_end = {id(tensor) for tensor in graph.outputs}
    found: list[tuple[Operator, Operator]] = []
    for operator in graph.operators:
        for tensor in operator.inputs if operator.code in second else ():
            maker = makers.get(id(tensor))
            if maker is None or maker.code not in first:
                continue
            if id(tensor) not in at_the_end and len(readers[id(tensor)]) == 1:
                found.append((maker, operator))
                break
    return found


def _skip(graph: Graph, kept: Operator, skipped: Operator) -> None:
    """Take an operator out of the graph: the one before it gives its output."""
    kept.outputs = skipped.outputs
    graph.operators.remove(skipped)


def _drop_unread(graph: Graph) -> None:
    """Drop the operators that lead to no output."""
    needed: set[int] = {id(tensor) for tensor in graph.outputs}
    kept: list[Operator] = []
    for operator in reversed(graph.operators):
        if any(id(tensor) in needed for tensor in operator.outputs):
            kept.append(operator)
            needed |= {id(tensor) for tensor in operator.inputs if tensor is not None}
    graph.operators = kept[::-1]
