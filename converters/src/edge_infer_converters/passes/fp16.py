"""Store weights in half precision: half the bytes, inputs and outputs stay float32."""

from __future__ import annotations

import warnings

import onnx

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.graphs import drop_stored_shapes, sort_nodes
from edge_infer_converters.passes.shorten_names import shorten_names


def to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose float32 weights and inner values are float16.

    Operators that have no float16 form, or lose too much in it, keep float32 between casts; which ones is ONNX
    Runtime's list (`onnxruntime.transformers.float16.DEFAULT_OP_BLOCK_LIST`).

    Raises:
        ConversionError: The converter failed; the message is its own.
    """
    from onnxruntime.transformers import float16

    source = fold_constants(model)
    drop_stored_shapes(source.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one for each weight below the smallest half-precision number
        try:
            converted: onnx.ModelProto = float16.convert_float_to_float16(source, keep_io_types=True)
            sort_nodes(converted.graph)  # the converter appends its casts at the end
        except Exception as error:  # asserts and protobuf errors alike
            raise ConversionError(f"The model cannot be converted to fp16: {error}") from error
    drop_stored_shapes(converted.graph)
    return shorten_names(converted)


def has_float_weights(model: onnx.ModelProto) -> bool:
    """Tell whether there is a float32 weight of more than one element to make smaller."""
    return any(
        tensor.data_type == onnx.TensorProto.FLOAT and any(dim > 1 for dim in tensor.dims)
        for tensor in model.graph.initializer
    )


def engine_options(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    """Return the engine settings that a half-precision model needs, by backend.

    ONNX Runtime 1.31 crashes on x86 CPUs when it fuses a Transpose that moves the batch axis into a float16 MatMul,
    as in multi-head attention over [length, batch, features].
    """
    moving = {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Transpose"
        and next((attribute.ints[0] for attribute in node.attribute if attribute.name == "perm" and attribute.ints), 0)
    }
    if any(node.op_type == "MatMul" and moving & set(node.input) for node in model.graph.node):
        return {"onnxruntime": {"optimization.disable_specified_optimizers": "MatmulTransposeFusion"}}
    return {}
