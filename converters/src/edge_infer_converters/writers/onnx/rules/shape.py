"""Operators that move elements and compute none: integers stay as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.graph import FIRST, LAST
from edge_infer_converters.writers.onnx.rules.reading import constant, has_same_scale, option, optional, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


def move(graph: Graph, output: Tensor, value: str, *, is_stored: bool, first: bool = False) -> None:
    """Say which value the output of a move is."""
    (graph.give_raw if is_stored else graph.give)(output, value, first=first)


def stored(graph: Graph, given: Tensor, output: Tensor, *, first: bool = False) -> tuple[str, bool]:
    """Name a tensor as it is stored where its output means the same, else as floats; tell which."""
    is_same = has_same_scale(given, output)
    return (graph.raw if is_same else graph.real)(given, first=first), is_same


def to_pad(graph: Graph, given: Tensor, output: Tensor, *, first: bool = False) -> tuple[str, bool]:
    """Name a tensor as `stored` does; integers of 16 bits as floats, since ONNX Runtime pads none."""
    if given.dtype == np.int16 and given.quantization is not None:
        return graph.real(given, first=first), False
    return stored(graph, given, output, first=first)


def zero(graph: Graph, given: Tensor, *, is_stored: bool) -> str:
    """Name what stands for zero in a tensor, as it is stored or as a float."""
    if not is_stored:
        return graph.constant(np.array(0, np.float32))
    return graph.constant(np.array(given.quantization.zero_point if given.quantization else 0, given.dtype))


def reshape(operator: Operator, graph: Graph) -> None:
    """A free dimension, or a shape that is computed, stays so."""
    given, output = tensor(operator, 0), operator.outputs[0]
    is_pixel = graph.prefers_first(given) and given.signature[1:3] == (1, 1)  # no element moves: no transposition
    value, is_stored = stored(graph, given, output, first=is_pixel)
    wanted = optional(operator, 1) if operator.code == "RESHAPE" else None
    if wanted is not None and wanted.data is None:
        shape = graph.node("Cast", [graph.raw(wanted)], to=7)
        value = graph.node("Reshape", [value, shape])
    elif output.signature.count(-1) <= 1:
        value = graph.reshaped(value, output.signature if -1 in output.signature else _free(given, output, wanted))
    else:
        raise UnsupportedModel("a shape with several free dimensions")
    move(graph, output, value, is_stored=is_stored)


def _free(given: Tensor, output: Tensor, wanted: Tensor | None) -> tuple[int, ...]:
    """Return a fixed shape, with the free dimension that its constant names."""
    named = [] if wanted is None or wanted.data is None else wanted.data.reshape(-1).tolist()
    if len(named) == output.rank and -1 in named and -1 in given.signature:
        return tuple(-1 if size == -1 else dim for size, dim in zip(named, output.shape, strict=True))
    return output.shape


def transpose(operator: Operator, graph: Graph) -> None:
    """By a constant order of the axes; one that moves the channels only tells in which form the value is there."""
    given, output = tensor(operator, 0), operator.outputs[0]
    order = tuple(int(axis) % given.rank for axis in constant(operator, 1).reshape(-1))
    is_named = given.data is None and order in (FIRST, LAST)
    value, is_stored = stored(graph, given, output, first=is_named and order == FIRST)
    if not is_named:
        value = graph.node("Transpose", [value], perm=order)
    move(graph, output, value, is_stored=is_stored, first=is_named and order == LAST)


def concatenate(operator: Operator, graph: Graph) -> None:
    """Along an axis; inputs of other scales are brought to the output's."""
    given, output = [one for one in operator.inputs if one is not None], operator.outputs[0]
    axis = option(operator, "axis") % output.rank
    first = graph.prefers_first(*given) and output.rank == 4
    is_stored = has_same_scale(output, *given)
    values = [(graph.raw if is_stored else graph.real)(one, first=first) for one in given]
    value = graph.node("Concat", values, axis=FIRST.index(axis) if first else axis)
    if not is_stored:
        value = graph.activated(value, option(operator, "fusedActivationFunction"), output)
    move(graph, output, value, is_stored=is_stored, first=first)


def pack(operator: Operator, graph: Graph) -> None:
    """Tensors of one shape become one with an axis more."""
    output = operator.outputs[0]
    axis = option(operator, "axis") % output.rank
    values = []
    is_stored = has_same_scale(output, *(one for one in operator.inputs if one is not None))
    for place in range(len(operator.inputs)):
        value = (graph.raw if is_stored else graph.real)(tensor(operator, place))
        values.append(graph.node("Unsqueeze", [value, graph.integers(axis)]))
    move(graph, output, graph.node("Concat", values, axis=axis), is_stored=is_stored)


def unpack(operator: Operator, graph: Graph) -> None:
    """The opposite of PACK."""
    given = tensor(operator, 0)
    axis = option(operator, "axis") % given.rank
    _split(graph, given, operator.outputs, axis, [1] * len(operator.outputs), is_squeezed=True)


def split(operator: Operator, graph: Graph) -> None:
    """Into parts of one size, or of given ones."""
    places = (0, 1) if operator.code == "SPLIT_V" else (1, 0)
    given = tensor(operator, places[0])
    axis = int(constant(operator, 2 if operator.code == "SPLIT_V" else 0).reshape(-1)[0]) % given.rank
    _split(graph, given, operator.outputs, axis, [one.shape[axis] for one in operator.outputs])


def _split(
    graph: Graph, given: Tensor, outputs: Sequence[Tensor], axis: int, sizes: list[int], *, is_squeezed: bool = False
) -> None:
    is_stored = has_same_scale(given, *outputs)
    value = (graph.raw if is_stored else graph.real)(given)
    names = graph.node("Split", [value, graph.integers(*sizes)], axis=axis, count=len(sizes))
    for output, name in zip(outputs, [names] if len(sizes) == 1 else names, strict=True):
        part = graph.node("Squeeze", [name, graph.integers(axis)]) if is_squeezed else name
        move(graph, output, part, is_stored=is_stored)


def pad(operator: Operator, graph: Graph) -> None:
    """With zero, or with the number that PADV2 names."""
    given, output = tensor(operator, 0), operator.outputs[0]
    widths = constant(operator, 1).astype(np.int64)
    first = graph.prefers_first(given)
    value, is_stored = to_pad(graph, given, output, first=first)
    if first:
        widths = widths[list(FIRST)]
    filler = optional(operator, 2)
    if filler is None:
        inside = zero(graph, given, is_stored=is_stored)
    else:
        inside = graph.raw(filler) if is_stored else graph.real(filler)
        inside = graph.node("Reshape", [inside, graph.integers()]) if filler.rank else inside
    result = graph.node("Pad", [value, graph.integers(*widths.T.reshape(-1).tolist()), inside])
    move(graph, output, result, is_stored=is_stored, first=first)


def mirror_pad(operator: Operator, graph: Graph) -> None:
    """With what lies inside the edge; ONNX has no repeated edge before it."""
    given, output = tensor(operator, 0), operator.outputs[0]
    if option(operator, "mode") != schema.MirrorPadMode.REFLECT:
        raise UnsupportedModel("the mode `SYMMETRIC`")
    value, is_stored = to_pad(graph, given, output)
    widths = constant(operator, 1).astype(np.int64).T.reshape(-1).tolist()
    move(graph, output, graph.node("Pad", [value, graph.integers(*widths)], mode="reflect"), is_stored=is_stored)


def tile(operator: Operator, graph: Graph) -> None:
    """Repeated along each axis."""
    given, output = tensor(operator, 0), operator.outputs[0]
    value, is_stored = stored(graph, given, output)
    counts = graph.node("Cast", [graph.raw(tensor(operator, 1))], to=7)
    move(graph, output, graph.node("Tile", [value, counts]), is_stored=is_stored)


def broadcast(operator: Operator, graph: Graph) -> None:
    """To a shape, which may be computed."""
    given, output = tensor(operator, 0), operator.outputs[0]
    value, is_stored = stored(graph, given, output)
    shape = graph.node("Cast", [graph.raw(tensor(operator, 1))], to=7)
    move(graph, output, graph.node("Expand", [value, shape]), is_stored=is_stored)


def fill(operator: Operator, graph: Graph) -> None:
    """One number, in a shape that may be computed."""
    given, output = tensor(operator, 1), operator.outputs[0]
    shape = graph.node("Cast", [graph.raw(tensor(operator, 0))], to=7)
    graph.give_raw(output, graph.node("Expand", [graph.raw(given), shape]))


def zeros(operator: Operator, graph: Graph) -> None:
    """Zeros of the same shape."""
    given = tensor(operator, 0)
    shape = graph.node("Shape", [graph.raw(given)])
    graph.give_raw(operator.outputs[0], graph.node("Expand", [zero(graph, given, is_stored=True), shape]))


def count_up(operator: Operator, graph: Graph) -> None:
    """The numbers from a start to a limit, by steps."""
    ends = [graph.raw(tensor(operator, place)) for place in range(3)]
    value = graph.node("Range", [graph.node("Reshape", [one, graph.integers()]) for one in ends])
    graph.give_raw(operator.outputs[0], value)


def rank(operator: Operator, graph: Graph) -> None:
    """The number of axes."""
    graph.give_raw(operator.outputs[0], graph.constant(np.array(tensor(operator, 0).rank, np.int32)))


def shape_of(operator: Operator, graph: Graph) -> None:
    """The size of each axis."""
    output = operator.outputs[0]
    found = graph.node("Shape", [graph.raw(tensor(operator, 0))])
    graph.give_raw(output, found if output.dtype == np.int64 else graph.node("Cast", [found], to=6))


RULES = {
    "RESHAPE": reshape,
    "SQUEEZE": reshape,
    "EXPAND_DIMS": reshape,
    "TRANSPOSE": transpose,
    "CONCATENATION": concatenate,
    "PACK": pack,
    "UNPACK": unpack,
    "SPLIT": split,
    "SPLIT_V": split,
    "PAD": pad,
    "PADV2": pad,
    "MIRROR_PAD": mirror_pad,
    "TILE": tile,
    "BROADCAST_TO": broadcast,
    "FILL": fill,
    "SHAPE": shape_of,
    "RANK": rank,
    "RANGE": count_up,
    "ZEROS_LIKE": zeros,
}
