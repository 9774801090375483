"""Write what ONNX Runtime has joined with an activation as two nodes of ONNX's own operators again.

Saved from an optimised session, also as `.ort`, a model has `FusedConv` and `FusedGemm` of `com.microsoft`, which no
quantizer and no other engine reads (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, attributes_of, graphs_of, names_in

if TYPE_CHECKING:
    from collections.abc import Mapping

_FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
#: The parameters of each activation, in the order of `activation_params`.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}


def unfuse(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without `FusedConv` and `FusedGemm`: the model itself where it has none.

    An activation that is not known stays where it is.
    """
    if not any(_is_fused(node) for graph in graphs_of(model.graph) for node in graph.node):
        return model
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    fresh = FreshNames(names_in(plain.graph))
    for graph in graphs_of(plain.graph):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            nodes += _apart(node, graph, fresh) if _is_fused(node) else [node]
        del graph.node[:]
        graph.node.extend(nodes)
    return plain


def _is_fused(node: onnx.NodeProto) -> bool:
    if node.domain != "com.microsoft" or node.op_type not in _FUSED:
        return False
    return attributes_of(node).get("activation", b"Relu").decode(errors="replace") in _PARAMETERS


def _apart(node: onnx.NodeProto, graph: onnx.GraphProto, fresh: FreshNames) -> list[onnx.NodeProto]:
    """Return the plain node, the sum with a fourth input of a convolution, and the activation."""
    attributes = attributes_of(node)
    named = {name: attributes.pop(name) for name in list(attributes) if name.startswith("activation")}
    parameters = list(named.get("activation_params", ()))
    parameters += [named[name] for name in ("activation_alpha", "activation_beta") if name in named]
    inputs, added = list(node.input[:3]), node.input[3:4]
    linear = fresh(f"{node.output[0]}_linear")
    nodes = [helper.make_node(_FUSED[node.op_type], inputs, [linear], name=node.name, **attributes)]
    if added and added[0]:
        total = fresh(f"{node.output[0]}_sum")
        nodes.append(helper.make_node("Add", [linear, added[0]], [total]))
        linear = total
    if "activation" not in named:
        nodes[-1].output[0] = node.output[0]
        return nodes
    activation = named["activation"].decode()
    given = dict(zip(_PARAMETERS[activation], parameters, strict=False))
    reads = [linear]
    if activation == "Clip":  # its limits are inputs since operator set 11
        for name, value in given.items():
            reads.append(fresh(f"{node.output[0]}_{name}"))
            graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), reads[-1]))
        given = {}
    nodes.append(helper.make_node(activation, reads, [node.output[0]], **given))
    return nodes
