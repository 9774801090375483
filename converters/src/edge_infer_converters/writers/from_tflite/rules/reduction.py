"""Reductions, and the place of the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import helper

from edge_infer_converters.writers.from_tflite.builder import FIRST, PLAIN

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule

# Where each axis of a plain image is with its channels first.
_PLACES = (0, 2, 3, 1)


def _reduce(kind: str) -> Rule:
    def rule(node: Node) -> None:
        source, keeps = node.tensor(0), bool(node.option("keepDims"))
        axes = sorted({int(axis) % max(source.rank, 1) for axis in node.value(1).reshape(-1)})
        is_image = node.builder.is_first(source) and (keeps or axes == [1, 2])
        layout = FIRST if is_image else PLAIN
        places = sorted(_PLACES[axis] for axis in axes) if is_image else axes
        made = node.add(kind, [node.real(0, layout), node.builder.integers(*places)], keepdims=int(keeps))
        node.give_real(made, layout if keeps else PLAIN)

    rule.__doc__ = f"{kind}."
    return rule


def _place(kind: str) -> Rule:
    def rule(node: Node) -> None:
        source = node.tensor(0)
        axis = int(node.value(1).reshape(-1)[0]) % source.rank
        more: dict[str, Any] = {"keepdims": 0}
        layout = FIRST if node.builder.is_first(source) and axis == source.rank - 1 else PLAIN
        stored = node.real(0, layout)  # no engine's kernel has int8
        found = node.add(kind, [stored], axis=1 if layout == FIRST else axis, **more)
        node.give(node.add("Cast", [found], to=helper.np_dtype_to_tensor_dtype(node.output.dtype)))

    rule.__doc__ = f"{kind}, the first of equals."
    return rule


RULES: dict[str, Rule] = {
    "ARG_MAX": _place("ArgMax"),
    "ARG_MIN": _place("ArgMin"),
    "MEAN": _reduce("ReduceMean"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "REDUCE_MIN": _reduce("ReduceMin"),
    "REDUCE_PROD": _reduce("ReduceProd"),
    "SUM": _reduce("ReduceSum"),
}
