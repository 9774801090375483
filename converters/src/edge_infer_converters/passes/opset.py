"""Rewrite a model for another version of ONNX's operator set.

Where each node can be brought there by itself (`opset_steps`) that is done; else ONNX's own adapters do it, which know
operators that mean something else, and give up on many that do not.
"""

from __future__ import annotations

import onnx
from onnx import helper, version_converter

from edge_infer.errors import ConversionError, listed
from edge_infer_converters.passes.graphs import opset_of
from edge_infer_converters.passes.opset_steps import SPLIT_SINCE, bring_to

#: The first IR version whose initializers need not be inputs too; ONNX Runtime has read it since 1.0.
_MIN_IR = 4
#: The first operator set whose softmax is over one axis.
_SOFT_SINCE = 13


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
    converted.CopyFrom(model)
    left = ["its functions"] if model.functions else bring_to(converted, opset)
    if opset < _SOFT_SINCE <= opset_of(model) and {"Softmax", "LogSoftmax"}.intersection(left):
        raise _refused(model, opset, "a softmax over an axis before the last, for which ONNX's adapter is wrong")
    if opset < SPLIT_SINCE <= opset_of(model) and "Split" in left:
        raise _refused(
            model, opset, "a Split into parts of which the last may be smaller, along an axis of unknown size"
        )
    try:
        if left:
            converted.CopyFrom(version_converter.convert_version(model, opset))
        onnx.checker.check_model(converted, full_check=not left)  # types included
    except Exception as error:  # the adapters raise RuntimeError, ConvertError, IndexError ...
        said = " ".join(str(error).split()) or type(error).__name__
        said = f"it lacks {listed(left)}, or they mean something else there" if left else said[-160:]
        raise _refused(model, opset, said) from error
    # An engine that knows no newer operator set knows no newer file format either.
    needed = helper.find_min_ir_version_for(converted.opset_import, ignore_unknown=True)
    converted.ir_version = max(_MIN_IR, min(model.ir_version, max(needed, 8 if converted.functions else 0)))
    return converted


def _refused(model: onnx.ModelProto, opset: int, said: str) -> ConversionError:
    return ConversionError(
        f"The model has operator set {opset_of(model)} and cannot be written in {opset}: {said}",
        hint="choose a version nearer to the model's, or leave --opset out",
        expected=opset_of(model),
        got=opset,
    )
