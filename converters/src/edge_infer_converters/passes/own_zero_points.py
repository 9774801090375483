"""Give each `DequantizeLinear` of stored values its own weights and zero point.

ONNX Runtime 1.31 refuses a model that shares them, directly or behind `Identity`, in precise mode
(`session.x64quantprecision=1`): its conversion of signed weights to unsigned ones stores each once for every reader
("Attempt to replace the existing tensor"). Exporters share the zero points of all weights.
"""

from __future__ import annotations

import onnx

from edge_infer_converters.passes.graphs import FreshNames, drop_unread_tensors, names_in

_WEIGHTS, _ZERO_POINT = 0, 2


def own_zero_points(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model so that ONNX Runtime loads it in precise mode: the model itself where nothing is shared."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    copied = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "Identity" and node.input[0] in stored
    }
    shared = _shared(model.graph, stored, copied)
    if not shared:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    fresh = FreshNames(names_in(changed.graph))
    for number, place, name in shared:
        own = onnx.TensorProto()
        own.CopyFrom(stored[name])
        own.name = fresh(f"{name}/own")
        changed.graph.initializer.append(own)
        changed.graph.node[number].input[place] = own.name
    _drop_unread_copies(changed.graph, copied)
    drop_unread_tensors(changed.graph)
    return changed


def _shared(
    graph: onnx.GraphProto, stored: dict[str, onnx.TensorProto], copied: dict[str, str]
) -> list[tuple[int, int, str]]:
    """List where stored int8 values are read that something before has read: node, place of the input, tensor."""
    seen: set[str] = set()
    found: list[tuple[int, int, str]] = []
    for number, node in enumerate(graph.node):
        if node.op_type != "DequantizeLinear" or copied.get(node.input[0], node.input[0]) not in stored:
            continue
        for place in (_WEIGHTS, _ZERO_POINT):
            name = copied.get(node.input[place], node.input[place]) if place < len(node.input) else ""
            if name not in stored or stored[name].data_type != onnx.TensorProto.INT8:
                continue
            if name in seen:
                found.append((number, place, name))
            seen.add(name)
    return found


def _drop_unread_copies(graph: onnx.GraphProto, copied: dict[str, str]) -> None:
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for node in [node for node in graph.node if node.output and node.output[0] in copied]:
        if node.output[0] not in read:
            graph.node.remove(node)
