"""Operators that choose elements by number: Gather and its relatives, the largest ones, one-hot, scatter."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Layout, Tensor, to_channels_last
from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.rules.elementwise import layout_of

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule

#: Below it nothing is shuffled.
_LEAST_STEP = 2


def gathered(node: Node) -> None:
    """Rows of a table by number: EMBEDDING_LOOKUP where the table is constant, which quantizers know, else GATHER."""
    f, rank = Formula(node), node.rank()
    axis = node.integer("axis", 0) % rank
    numbers, table = node.constant(1), node.constant(0)
    if numbers is not None:
        size = node.size(axis)
        indices = node.stored("indices", np.where(numbers < 0, numbers + size, numbers).astype(np.int32))
        layout = layout_of(node) if axis and numbers.ndim == 1 else Layout.PLAIN  # as many axes as before
        place = to_channels_last(rank).index(axis) if layout is Layout.CHANNELS_LAST else axis
        value = node.input(0, layout)
        is_last = place == rank - 1 and numbers.ndim == 1 and -1 not in value.signature
        shuffled = _shuffled(f, value, numbers % size) if is_last else None
        node.give(f.gather(value, indices, place) if shuffled is None else shuffled, layout)
        return
    indices = f.cast(node.input(1), np.int32)
    if table is None or axis or rank != 2 or table.dtype != np.float32:
        from_end = f.add(indices, node.size(axis))
        indices = f.select(f.binary("LESS", indices, 0), from_end, indices)
        node.give(f.gather(node.input(), indices, axis))
        return
    # Identifiers of words are not negative; LiteRT raises an error on one that is.
    flat = indices if indices.rank == 1 else f.reshape(indices, (_count(indices.signature),))
    found = f.operator("EMBEDDING_LOOKUP", [flat, node.input()], (flat.signature[0], table.shape[1]), table.dtype)
    node.give(f.reshape(found, (*indices.signature, table.shape[1])))


def _shuffled(f: Formula, value: Tensor, places: np.ndarray) -> Tensor | None:
    """Return every nth element of the last axis, or all so, one nth after another, by a transposition; else None.

    LiteRT's GATHER along a last axis copies element by element, and XNNPACK, which has the rest, has none.
    """
    size, count = value.shape[-1], len(places)
    step = int(places[1] - places[0]) if count > 1 else 0
    if step < _LEAST_STEP or size % step or size // step < _LEAST_STEP:
        return None
    parts = np.arange(size).reshape(-1, step).T
    rows = f.reshape(value, (prod(value.shape[:-1]), size // step, step))
    if count == size and np.array_equal(parts.reshape(-1), places):
        return f.reshape(f.transpose(rows, (0, 2, 1)), value.signature)
    if count == size // step and np.array_equal(parts[int(places[0]) % step], places):
        part = f.slice(f.transpose(rows, (2, 0, 1)), 0, int(places[0]), int(places[0]) + 1)
        return f.reshape(part, (*value.signature[:-1], count))
    return None


def gathered_elements(node: Node) -> None:
    """An element for each place of the indices, by its number in the flattened input."""
    f, signature = Formula(node), node.sizes(index=1)
    flat = f.reshape(node.input(), (prod(node.sizes()),))
    numbers = f.reshape(_flat_numbers(node, f, node.input(1)), signature)
    node.give(f.gather(flat, numbers, 0))


def _flat_numbers(node: Node, f: Formula, indices: Tensor) -> Tensor:
    """Turn numbers along one axis into numbers in the flattened first input."""
    shape = node.sizes()
    axis = node.integer("axis", 0) % len(shape)
    steps = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    grid = np.indices(indices.shape, np.int32)
    places = sum((grid[i] * steps[i] for i in range(len(shape)) if i != axis), np.zeros(indices.shape, np.int32))
    numbers = f.cast(indices, np.int32)
    numbers = f.select(f.binary("LESS", numbers, 0), f.add(numbers, shape[axis]), numbers)
    return f.add(f.multiply(numbers, steps[axis]), f.constant(places.astype(np.int32)))


def gathered_parts(node: Node) -> None:
    """Parts by their leading coordinates."""
    if node.integer("batch_dims", 0):
        raise Unsupported("batch_dims")
    f = Formula(node)
    indices = _coordinates(node, f)
    target = f.operator(
        "GATHER_ND", [node.input(), indices], node.output_signature(), options=schema.GatherNdOptionsT()
    )
    node.give(target)


def _coordinates(node: Node, f: Formula) -> Tensor:
    """Return the second input as coordinates that are not negative."""
    numbers = node.constant(1)
    if numbers is not None and (numbers >= 0).all():
        return f.constant(numbers.astype(np.int32))
    limits = np.array(node.sizes(slice(node.signature(1)[-1])), np.int32)
    if numbers is not None:
        return f.constant(np.where(numbers < 0, numbers + limits, numbers).astype(np.int32))
    indices = f.cast(node.input(1), np.int32)
    return f.select(f.binary("LESS", indices, 0), f.add(indices, f.constant(limits)), indices)


def scattered_parts(node: Node) -> None:
    """Put parts at coordinates: what was there times 0, plus what is scattered."""
    how = node.text("reduction", "none")
    if how not in ("none", "add") or node.dtype() not in (np.float32, np.int32):
        raise Unsupported(f"reduction {how} of {node.dtype()}")
    node.sizes()  # the shape of the result is stored
    node.sizes(index=2)
    f = Formula(node)
    if how == "none" and not _are_unique(node):
        raise Unsupported("coordinates that are computed, or name a place twice")
    _scatter(node, f, _coordinates(node, f), node.input(2), how)


def _scatter(node: Node, f: Formula, coordinates: Tensor, updates: Tensor, how: str) -> None:
    value = node.input()
    shape = f.integers(value.signature)
    options = schema.ScatterNdOptionsT
    new = f.operator("SCATTER_ND", [coordinates, updates, shape], value.signature, updates.dtype, options())
    if how == "add":
        node.give(f.add(value, new))
        return
    ones = f.constant(np.ones(updates.shape, np.float32))
    mask = f.operator("SCATTER_ND", [coordinates, ones, shape], value.signature, np.dtype(np.float32), options())
    node.give(f.select(f.binary("GREATER", mask, 0.5), new, value))


def _are_unique(node: Node) -> bool:
    numbers = node.constant(1)
    if numbers is None:
        return False
    rows = numbers.reshape(-1, numbers.shape[-1])
    limits = np.array(node.sizes(slice(rows.shape[1])))
    return len(np.unique(np.where(rows < 0, rows + limits, rows), axis=0)) == len(rows)


def scattered_elements(node: Node) -> None:
    """Put elements at places along one axis; where no place is named twice, or the elements add up."""
    how = node.text("reduction", "none")
    numbers, shape = node.needed_constant(1), node.sizes()
    if how not in ("none", "add") or node.dtype() not in (np.float32, np.int32):
        raise Unsupported(f"reduction {how} of {node.dtype()}")
    axis = node.integer("axis", 0) % len(shape)
    places = np.indices(numbers.shape)
    places[axis] = np.where(numbers < 0, numbers + shape[axis], numbers)
    coordinates = np.moveaxis(places, 0, -1).reshape(-1, len(shape)).astype(np.int32)
    if how == "none" and len(np.unique(coordinates, axis=0)) != len(coordinates):
        raise Unsupported("a place that is named twice")
    f = Formula(node)
    _scatter(node, f, f.constant(coordinates), f.reshape(node.input(2), (len(coordinates),)), how)


def largest_place(node: Node) -> None:
    """ArgMax and ArgMin: the first of equals, or the last one by reversing the axis."""
    rank = node.rank()
    axis = node.integer("axis", 0) % rank
    layout = layout_of(node) if node.integer("keepdims", 1) else Layout.PLAIN
    place = to_channels_last(rank).index(axis) if layout is Layout.CHANNELS_LAST else axis
    f, value = Formula(node), node.input(0, layout)
    size = node.size(axis)
    is_last = bool(node.integer("select_last_index", 0))
    if is_last:
        value = f.operator(
            "REVERSE_V2", [value, f.integers([place])], value.signature, options=schema.ReverseV2OptionsT()
        )
    is_max = node.op_type == "ArgMax"
    options = schema.ArgMaxOptionsT() if is_max else schema.ArgMinOptionsT()
    dtype = node.output_dtype()
    options.outputType = schema.TensorType.INT32 if dtype == np.int32 else schema.TensorType.INT64
    left = [dim for i, dim in enumerate(value.signature) if i != place]
    axis_tensor = node.stored("axis", np.array(place, np.int32))
    code = "ARG_MAX" if is_max else "ARG_MIN"
    found = f.operator(code, [value, axis_tensor], left, dtype, options)
    if is_last:
        found = f.subtract(size - 1, found)
    if node.integer("keepdims", 1):
        found = f.reshape(found, [*left[:place], 1, *left[place:]])
    node.give(found, layout)


def largest(node: Node) -> None:
    """TopK: TFLite gives the largest ones of the last axis, in order."""
    f, value = Formula(node), node.input()
    count = int(node.needed_constant(1).reshape(())) if node.has_input(1) else node.integer("k", 1)
    axis = node.integer("axis", -1) % value.rank
    order = [i for i in range(value.rank) if i != axis] + [axis]
    turned = f.transpose(value, order)
    is_largest = bool(node.integer("largest", 1))
    if not is_largest:
        turned = f.unary("NEG", turned)
    signature = [*turned.signature[:-1], count]
    values, places = (
        node.scratch(name, signature, dtype)
        for name, dtype in (("values", turned.dtype), ("places", np.dtype(np.int32)))
    )
    k = node.stored("k", np.array(count, np.int32))
    node.graph.add("TOPK_V2", [turned, k], [values, places], schema.TopKV2OptionsT())
    back = [int(i) for i in np.argsort(order)]
    if not is_largest:
        values = f.unary("NEG", values)
    node.give(f.transpose(values, back))
    if node.gives(1):
        node.give(f.transpose(f.cast(places, node.output_dtype(1)), back), index=1)


def one_hot(node: Node) -> None:
    """A row for each number; one that is negative counts from the end."""
    f = Formula(node)
    depth = int(node.needed_constant(1).reshape(()))
    off, on = node.needed_constant(2).reshape(-1)
    given = node.input(0)
    if given.dtype == np.int64:  # numbers beyond the depth give a row of `off`, those beyond 32 bits too
        given = f.binary("MINIMUM", f.binary("MAXIMUM", given, -depth - 1), depth)
    numbers = f.cast(given, np.int32)
    numbers = f.select(f.binary("LESS", numbers, 0), f.add(numbers, depth), numbers)
    options = schema.OneHotOptionsT()
    axis = node.integer("axis", -1)
    options.axis = axis if axis == -1 else axis % (numbers.rank + 1)
    stored = [f.constant(np.array(value)) for value in (np.int32(depth), on, off)]
    node.give(f.operator("ONE_HOT", [numbers, *stored], node.output_signature(), node.output_dtype(), options))


def triangle(node: Node) -> None:
    """Trilu: zeros above or below a diagonal."""
    f, value = Formula(node), node.input()
    k = int(node.needed_constant(1).reshape(())) if node.has_input(1) else 0
    ones = np.ones(node.sizes(slice(-2, None)), bool)
    kept = np.triu(ones, k) if node.integer("upper", 1) else np.tril(ones, k)
    node.give(f.select(f.constant(kept), value, 0))


def _count(signature: tuple[int, ...]) -> int:
    return -1 if -1 in signature else int(np.prod(signature))


RULES: dict[str, Rule] = {
    "ArgMax": largest_place,
    "ArgMin": largest_place,
    "Gather": gathered,
    "GatherElements": gathered_elements,
    "GatherND": gathered_parts,
    "OneHot": one_hot,
    "Scatter": scattered_elements,
    "ScatterElements": scattered_elements,
    "ScatterND": scattered_parts,
    "TopK": largest,
    "Trilu": triangle,
}
