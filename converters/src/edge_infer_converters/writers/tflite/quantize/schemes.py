"""The two kinds of integer arithmetic that TFLite has: values in 8 bits, or in 16 bits beside weights of 8.

Specification: https://ai.google.dev/edge/litert/models/quantization_spec; the version of each operator that reads these
types: tensorflow/lite/tools/versioning/op_version.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Scheme:
    """Integers for the values between operators, and what has kernels for them.

    Attributes:
        name: What tensors are called by.
        dtype: The type of values; weights are int8.
        lowest: The least integer of a value.
        highest: The greatest one.
        is_symmetric: Whether zero is always the integer 0.
        bias_dtype: The type of biases.
        largest_bias: What a bias may be at most, with room for the sums that are added to it.
        quantize_version: The version of QUANTIZE from float.
        dequantize_version: The version of DEQUANTIZE.
        moving: Operators that move values and do not change them, by version: what they read and give has one scale.
        computing: Operators that compute with integers of any scales, by version.
        prescribed: Operators whose result has a scale and a zero point that the kernel prescribes, behind the version.
        weighted: Operators with weights, and the version that multiplies integers by them.
        flattens_rows: Whether FULLY_CONNECTED takes matrices only: that of tflite-runtime 2.14 reads 16 bits of more
            axes as if there were two, and gives other numbers without a word.
    """

    name: str
    dtype: np.dtype
    lowest: int
    highest: int
    is_symmetric: bool
    bias_dtype: np.dtype
    largest_bias: float
    quantize_version: int
    dequantize_version: int
    moving: Mapping[str, int]
    computing: Mapping[str, int]
    prescribed: Mapping[str, tuple[int, float, int]]
    weighted: Mapping[str, int]
    flattens_rows: bool = False


INT8 = Scheme(
    name="int8",
    dtype=np.dtype(np.int8),
    lowest=-128,
    highest=127,
    is_symmetric=False,
    bias_dtype=np.dtype(np.int32),
    largest_bias=2.0**30,
    quantize_version=1,
    dequantize_version=2,
    moving={
        "AVERAGE_POOL_2D": 2,
        "CONCATENATION": 2,
        "DEPTH_TO_SPACE": 2,
        "EXPAND_DIMS": 1,
        "GATHER": 2,
        "MAXIMUM": 2,
        "MAX_POOL_2D": 2,
        "MINIMUM": 2,
        "PACK": 2,
        "PAD": 2,
        "PADV2": 2,
        "REDUCE_MAX": 2,
        "REDUCE_MIN": 2,
        "RESHAPE": 1,
        "RESIZE_BILINEAR": 2,
        "RESIZE_NEAREST_NEIGHBOR": 2,
        "SLICE": 2,
        "SPACE_TO_DEPTH": 2,
        "SPLIT": 2,
        "SPLIT_V": 2,
        "SQUEEZE": 1,
        "STRIDED_SLICE": 2,
        "TRANSPOSE": 2,
        "UNPACK": 2,
    },
    computing={
        "ADD": 2,
        "BATCH_MATMUL": 2,
        "HARD_SWISH": 1,
        "LEAKY_RELU": 2,
        "MEAN": 2,
        "MUL": 2,
        "PRELU": 1,
        "RELU": 2,
        "RELU6": 2,
        "SUB": 2,
        "SUM": 2,
    },
    prescribed={"LOGISTIC": (2, 1 / 256, -128), "SOFTMAX": (2, 1 / 256, -128), "TANH": (2, 1 / 128, 0)},
    weighted={"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "TRANSPOSE_CONV": 3},
)
#: Kernels of HARD_SWISH, PRELU and SUM lack 16 bits; they stay float.
INT8X16 = Scheme(
    name="int16",
    dtype=np.dtype(np.int16),
    lowest=-32767,
    highest=32767,
    is_symmetric=True,
    bias_dtype=np.dtype(np.int64),
    largest_bias=2.0**40,
    quantize_version=1,
    dequantize_version=3,
    moving={
        "AVERAGE_POOL_2D": 3,
        "CONCATENATION": 3,
        "EXPAND_DIMS": 1,
        "GATHER": 4,
        "MAXIMUM": 4,
        "MAX_POOL_2D": 3,
        "MINIMUM": 4,
        "PACK": 3,
        "PAD": 3,
        "PADV2": 3,
        "REDUCE_MAX": 3,
        "REDUCE_MIN": 3,
        "RESHAPE": 1,
        "RESIZE_BILINEAR": 4,
        "RESIZE_NEAREST_NEIGHBOR": 4,
        "SLICE": 4,
        "SPLIT": 4,
        "SPLIT_V": 2,
        "SQUEEZE": 1,
        "STRIDED_SLICE": 4,
        "TRANSPOSE": 5,
        "UNPACK": 4,
    },
    computing={
        "ADD": 3,
        "BATCH_MATMUL": 3,
        "LEAKY_RELU": 2,
        "MEAN": 3,
        "MUL": 4,
        "RELU": 3,
        "RELU6": 3,
        "SUB": 5,
    },
    prescribed={"LOGISTIC": (3, 1 / 32768, 0), "SOFTMAX": (3, 1 / 32768, 0), "TANH": (3, 1 / 32768, 0)},
    weighted={"CONV_2D": 4, "DEPTHWISE_CONV_2D": 5, "FULLY_CONNECTED": 7, "TRANSPOSE_CONV": 3},
    flattens_rows=True,
)
