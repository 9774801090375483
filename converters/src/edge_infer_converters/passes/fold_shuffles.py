"""Write shuffled channels as one choice of channels: exporters write them as two reshapes around a transposition.

What the nodes do to the numbers of all elements is computed, so that whatever chooses whole channels is found, with a
part of the channels taken behind it (`chunk` in ShuffleNet V2) or without.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, infer_shapes_in, names_in, reads_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

_LEAST_RANK = 3


class _Chain(NamedTuple):
    first: onnx.NodeProto
    turn: onnx.NodeProto
    second: onnx.NodeProto
    choice: onnx.NodeProto | None

    @property
    def last(self) -> onnx.NodeProto:
        return self.choice or self.second


def fold_shuffles_in(model: onnx.ModelProto) -> None:
    """Replace, in place, shuffled channels of known shapes by `Gather` along axis 1.

    Args:
        model: The model; shapes of inner values are stored in it where something may be shuffled.
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    chains = [found for node in graph.node if (found := _chain(node, makers)) is not None]
    if not chains:
        return
    infer_shapes_in(model)
    shapes = {
        value.name: [dim.dim_value if dim.HasField("dim_value") else 0 for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    stored = {tensor.name: tensor for tensor in graph.initializer}
    stored |= {
        node.output[0]: node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.attribute[0].name == "value"
    }
    fresh = FreshNames(names_in(graph))
    for chain in chains:
        places = _places(chain, shapes.get(chain.first.input[0], []), stored)
        if places is None:
            continue
        name = fresh(f"{chain.last.output[0]}/channels")
        graph.initializer.append(numpy_helper.from_array(places, name))
        made = helper.make_node("Gather", [chain.first.input[0], name], chain.last.output, chain.last.name, axis=1)
        position = next(i for i, node in enumerate(graph.node) if node is chain.last or node.output == made.output)
        graph.node.insert(position, made)
        del graph.node[position + 1]
    _drop_unread_nodes(graph)


def _chain(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> _Chain | None:
    """Return the nodes that end with one, where they may be a shuffle."""
    if node.op_type not in ("Gather", "Reshape"):
        return None
    choice = node if node.op_type == "Gather" and _axis(node) == 0 else None
    found = [node]
    for kind in ("Reshape", "Transpose", "Reshape") if choice else ("Transpose", "Reshape"):
        before = makers.get(found[-1].input[0])
        if before is None or before.op_type != kind:
            return None
        found.append(before)
    *_, second, turn, first = found
    return _Chain(first, turn, second, choice) if second.op_type == "Reshape" else None


def _axis(node: onnx.NodeProto) -> int:
    return next((one.i for one in node.attribute if one.name == "axis"), 0)


def _places(chain: _Chain, shape: list[int], stored: Mapping[str, onnx.TensorProto]) -> np.ndarray | None:
    """Return which channels the nodes choose; None where they do something else, or where shapes are not known."""
    names = [chain.first.input[1], chain.second.input[1], *(chain.choice.input[1:] if chain.choice else ())]
    has_zeros = any(one.name == "allowzero" and one.i for node in chain[:3:2] for one in node.attribute)
    if len(shape) < _LEAST_RANK or not all(shape) or has_zeros or any(name not in stored for name in names):
        return None
    sizes = [numpy_helper.to_array(stored[name]) for name in names]
    order = next((list(one.ints) for one in chain.turn.attribute if one.name == "perm"), None)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    turned = _reshaped(_reshaped(numbers, sizes[0]).transpose(order), sizes[1])
    if chain.choice:
        if sizes[2].ndim:
            return None
        turned = turned[int(sizes[2])]
    if turned.ndim != numbers.ndim or (*turned.shape[:1], *turned.shape[2:]) != (*shape[:1], *shape[2:]):
        return None
    places: np.ndarray = turned[0].reshape(turned.shape[1], -1)[:, 0] // math.prod(shape[2:])
    is_choice = places.max(initial=0) < shape[1] and np.array_equal(numbers[:, places], turned)
    return places.astype(np.int64) if is_choice else None


def _reshaped(value: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Reshape as ONNX does, where 0 keeps a size."""
    return value.reshape([value.shape[i] if size == 0 else int(size) for i, size in enumerate(sizes)])


def _drop_unread_nodes(graph: onnx.GraphProto) -> None:
    read = {value.name for value in graph.output}
    for i in reversed(range(len(graph.node))):
        if read.isdisjoint(graph.node[i].output):
            del graph.node[i]
        else:
            read |= reads_of(graph.node[i])
