"""Store weights in half precision: half the bytes, inputs and outputs stay float32."""

from __future__ import annotations

import warnings

import onnx

from edge_infer.errors import ConversionError
from edge_infer_converters.graphs import drop_stored_shapes, sort_nodes


def to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose float32 weights and inner values are float16.

    Operators that have no float16 form, or lose too much in it, keep float32 between casts; which ones is ONNX
    Runtime's list (`onnxruntime.transformers.float16.DEFAULT_OP_BLOCK_LIST`).

    Raises:
        ConversionError: The converter failed; the message is its own.
    """
    from onnxruntime.transformers import float16

    source = onnx.ModelProto()
    source.CopyFrom(model)
    drop_stored_shapes(source.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one for each weight below the smallest half-precision number
        try:
            converted: onnx.ModelProto = float16.convert_float_to_float16(source, keep_io_types=True)
            sort_nodes(converted.graph)  # the converter appends its casts at the end
        except Exception as error:  # asserts and protobuf errors alike
            raise ConversionError(f"The model cannot be converted to fp16: {error}") from error
    drop_stored_shapes(converted.graph)
    return converted


def has_float_weights(model: onnx.ModelProto) -> bool:
    """Tell whether there is a float32 weight of more than one element to make smaller."""
    return any(
        tensor.data_type == onnx.TensorProto.FLOAT and any(dim > 1 for dim in tensor.dims)
        for tensor in model.graph.initializer
    )
