"""What an ONNX model takes and gives, and what its weights are stored in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from edge_infer.errors import UnsupportedModel
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.passes.graphs import tensor_nbytes, tensors_of

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.passes.weights_in_files import WeightsInFiles

_DTYPES: dict[int, DType] = {
    onnx.TensorProto.FLOAT: DType.FLOAT32,
    onnx.TensorProto.DOUBLE: DType.FLOAT64,
    onnx.TensorProto.FLOAT16: DType.FLOAT16,
    onnx.TensorProto.BFLOAT16: DType.BFLOAT16,
    onnx.TensorProto.INT4: DType.INT4,
    onnx.TensorProto.UINT4: DType.UINT4,
    onnx.TensorProto.INT8: DType.INT8,
    onnx.TensorProto.UINT8: DType.UINT8,
    onnx.TensorProto.INT16: DType.INT16,
    onnx.TensorProto.UINT16: DType.UINT16,
    onnx.TensorProto.INT32: DType.INT32,
    onnx.TensorProto.UINT32: DType.UINT32,
    onnx.TensorProto.INT64: DType.INT64,
    onnx.TensorProto.UINT64: DType.UINT64,
    onnx.TensorProto.BOOL: DType.BOOL,
    onnx.TensorProto.STRING: DType.STRING,
}
#: What `numpy` has no type for, so that such inputs can be neither drawn nor fed.
_NOT_IN_NUMPY = (DType.BFLOAT16, DType.INT4, DType.UINT4)
_PRECISIONS: dict[int, str] = {
    onnx.TensorProto.FLOAT: "fp32",
    onnx.TensorProto.DOUBLE: "fp32",
    onnx.TensorProto.FLOAT16: "fp16",
    onnx.TensorProto.BFLOAT16: "fp16",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "int8",
    onnx.TensorProto.INT4: "int4",
    onnx.TensorProto.UINT4: "int4",
}


def spec_of(value: onnx.ValueInfoProto, kind: str, path: Path) -> TensorSpec:
    """Return the spec of an input or output; a free dimension without a name is called after its place.

    Args:
        value: The input or output.
        kind: `Input` or `Output`.
        path: The model's file, for messages.

    Raises:
        UnsupportedModel: It is no tensor, has no rank, or a type that no engine takes or numpy cannot hold.
    """
    which = value.type.WhichOneof("value")
    if which != "tensor_type":
        what = (which or "nothing").removesuffix("_type").replace("_", " ")
        raise UnsupportedModel(
            f"{kind} `{value.name}` of `{path}` is a {what}, expected a tensor",
            hint="export it with plain tensors as inputs and outputs" if what != "nothing" else "",
            tensor=value.name,
        )
    tensor = value.type.tensor_type
    if tensor.elem_type not in _DTYPES:
        known = {number: name for name, number in onnx.TensorProto.DataType.items()}
        name = known.get(tensor.elem_type, f"number {tensor.elem_type}")
        raise UnsupportedModel(
            f"{kind} `{value.name}` of `{path}` has the type {name}, which no engine here takes",
            hint="export it with float32, float16 or integer tensors",
        )
    dtype = _DTYPES[tensor.elem_type]
    if kind == "Input" and dtype in _NOT_IN_NUMPY:
        raise UnsupportedModel(
            f"Input `{value.name}` of `{path}` is {dtype}, which numpy cannot hold",
            hint="export it with float32 inputs",
        )
    if not tensor.HasField("shape"):
        raise UnsupportedModel(
            f"{kind} `{value.name}` of `{path}` has no rank", hint="run onnx.shape_inference.infer_shapes on it first"
        )
    dims = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_{axis}"
        for axis, dim in enumerate(tensor.shape.dim)
    ]
    return TensorSpec(value.name, dtype, dims)


def precision_of(proto: onnx.ModelProto, in_files: WeightsInFiles | None) -> str:
    """Return what most bytes of the weights are stored in: `fp32`, `fp16`, `int8` or `int4`."""
    sizes: dict[str, int] = {}
    if in_files is not None:
        for name in in_files:
            precision = _PRECISIONS.get(in_files.dtype(name), "")
            sizes[precision] = sizes.get(precision, 0) + in_files.nbytes(name)
        sizes.pop("", None)
    for tensor in tensors_of(proto.graph):
        if tensor.data_type in _PRECISIONS:
            precision = _PRECISIONS[tensor.data_type]
            sizes[precision] = sizes.get(precision, 0) + tensor_nbytes(tensor)
    return max(sizes, key=lambda precision: sizes[precision]) if sizes else "fp32"
