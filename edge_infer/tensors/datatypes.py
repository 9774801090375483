"""The Open Inference Protocol's names of the element types."""

from __future__ import annotations

from edge_infer.tensors.dtypes import DType

_OWN_NAMES = {
    DType.FLOAT32: "FP32",
    DType.FLOAT64: "FP64",
    DType.FLOAT16: "FP16",
    DType.BFLOAT16: "BF16",
    DType.STRING: "BYTES",
}
#: The protocol has no name for 4-bit integers; theirs here follow its pattern.
DATATYPES = {dtype: _OWN_NAMES.get(dtype, dtype.upper()) for dtype in DType}
DTYPES = {name: dtype for dtype, name in DATATYPES.items()}
