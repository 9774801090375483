"""Turn stored integers behind `DequantizeLinear` into floats, and remember the scales that they had.

Weights are turned, folded and renamed on their way to another format. They keep their numbers, so that is what finds
their scales again: a weight is known by all its values in ascending order.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.passes.graphs import drop_unread_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT32)
_UNSIGNED_SHIFT = 128


class Scales(NamedTuple):
    """What stored integers of 8 bits stand for: scale * (integer - zero point), the integers signed.

    Attributes:
        values: One scale, or one for each slice of an axis.
        zero_points: As many zero points.
    """

    values: np.ndarray
    zero_points: np.ndarray


def key_of(values: np.ndarray) -> str:
    """Name a weight by its values, whatever its order of axes."""
    return sha256(np.sort(values.astype(np.float32), axis=None).tobytes()).hexdigest()


def to_float_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Scales]]:
    """Return a copy with float weights in place of stored integers and their `DequantizeLinear`.

    Integers in blocks, and of other types than int8, uint8 and int32, stay.

    Returns:
        The copy, and the scales of the weights by `key_of`; those of int32, which are biases, follow from others.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    found: dict[str, Scales] = {}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        is_weight = node.op_type == "DequantizeLinear" and all(name in stored for name in node.input if name)
        if not is_weight or node.output[0] in outputs or not _is_known(node, stored):
            kept.append(node)
            continue
        value, scales = _dequantized(node, stored)
        if scales is not None:
            found[key_of(value)] = scales
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    drop_unread_tensors(graph)
    return changed, found


def _is_known(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> bool:
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    is_plain = stored[node.input[0]].data_type in _TYPES and not numbers.get("block_size", 0)
    return is_plain and stored[node.input[1]].data_type == onnx.TensorProto.FLOAT


def _dequantized(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> tuple[np.ndarray, Scales | None]:
    """Compute (integer - zero point) * scale as the operator does, in float32."""
    codes, scale = (numpy_helper.to_array(stored[name]) for name in node.input[:2])
    has_zero_point = len(node.input) > 2 and bool(node.input[2])
    zero_point = numpy_helper.to_array(stored[node.input[2]]) if has_zero_point else np.zeros(scale.shape, codes.dtype)
    flat, zeros = scale.reshape(-1), zero_point.reshape(-1)
    shape = [1] * codes.ndim
    if flat.size > 1:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1) % codes.ndim
        shape[axis] = -1
    value = (codes.astype(np.int64) - zeros.astype(np.int64).reshape(shape)).astype(np.float32) * flat.reshape(shape)
    if codes.dtype == np.int32:
        return value.astype(np.float32), None
    shift = _UNSIGNED_SHIFT if codes.dtype == np.uint8 else 0
    return value.astype(np.float32), Scales(flat.astype(np.float32), zeros.astype(np.int64) - shift)
