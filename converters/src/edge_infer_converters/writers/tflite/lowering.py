"""Turn ONNX operators into TFLite operators: the walk over all nodes, each written by its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import UnsupportedOperator
from edge_infer_converters.writers.tflite import narrowing
from edge_infer_converters.writers.tflite.node import Node, Unsupported, Values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from edge_infer_converters.writers.tflite.graph import Graph
    from edge_infer_converters.writers.tflite.node import Rule
    from edge_infer_converters.writers.tflite.specialise import Specialised


# Types that a file can hold, and that only CAST reads and writes.
_NOT_COMPUTED = frozenset({"float16", "float64", "bfloat16"})
# Types that are moved, and not computed with.
_ONLY_MOVED = frozenset({"uint16", "uint32", "uint64"})
_MOVING = frozenset(
    {"Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)
_WANTING_ELEMENTS = frozenset({"AveragePool", "ConvTranspose", "MatMul", "MaxPool"})
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


def lower(model: Specialised, rules: Mapping[str, Rule], *, for_page: bool = True) -> Graph:
    """Write a model as a TFLite graph.

    Args:
        model: The model with all shapes known.
        rules: One rule for each ONNX operator.
        for_page: Whether LiteRT.js must read the file, which has no tensors that keep their value between calls.

    Raises:
        UnsupportedOperator: Some nodes have no rule, or settings that it cannot write; all of them are named.
        BatchDependent: The graph can be written for a fixed batch size only.
    """
    values = Values(model)
    read = frozenset((*model.outputs, *(name for node in model.nodes for name in node.input)))
    refused: dict[str, list[str]] = {}
    for node in model.nodes:
        view = Node(node, model, values, read, for_page=for_page)
        reason = "" if node.op_type in rules and node.domain in ("", "ai.onnx") else "no rule"
        if node.op_type in _CONTROL_FLOW:
            reason = "control flow"
        reason = reason or _foreign_type(node, model) or _empty(node, model) or narrowing.reason(node, model)
        if not reason:
            try:
                rules[node.op_type](view)
                reason = view.unread()
            except Unsupported as error:
                reason = str(error)
        if reason:
            operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
            what = operator if reason == "no rule" else f"{operator} ({reason})"
            refused.setdefault(what, []).append(node.name or node.output[0])
            values.stand_in(node.output)  # so that the nodes behind it are looked at too
    if refused:
        said = "; ".join(f"{what}: {_some(names)}" for what, names in sorted(refused.items()))
        raise UnsupportedOperator(
            f"TFLite is not written for {len(refused)} kinds of operators: {said}"
            if len(refused) > 1
            else f"TFLite is not written for {said}",
            hint="leave TFLite out by --format onnx, or write the model without them",
            operators=sorted(refused),
            nodes=dict(sorted(refused.items())),
        )
    for name in model.outputs:
        if 0 in model.signatures[name] and name in model.constants:
            raise UnsupportedOperator(f"Output `{name}` is constant and has no elements", tensor=name)
    values.graph.outputs = [values.output(name) for name in model.outputs]
    return values.graph


def _foreign_type(node: onnx.NodeProto, model: Specialised) -> str:
    """Name a type of a node's values that TFLite's kernels do not compute with."""
    found = {str(model.dtypes[name]) for name in (*node.input, *node.output) if name in model.dtypes}
    if node.op_type == "Cast":
        return ""
    foreign = sorted(found & (_NOT_COMPUTED if node.op_type in _MOVING else _NOT_COMPUTED | _ONLY_MOVED))
    return f"elements of {foreign[0]}: cast them to float32 or int32 in the model" if foreign else ""


def _empty(node: onnx.NodeProto, model: Specialised) -> str:
    """Name a value without elements of a node whose kernel LiteRT does not prepare for that; most it does."""
    if node.op_type not in _WANTING_ELEMENTS:
        return ""
    for name in (*node.input, *node.output):
        if name not in model.constants and 0 in model.signatures.get(name, ()):
            return f"`{name}` has the shape {list(model.signatures[name])}, which holds nothing"
    return ""


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
