"""Shapes: what moves elements and computes nothing, so that integers stay what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from edge_infer_converters.writers.from_tflite.builder import FIRST, PLAIN, Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule
    from edge_infer_converters.writers.tflite.graph import Tensor

_IMAGE_RANK = 4


def sizes(tensor: Tensor) -> tuple[int, ...]:
    """Return the dimensions for a Reshape, a free one being -1."""
    if tensor.signature.count(-1) > 1:
        raise Unsupported(f"several free dimensions, {tensor.signature}")
    return tensor.signature


def reshape(node: Node) -> None:
    """Reshape, to the shape that the file tells of its output."""
    source, output = node.tensor(0), node.output
    is_pixel = node.builder.is_first(source) and source.signature[1:3] == (1, 1)  # no element moves
    value = node.stored(0, FIRST if is_pixel else PLAIN)
    if node.has(1) and node.tensor(1).data is None:
        wanted = node.add("Cast", [node.stored(1)], to=TensorProto.INT64)
    else:
        wanted = node.builder.integers(*_target(node, source, output))
    node.give(node.add("Reshape", [value, wanted]))


def _target(node: Node, source: Tensor, output: Tensor) -> tuple[int, ...]:
    told = tuple(int(one) for one in node.value(1).reshape(-1)) if node.has(1) else ()
    if -1 in told and told.count(-1) == 1 and 0 not in told:
        return told
    if output.signature.count(-1) == 1:
        return output.signature
    is_batched = source.signature[:1] == (-1,) and output.signature[:1] == (1,) == source.shape[:1]
    if is_batched and told[:1] == (1,):
        return told  # the batch is in the file's own numbers
    return sizes(output)


def transpose(node: Node) -> None:
    """Transpose; one that moves the channels only tells which form the tensor is there in."""
    order = [int(one) for one in node.value(1).reshape(-1)]
    if order == [0, 2, 3, 1]:
        node.give(node.stored(0), FIRST)
    elif order == [0, 3, 1, 2]:
        node.give(node.stored(0, FIRST))
    else:
        node.give(node.add("Transpose", [node.stored(0)], perm=order))


def concatenation(node: Node) -> None:
    """Concat; integers of other scales than the output's are brought to it."""
    layout = node.layout(*range(node.count))
    rank = node.output.rank
    axis = node.option("axis", 0) % max(rank, 1)
    place = (0, 2, 3, 1)[axis] if layout == FIRST else axis
    is_plain = not node.option("fusedActivationFunction", 0)
    if is_plain and all(node.is_same_meaning(i) for i in range(node.count)):
        node.give(node.add("Concat", [node.stored(i, layout) for i in range(node.count)], axis=place), layout)
    elif is_plain:
        parts = []
        for i in range(node.count):
            moved = node.stored(i, layout) if node.is_same_meaning(i) else ""
            parts.append(moved or node.builder.quantize(node.real(i, layout), node.output))
        node.give(node.add("Concat", parts, axis=place), layout)
    else:
        node.give_real(node.add("Concat", [node.real(i, layout) for i in range(node.count)], axis=place), layout)


def pack(node: Node) -> None:
    """Concat of inputs with one more axis."""
    axis = node.option("axis", 0) % node.output.rank
    parts = [node.add("Unsqueeze", [node.stored(i), node.builder.integers(axis)]) for i in range(node.count)]
    node.give(node.add("Concat", parts, axis=axis))


def unpack(node: Node) -> None:
    """Split, then Squeeze."""
    axis = node.option("axis", 0) % node.tensor(0).rank
    for i, part in enumerate(_split(node, 0, axis, [1] * len(node.operator.outputs))):
        node.give(node.add("Squeeze", [part, node.builder.integers(axis)]), PLAIN, i)


def split(node: Node) -> None:
    """Split into equal parts."""
    axis = int(node.value(0).reshape(-1)[0]) % node.tensor(1).rank
    count = len(node.operator.outputs)
    for i, part in enumerate(_split(node, 1, axis, [node.tensor(1).shape[axis] // count] * count)):
        node.give(part, PLAIN, i)


def split_v(node: Node) -> None:
    """Split into parts of given sizes."""
    axis = int(node.value(2).reshape(-1)[0]) % node.tensor(0).rank
    for i, part in enumerate(_split(node, 0, axis, [one.shape[axis] for one in node.operator.outputs])):
        node.give(part, PLAIN, i)


def _split(node: Node, index: int, axis: int, parts: list[int]) -> list[str]:
    inputs = [node.stored(index), node.builder.integers(*parts)]
    return node.builder.add_many("Split", inputs, len(parts), node.output.name, axis=axis)


def expand_dims(node: Node) -> None:
    """Unsqueeze."""
    axis = int(node.value(1).reshape(-1)[0]) % node.output.rank
    node.give(node.add("Unsqueeze", [node.stored(0), node.builder.integers(axis)]))


def squeeze(node: Node) -> None:
    """Squeeze, of the axes named or of all of 1."""
    source = node.tensor(0)
    named = node.option("squeezeDims")
    axes = [int(one) % source.rank for one in named] if named is not None and len(named) else []
    axes = axes or [i for i, dim in enumerate(source.signature) if dim == 1]
    is_pixel = node.builder.is_first(source) and sorted(axes) == [1, 2]
    places = [2, 3] if is_pixel else axes
    value = node.stored(0, FIRST if is_pixel else PLAIN)
    node.give(node.add("Squeeze", [value, node.builder.integers(*places)]))


def shape(node: Node) -> None:
    """Shape, in the integers that are asked for."""
    found = node.add("Shape", [node.stored(0)])
    if node.output.dtype != np.int64:
        found = node.add("Cast", [found], to=helper.np_dtype_to_tensor_dtype(node.output.dtype))
    node.give(found)


def tile(node: Node) -> None:
    """Tile."""
    node.give(node.add("Tile", [node.stored(0), _wide(node, 1)]))


def broadcast_to(node: Node) -> None:
    """Expand."""
    node.give(node.add("Expand", [node.stored(0), _wide(node, 1)]))


def fill(node: Node) -> None:
    """Expand of one value."""
    node.give(node.add("Expand", [node.stored(1), _wide(node, 0)]))


def _wide(node: Node, index: int) -> str:
    return node.add("Cast", [node.stored(index)], to=TensorProto.INT64)


RULES: dict[str, Rule] = {
    "BROADCAST_TO": broadcast_to,
    "CONCATENATION": concatenation,
    "EXPAND_DIMS": expand_dims,
    "FILL": fill,
    "PACK": pack,
    "RESHAPE": reshape,
    "SHAPE": shape,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": squeeze,
    "TILE": tile,
    "TRANSPOSE": transpose,
    "UNPACK": unpack,
}
