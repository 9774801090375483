"""Checks of ONNX models: invalid ones are refused; faults that ONNX Runtime tolerates are repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer_converters.engine import first_line, hint_for
from edge_infer_converters.passes.graphs import graphs_of, nbytes_of, tensors_of, without_weights
from edge_infer_converters.passes.sessions import LARGE_BYTES
from edge_infer_converters.support import native_lacks

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.passes.weights_in_files import WeightsInFiles

#: The first version of the format whose initializers need not be inputs.
_OWN_INITIALIZERS_IR = 4
#: The domains of ONNX Runtime's own operators, of version 1 all of them.
_ENGINE_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})


def check_graph(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse what parses by chance: protobuf takes many a file for a message of unknown fields."""
    if proto.ir_version < 1 or not proto.opset_import or not proto.graph.output:
        raise ConversionError(
            f"`{path}` is not an ONNX model: it has no graph with outputs", hint="export or download it again"
        )
    supported = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= supported:
            raise UnsupportedModel(
                f"`{path}` uses operator set {opset.version}, the installed onnx knows 1 to {supported}",
                hint="export it with a lower `opset_version`, or pip install --upgrade onnx onnxruntime",
                got=opset.version,
                expected=supported,
            )


def check_text(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse names that are not UTF-8, and drop such descriptions: protobuf hands over both as bytes."""
    nodes = (node for graph in graphs_of(proto.graph) for node in graph.node)
    for message in (proto, *graphs_of(proto.graph), *nodes, *tensors_of(proto.graph)):
        if not isinstance(message.doc_string, str):
            message.ClearField("doc_string")
    own: list[object] = [proto.producer_name, proto.producer_version, proto.domain]
    own += [text for entry in proto.metadata_props for text in (entry.key, entry.value)]
    for graph in graphs_of(proto.graph):
        values = (*graph.input, *graph.output, *graph.value_info)
        names = [*own, graph.name, *(named.name for named in (*values, *graph.initializer))]
        names += [dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim]
        for node in graph.node:
            names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        if any(not isinstance(name, str) for name in names):
            raise ConversionError(
                f"`{path}` is not a valid ONNX model: it has names that are not UTF-8",
                hint="export or download it again",
            )


def check_operators(proto: onnx.ModelProto, path: Path, in_files: WeightsInFiles | None) -> None:
    """Refuse a graph that ONNX's own checker refuses, unless ONNX Runtime knows what that does not.

    Raises:
        UnsupportedModel: It uses an operator or a version of the format that is not known.
        ConversionError: It is not valid.
    """
    # The checker copies the model three times; the engine checks the weights.
    if in_files is not None or nbytes_of(proto) >= LARGE_BYTES:
        light, large = without_weights(proto)
        empty = {tensor.name for tensor in large}.union(in_files or ())
        for tensor in light.graph.initializer:
            if tensor.name in empty:
                tensor.dims[:] = [0]
        proto = light
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: a name that is not UTF-8
        text = first_line(error)
        if "No Op registered for" in text and not native_lacks(proto):
            return  # an operator of the engine's own in ONNX's domain, such as LayerNormalization before set 17
        if "No Op registered for" in text or "ir_version" in text or "No opset import" in text:
            raise UnsupportedModel(f"`{path}` cannot be converted: {text}", hint=hint_for(text)) from error
        raise ConversionError(f"`{path}` is not a valid ONNX model: {text}", hint="export it again") from error


def import_domains(proto: onnx.ModelProto) -> None:
    """Import the engine's own domains that nodes name and the file does not: ONNX Runtime runs it without."""
    imported = {entry.domain for entry in proto.opset_import}
    for graph in graphs_of(proto.graph):
        for domain in {node.domain for node in graph.node}.difference(imported).intersection(_ENGINE_DOMAINS):
            proto.opset_import.add(domain=domain, version=1)
            imported.add(domain)


def drop_default_inputs(proto: onnx.ModelProto) -> None:
    """Take the initializers out of the inputs, where IR 3 lists them: every pass takes them for weights then."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    for value in [value for value in proto.graph.input if value.name in stored]:
        proto.graph.input.remove(value)
    if stored:
        proto.ir_version = max(proto.ir_version, _OWN_INITIALIZERS_IR)


def free_negative_dims(proto: onnx.ModelProto) -> None:
    """Make the dimensions that are -1 free ones."""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")
