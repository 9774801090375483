"""What the `Interpreter` tells of one tensor, as the native package does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.tensors.arrays import has_numpy
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.formats.tflite_tables import TfliteTensor


def detail_of(tensor: TfliteTensor, number: int, shape: Sequence[int] | None) -> dict[str, Any]:
    """Describe a tensor.

    Args:
        tensor: The tensor.
        number: Its place among those of the main subgraph.
        shape: The shape that it has now; None for the file's.
    """
    is_single = len(tensor.scales) == 1 and len(tensor.zero_points) <= 1
    zero_point = tensor.zero_points[0] if tensor.zero_points else 0
    return {
        "name": tensor.name,
        "index": number,
        "shape": _array(tensor.shape if shape is None else shape, "int32"),
        "shape_signature": _array(tensor.signature, "int32"),
        "dtype": _numpy_type(tensor.dtype),
        "quantization": (tensor.scales[0], zero_point) if is_single else (0.0, 0),
        "quantization_parameters": {
            "scales": _array(tensor.scales, "float32"),
            "zero_points": _array(tensor.zero_points, "int32"),
            "quantized_dimension": tensor.dimension,
        },
        "sparsity_parameters": {},
    }


def _array(values: Sequence[float], dtype: str) -> Any:
    """Return numbers as natively where numpy can be imported, else as a tuple."""
    if not has_numpy():
        return tuple(values)
    import numpy

    return numpy.array(values, dtype=dtype)


def _numpy_type(dtype: str) -> Any:
    """Return numpy's type where numpy can be imported, else its name."""
    if not has_numpy() or dtype in ("string", "bfloat16", "int4", "unknown"):
        return DType(dtype) if dtype in list(DType) else dtype
    import numpy

    return numpy.dtype(dtype).type
