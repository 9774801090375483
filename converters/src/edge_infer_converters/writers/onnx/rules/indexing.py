"""Slices, gathers, the places of the largest, sums so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.elementwise import where
from edge_infer_converters.writers.onnx.rules.reading import constant, option, tensor
from edge_infer_converters.writers.onnx.rules.shape import move, stored

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

#: Behind the end of every axis, for Slice.
_END = 2**31 - 1


def cut(operator: Operator, graph: Graph) -> None:
    """From a place on, so many; -1 stands for all that are left. Both may be computed."""
    given, output = tensor(operator, 0), operator.outputs[0]
    value, is_stored = stored(graph, given, output)
    begin, sizes = _places(operator, graph, 1), _places(operator, graph, 2)
    ends = graph.node("Add", [begin, sizes])
    named = tensor(operator, 2).data
    if named is None or np.any(named < 0):
        is_rest = graph.node("Less", [sizes, graph.integers(0)])
        ends = graph.node("Where", [is_rest, graph.integers(_END), ends])
    move(graph, output, graph.node("Slice", [value, begin, ends]), is_stored=is_stored)


def _places(operator: Operator, graph: Graph, place: int) -> str:
    """Name an input as a vector of int64."""
    found = tensor(operator, place)
    if found.data is not None:
        return graph.integers(*(int(one) for one in found.data.reshape(-1)))
    return str(graph.node("Cast", [graph.raw(found)], to=TensorProto.INT64))


def strided_slice(operator: Operator, graph: Graph) -> None:
    """As Python's slices; axes may be added, and those of one index dropped. Begin and end may be computed."""
    given, output = tensor(operator, 0), operator.outputs[0]
    if option(operator, "ellipsisMask") or option(operator, "offset", default=False):
        raise UnsupportedModel("an ellipsis or ends that count from the beginning")
    strides = [int(one) for one in constant(operator, 3).reshape(-1)]
    masks = {name: option(operator, name) for name in ("beginMask", "endMask", "newAxisMask", "shrinkAxisMask")}
    is_set = {name: [bool(mask >> i & 1) for i in range(len(strides))] for name, mask in masks.items()}
    kept = [i for i, is_new in enumerate(is_set["newAxisMask"]) if not is_new]
    dropped = [axis for axis, i in enumerate(kept) if is_set["shrinkAxisMask"][i]]
    added = [i - sum(is_set["shrinkAxisMask"][:i]) for i in range(len(strides)) if i not in kept]
    value, is_stored = stored(graph, given, output)
    if kept:
        value = graph.node("Slice", [value, *_bounds(operator, graph, strides, is_set, kept)])
    if dropped:
        value = graph.node("Squeeze", [value, graph.integers(*dropped)])
    if added:
        value = graph.node("Unsqueeze", [value, graph.integers(*added)])
    move(graph, output, value, is_stored=is_stored)


def _bounds(
    operator: Operator, graph: Graph, strides: list[int], is_set: dict[str, list[bool]], kept: list[int]
) -> list[str]:
    """Name starts, ends, axes and steps for Slice."""
    starts: list[int | None] = [None] * len(strides)
    ends: list[int | None] = [None] * len(strides)
    steps = list(strides)
    for i, stride in enumerate(strides):
        if is_set["beginMask"][i]:
            starts[i] = 0 if stride > 0 or is_set["shrinkAxisMask"][i] else _END
        if is_set["shrinkAxisMask"][i]:
            steps[i] = 1
        elif is_set["endMask"][i]:
            ends[i] = _END if stride > 0 else -_END
    begin = _chosen(graph, starts, _places(operator, graph, 1), kept)
    last = _chosen(graph, ends, _places(operator, graph, 2), kept)
    if any(is_single := [is_set["shrinkAxisMask"][i] for i in kept]):  # the end of one index is behind it
        after = graph.node("Add", [begin, graph.integers(1)])
        is_last = graph.node("Equal", [begin, graph.integers(-1)])
        after = graph.node("Where", [is_last, graph.integers(_END), after])
        last = graph.node("Where", [graph.constant(np.array(is_single)), after, last])
    return [begin, last, graph.integers(*range(len(kept))), graph.integers(*(steps[i] for i in kept))]


def _chosen(graph: Graph, fixed: list[int | None], value: str, kept: list[int]) -> str:
    """Return a vector with the numbers that a mask fixes, of the axes that are kept."""
    if len(kept) < len(fixed):
        value = graph.node("Gather", [value, graph.integers(*kept)])
    numbers = [fixed[i] for i in kept]
    if all(one is None for one in numbers):
        return value
    mask = graph.constant(np.array([one is not None for one in numbers]))
    return str(graph.node("Where", [mask, graph.integers(*(one or 0 for one in numbers)), value]))


def reverse(operator: Operator, graph: Graph) -> None:
    """The elements of some axes from the last to the first."""
    given, output = tensor(operator, 0), operator.outputs[0]
    axes = [int(axis) % given.rank for axis in constant(operator, 1).reshape(-1)]
    value, is_stored = stored(graph, given, output)
    lists = ([-1] * len(axes), [-_END] * len(axes), axes, [-1] * len(axes))
    result = graph.node("Slice", [value, *(graph.integers(*one) for one in lists)])
    move(graph, output, result, is_stored=is_stored)


def gather(operator: Operator, graph: Graph) -> None:
    """Rows of a table along an axis; of one table for each of a batch where the axis is the first behind it."""
    places = (1, 0) if operator.code == "EMBEDDING_LOOKUP" else (0, 1)
    given, output = tensor(operator, places[0]), operator.outputs[0]
    batch = option(operator, "batchDims")
    axis = option(operator, "axis") % given.rank
    if batch and batch != axis:
        raise UnsupportedModel(f"{batch} axes of a batch and axis {axis}")
    value, is_stored = stored(graph, given, output)
    rows = graph.raw(tensor(operator, places[1]))
    if batch:
        rows = graph.node("Cast", [graph.node("Unsqueeze", [rows, graph.integers(-1)])], to=7)
        result = graph.node("GatherND", [value, rows], batch_dims=batch)
    else:
        result = graph.node("Gather", [value, rows], axis=axis)
    move(graph, output, result, is_stored=is_stored)


def gather_nd(operator: Operator, graph: Graph) -> None:
    """Elements or parts by the indices of several axes."""
    given, output = tensor(operator, 0), operator.outputs[0]
    value, is_stored = stored(graph, given, output)
    places = graph.node("Cast", [graph.raw(tensor(operator, 1))], to=7)
    move(graph, output, graph.node("GatherND", [value, places]), is_stored=is_stored)


def places(operator: Operator, graph: Graph) -> None:
    """The indices of the elements that are true or not zero, in rows."""
    given = tensor(operator, 0)
    found = graph.node("Transpose", [graph.node("NonZero", [graph.raw(given)])], perm=(1, 0))
    graph.give_raw(operator.outputs[0], found)


def arg(operator: Operator, graph: Graph) -> None:
    """The place of the largest or smallest, the first of equal ones."""
    given, output = tensor(operator, 0), operator.outputs[0]
    axis = int(constant(operator, 1).reshape(-1)[0]) % given.rank
    kind = "ArgMax" if operator.code == "ARG_MAX" else "ArgMin"
    value = graph.raw(given)
    if given.dtype == np.bool_:
        value = graph.node("Cast", [value], to=TensorProto.INT32)
    found = graph.node(kind, [value], axis=axis, keepdims=0)
    graph.give_raw(output, found if output.dtype == np.int64 else graph.node("Cast", [found], to=6))


def top(operator: Operator, graph: Graph) -> None:
    """The largest of the last axis in order, and their places."""
    given = tensor(operator, 0)
    count = graph.node("Reshape", [graph.node("Cast", [graph.raw(tensor(operator, 1))], to=7), graph.integers(1)])
    values, places = graph.node("TopK", [graph.real(given), count], count=2, axis=-1)
    graph.give(operator.outputs[0], values)
    graph.give_raw(operator.outputs[1], graph.node("Cast", [places], to=6))


def cumulative_sum(operator: Operator, graph: Graph) -> None:
    """Sums so far along an axis."""
    given, output = tensor(operator, 0), operator.outputs[0]
    axis = graph.constant(np.array(int(constant(operator, 1).reshape(-1)[0]), np.int64))
    flags: dict[str, Any] = {name: int(option(operator, name, default=False)) for name in ("exclusive", "reverse")}
    graph.give(output, graph.node("CumSum", [graph.real(given), axis], **flags))


def one_hot(operator: Operator, graph: Graph) -> None:
    """A vector that is on at one place, for each index; ONNX's own counts negative ones from the end."""
    output = operator.outputs[0]
    axis = option(operator, "axis", -1) % output.rank
    places, depth = (graph.node("Cast", [graph.raw(tensor(operator, place))], to=TensorProto.INT64) for place in (0, 1))
    ends = [graph.constant(np.array(0, np.int64)), graph.node("Reshape", [depth, graph.integers()])]
    every = graph.node("Range", [*ends, graph.constant(np.array(1, np.int64))])
    every = graph.reshaped(every, (-1, *[1] * (output.rank - 1 - axis)))
    is_on = graph.node("Equal", [graph.node("Unsqueeze", [places, graph.integers(axis)]), every])
    on, off = (graph.raw(tensor(operator, place)) for place in (2, 3))
    graph.give_raw(output, where(graph, is_on, on, off, output))


RULES = {
    "SLICE": cut,
    "STRIDED_SLICE": strided_slice,
    "REVERSE_V2": reverse,
    "GATHER": gather,
    "EMBEDDING_LOOKUP": gather,
    "GATHER_ND": gather_nd,
    "WHERE": places,
    "ARG_MAX": arg,
    "ARG_MIN": arg,
    "TOPK_V2": top,
    "CUMSUM": cumulative_sum,
    "ONE_HOT": one_hot,
}
