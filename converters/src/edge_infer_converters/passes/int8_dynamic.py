"""Dynamic int8: matrices in 8 bits, the ranges of what they are multiplied with taken from each call.

No calibration is needed, and transformers lose little; the arithmetic is int8, so it is the fast one on CPUs. All
other weights are stored in 8 bits too and computed with in float; tables have one scale for each row, which keeps more
than ONNX Runtime's one scale for the whole table.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.clean_up import clean_up
from edge_infer_converters.passes.graphs import drop_stored_shapes
from edge_infer_converters.passes.int8_blocks import store_in_blocks
from edge_infer_converters.passes.int8_static import prepare
from edge_infer_converters.passes.sessions import stored_apart
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.passes.weight_only import rewrite, weights_of

if TYPE_CHECKING:
    from collections.abc import Collection

_MULTIPLYING = ("MatMul", "Gemm")


def to_dynamic_int8(model: onnx.ModelProto, blocked: Collection[str] = ()) -> onnx.ModelProto:
    """Return a copy whose constant matrices are int8 and whose other weights are stored in 8 bits.

    Convolutions stay in float: computing their ranges in each call makes them slower than that.

    Args:
        model: A float32 model.
        blocked: Names of MatMul nodes, after `int8_static.prepare`, that multiply by blocks (`int8_blocks`): slower,
            and nearer to float.

    Raises:
        ConversionError: There is no matrix, or the quantizer failed.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    prepared = prepare(model)
    stored = {tensor.name for tensor in prepared.graph.initializer}
    if not any(n.op_type in _MULTIPLYING and len(n.input) > 1 and n.input[1] in stored for n in prepared.graph.node):
        raise ConversionError("The model has no MatMul or Gemm with constant weights", hint="--precision int8 or fp16")
    add_pre_process_metadata(prepared)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "int8.onnx")
        given = stored_apart(prepared, Path(folder))  # of a model in memory the quantizer makes three more copies
        del prepared
        try:
            quantization.quantize_dynamic(
                given,
                os.fspath(path),
                op_types_to_quantize=list(_MULTIPLYING),
                nodes_to_exclude=sorted(blocked),
                per_channel=True,
                weight_type=quantization.QuantType.QInt8,
            )
        except Exception as error:  # the quantizer raises whatever its parts raise
            raise ConversionError(f"The model cannot be quantized to dynamic int8: {error}") from error
        quantized = clean_up(onnx.load(path))
    drop_stored_shapes(quantized.graph)
    matrices = {node.input[1] for node in quantized.graph.node if node.name in blocked}
    others = [weight for weight in weights_of(quantized) if weight.name not in matrices]
    small = rewrite(
        store_in_blocks(quantized, blocked),
        others,
        {weight.name: "int8" for weight in others if "int8" in weight.encodings},
    )
    shorten_names(small)
    small.producer_name, small.producer_version = model.producer_name, model.producer_version
    return small
