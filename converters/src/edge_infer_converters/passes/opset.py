"""Rewrite a model for another version of ONNX's operator set.

ONNX's own adapters do it. They give up on many operators of which a newer version only takes more types (`Relu` 13 and
14): where that holds for every node, the version is all that has to change.
"""

from __future__ import annotations

import onnx
from onnx import helper, version_converter

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.graphs import graphs_of, opset_of

#: The first IR version whose initializers need not be inputs too; ONNX Runtime has read it since 1.0.
_MIN_IR = 4


def to_opset(model: onnx.ModelProto, opset: int | None) -> onnx.ModelProto:
    """Return a copy of a model in another operator set; other domains stay as they are.

    Args:
        model: The model.
        opset: The version to write, or None for the model's own: then the model itself is returned.

    Raises:
        ConversionError: This onnx does not know the version, or has no adapter for an operator of the model.
    """
    if opset is None or opset == opset_of(model):
        return model
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise ConversionError(
            f"There is no operator set {opset}, the installed onnx knows 1 to {newest}",
            hint=f"--opset {min(max(opset, 13), newest)}",
            expected=newest,
            got=opset,
        )
    converted = onnx.ModelProto()
    try:
        if _has_equal_signatures(model, opset):
            converted.CopyFrom(model)
            _set_opset(converted, opset)
            onnx.checker.check_model(converted, full_check=True)  # types included
        else:
            converted.CopyFrom(version_converter.convert_version(model, opset))
            onnx.checker.check_model(converted)
    except Exception as error:  # the adapters raise RuntimeError, ConvertError, IndexError ...
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConversionError(
            f"The model has operator set {opset_of(model)} and cannot be written in {opset}: {said[-160:]}",
            hint="choose a version nearer to the model's, or leave --opset out",
            expected=opset_of(model),
            got=opset,
        ) from error
    # An engine that knows no newer operator set knows no newer file format either.
    needed = helper.find_min_ir_version_for(converted.opset_import, ignore_unknown=True)
    converted.ir_version = max(_MIN_IR, min(model.ir_version, max(needed, 8 if converted.functions else 0)))
    return converted


def _set_opset(model: onnx.ModelProto, opset: int) -> None:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = opset


def _has_equal_signatures(model: onnx.ModelProto, opset: int) -> bool:
    """Tell whether all operators have the same inputs, outputs, attributes and defaults in both operator sets."""
    if model.functions:
        return False
    own = opset_of(model)
    names = {node.op_type for graph in graphs_of(model.graph) for node in graph.node if node.domain in ("", "ai.onnx")}
    return all(_signature(name, own) == _signature(name, opset) for name in names)


def _signature(name: str, opset: int) -> tuple[object, ...] | None:
    if not onnx.defs.has(name, opset, ""):
        return None
    schema = onnx.defs.get_schema(name, opset, "")
    attributes = {
        key: (one.required, one.type, one.default_value.SerializeToString()) for key, one in schema.attributes.items()
    }
    values = [[(value.name, value.option) for value in values] for values in (schema.inputs, schema.outputs)]
    return attributes, values, schema.min_input, schema.max_input, schema.min_output, schema.max_output
