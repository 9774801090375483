"""Which operators compute with integers: those with weights, and what lies between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edge_infer_converters.targets.tflite.graph import Graph, Operator, Tensor

#: Operators that move values and do not change them: what they read and give has one scale.
MOVING = {
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
}
#: Operators that compute with integers of any scales, and the version that does.
COMPUTING = {
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
}
#: Operators whose result has a scale and a zero point that the kernel prescribes.
PRESCRIBED = {
    "LOGISTIC": (2, 1 / 256, -128),
    "SOFTMAX": (2, 1 / 256, -128),
    "TANH": (2, 1 / 128, 0),
}
#: Operators with weights, and the version that multiplies integers by them.
WEIGHTED = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "TRANSPOSE_CONV": 3}
# Where a small error of the operand becomes a large one of the result.
_SENSITIVE = ("DIV", "EXP", "LOG", "POW", "RSQRT", "SQRT")
# What leads to them without weights in between, as in layer normalization: squares and means of small numbers.
_LEADING = ("ADD", "MEAN", "MUL", "SUB", "SUM")


def in_integers(graph: Graph, *, to_the_end: bool = False) -> set[int]:
    """Choose the operators that compute with integers.

    Args:
        graph: A float graph.
        to_the_end: Whether also those at the end do that only spoil a result in integers, as SOFTMAX.

    Returns:
        Their `id`.
    """
    makers = {id(tensor): operator for operator in graph.operators for tensor in operator.outputs}
    readers: dict[int, list[Operator]] = {}
    for operator in graph.operators:
        for tensor in operator.inputs:
            if tensor is not None:
                readers.setdefault(id(tensor), []).append(operator)
    kept_float = _leading_to_sensitive(graph, makers)
    ends = {id(tensor) for tensor in graph.outputs}
    chosen: set[int] = set()
    for operator in graph.operators:
        if operator.code in WEIGHTED:
            if _has_float_weights(operator):
                chosen.add(id(operator))
            continue
        if not _is_known(operator) or id(operator) in kept_float:
            continue
        if operator.code in PRESCRIBED and not to_the_end and any(id(one) in ends for one in operator.outputs):
            continue
        values = [tensor for tensor in operator.inputs if tensor is not None and is_activation(tensor)]
        found = [makers.get(id(tensor)) for tensor in values]
        if values and all(maker is not None and id(maker) in chosen for maker in found):
            chosen.add(id(operator))
    # What prepares values for integers moves integers: a quarter of the bytes.
    for operator in reversed(graph.operators):
        read_by = [reader for tensor in operator.outputs for reader in readers.get(id(tensor), [])]
        is_end = any(id(tensor) in ends for tensor in operator.outputs)
        if operator.code not in MOVING or not _is_known(operator) or not read_by or is_end:
            continue
        if all(id(reader) in chosen for reader in read_by):
            chosen.add(id(operator))
    return chosen


def is_activation(tensor: Tensor | None) -> bool:
    """Tell whether a tensor holds floats that are computed."""
    return tensor is not None and tensor.data is None and tensor.dtype == np.float32


def _is_known(operator: Operator) -> bool:
    """Tell whether an operator without weights, of floats, has a kernel for integers."""
    known = operator.code in MOVING or operator.code in COMPUTING or operator.code in PRESCRIBED
    return known and all(is_activation(tensor) for tensor in operator.outputs)


def _has_float_weights(operator: Operator) -> bool:
    weights = operator.inputs[1]
    bias = operator.inputs[-1] if len(operator.inputs) > 2 and operator.code != "TRANSPOSE_CONV" else None
    is_constant = weights is not None and weights.data is not None and weights.dtype == np.float32
    return is_constant and (bias is None or bias.data is not None)


def _leading_to_sensitive(graph: Graph, makers: dict[int, Operator]) -> set[int]:
    waiting: list[Tensor] = []
    for operator in graph.operators:
        if operator.code in _SENSITIVE:
            waiting += [tensor for tensor in operator.inputs if is_activation(tensor) and tensor is not None]
    found: set[int] = set()
    while waiting:
        maker = makers.get(id(waiting.pop()))
        if maker is None or maker.code not in _LEADING or id(maker) in found:
            continue
        found.add(id(maker))
        waiting += [tensor for tensor in maker.inputs if is_activation(tensor) and tensor is not None]
    return found
