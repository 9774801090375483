"""Slices and look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from edge_infer_converters.writers.from_tflite.builder import PLAIN, Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule

_FAR = 2**31 - 1


def gather(node: Node) -> None:
    """Gather along an axis."""
    if node.option("batchDims", 0):
        raise Unsupported("batch dimensions")
    axis = node.option("axis", 0) % node.tensor(0).rank
    is_table = node.tensor(0).data is not None and node.tensor(0).quantization is not None
    if is_table and node.output.quantization is None:
        found = node.add("Gather", [node.real(0), node.stored(1)], axis=axis)
    else:
        found = node.add("Gather", [node.stored(0), node.stored(1)], axis=axis)
    node.give(found)


def embedding_lookup(node: Node) -> None:
    """Gather of rows."""
    node.give(node.add("Gather", [node.real(1), node.stored(0)], axis=0))


def gather_nd(node: Node) -> None:
    """GatherND."""
    places = node.add("Cast", [node.stored(1)], to=TensorProto.INT64)
    node.give(node.add("GatherND", [node.stored(0), places]))


def take_slice(node: Node) -> None:
    """Slice from a place on, of a size; -1 is all that is left."""
    begin, size = (node.value(i).reshape(-1).astype(np.int64) for i in (1, 2))
    ends = [_FAR if count < 0 else int(first + count) for first, count in zip(begin, size, strict=True)]
    numbers = node.builder.integers
    inputs = [node.stored(0), numbers(*begin.tolist()), numbers(*ends), numbers(*range(len(ends)))]
    node.give(node.add("Slice", inputs))


def strided_slice(node: Node) -> None:
    """Slice with steps, then Squeeze of the axes that single indices take away."""
    if node.option("ellipsisMask") or node.option("newAxisMask") or node.option("offset"):
        raise Unsupported("an ellipsis, a new axis or an offset")
    begins, ends, steps = (node.value(i).reshape(-1).tolist() for i in (1, 2, 3))
    gone = []
    for axis, step in enumerate(steps):
        if node.option("beginMask") >> axis & 1:
            begins[axis] = 0 if step > 0 else _FAR
        if node.option("endMask") >> axis & 1:
            ends[axis] = _FAR if step > 0 else -_FAR
        if node.option("shrinkAxisMask") >> axis & 1:
            gone.append(axis)
            ends[axis] = begins[axis] + 1 if begins[axis] != -1 else _FAR
            steps[axis] = 1
    numbers = node.builder.integers
    inputs = [node.stored(0), numbers(*begins), numbers(*ends), numbers(*range(len(ends))), numbers(*steps)]
    found = node.add("Slice", inputs)
    node.give(node.add("Squeeze", [found, numbers(*gone)]) if gone else found)


def reverse(node: Node) -> None:
    """Slice with steps of -1."""
    axes = [int(axis) % node.tensor(0).rank for axis in node.value(1).reshape(-1)]
    numbers = node.builder.integers
    back = [-1] * len(axes)
    node.give(
        node.add(
            "Slice", [node.stored(0), numbers(*back), numbers(*[-_FAR] * len(axes)), numbers(*axes), numbers(*back)]
        )
    )


def top_k(node: Node) -> None:
    """TopK along the last axis."""
    count = node.add("Reshape", [_wide(node, 1), node.builder.integers(1)])
    values, places = node.builder.add_many("TopK", [node.stored(0), count], 2, node.output.name, axis=-1)
    node.give(values)
    kind = helper.np_dtype_to_tensor_dtype(node.operator.outputs[1].dtype)
    node.give(node.add("Cast", [places], to=kind), PLAIN, 1)


def one_hot(node: Node) -> None:
    """OneHot."""
    one = node.builder.integers(1)
    both = [node.add("Reshape", [node.stored(i), one]) for i in (3, 2)]
    values = node.add("Concat", both, axis=0)
    node.give(node.add("OneHot", [node.stored(0), node.stored(1), values], axis=node.option("axis", -1)))


def _wide(node: Node, index: int) -> str:
    return node.add("Cast", [node.stored(index)], to=TensorProto.INT64)


RULES: dict[str, Rule] = {
    "EMBEDDING_LOOKUP": embedding_lookup,
    "GATHER": gather,
    "GATHER_ND": gather_nd,
    "ONE_HOT": one_hot,
    "REVERSE_V2": reverse,
    "SLICE": take_slice,
    "STRIDED_SLICE": strided_slice,
    "TOPK_V2": top_k,
}
