"""Tidy a TFLite graph: fuse activations and biases, join what does one thing, drop what nothing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_edge_litert import schema_py_generated as schema

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Graph, Operator

#: Operators that others can apply to what they give, by their number in an operator's options.
ACTIVATIONS = {
    "RELU": schema.ActivationFunctionType.RELU,
    "RELU6": schema.ActivationFunctionType.RELU6,
    "RELU_N1_TO_1": schema.ActivationFunctionType.RELU_N1_TO_1,
}
_REDUCTIONS = ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")
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


def tidy(graph: Graph) -> None:
    """Simplify a graph in place; the values of its outputs stay what they are."""
    _join_reshapes(graph)
    _drop_dimensions_in_reductions(graph)
    _fuse_biases(graph)
    fuse_activations(graph)
    _drop_unread(graph)


def _fuse_biases(graph: Graph) -> None:
    """Let FULLY_CONNECTED add the constant that an ADD behind it adds to each row."""
    for dense, add in _pairs(graph, ("FULLY_CONNECTED",), ("ADD",)):
        other = [tensor for tensor in add.inputs if tensor is not None and tensor is not dense.outputs[0]]
        weights = dense.inputs[1]
        if len(other) != 1 or other[0].data is None or dense.inputs[2] is not None or weights is None:
            continue
        is_row = other[0].data.size == weights.shape[0] == other[0].shape[-1]
        if is_row and add.outputs[0].signature == dense.outputs[0].signature:  # a row of more axes would add some
            dense.inputs[2] = graph.constant(f"{other[0].name}/bias", other[0].data.reshape(-1))
            _skip(graph, dense, add)


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
