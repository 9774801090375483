"""Store the weights of a quantization-aware model as the integers that it computes with.

Training tools export float weights with `QuantizeLinear` and `DequantizeLinear` behind: the file is four times as large
as need be, and looks like a float model, which would be quantized a second time.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.passes.graphs import drop_unread_tensors

_TYPES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


def store_quantized_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the results of `QuantizeLinear` of weights in their place: itself where there are none.

    The numbers are those of the operator: x / scale in float32, rounded half to even, plus the zero point, saturated.
    Blocks and types other than 8-bit integers stay as they are.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    given = {value.name for value in (*model.graph.input, *model.graph.output)}
    if not any(_is_of_weights(node, stored, given) for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in [node for node in changed.graph.node if _is_of_weights(node, stored, given)]:
        codes = _codes(node, stored)
        if codes is not None:
            changed.graph.initializer.append(numpy_helper.from_array(codes, node.output[0]))
            changed.graph.node.remove(node)
    drop_unread_tensors(changed.graph)
    return changed


def _is_of_weights(node: onnx.NodeProto, stored: dict[str, onnx.TensorProto], given: set[str]) -> bool:
    if node.op_type != "QuantizeLinear" or node.domain not in ("", "ai.onnx") or node.output[0] in given:
        return False
    names = [name for name in node.input if name]
    return (
        all(name in stored and name not in given for name in names)
        and stored[names[0]].data_type == onnx.TensorProto.FLOAT
        and stored[names[1]].data_type == onnx.TensorProto.FLOAT
    )


def _codes(node: onnx.NodeProto, stored: dict[str, onnx.TensorProto]) -> np.ndarray | None:
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    has_zero_point = len(node.input) > 2 and bool(node.input[2])
    kind = stored[node.input[2]].data_type if has_zero_point else numbers.get("output_dtype") or onnx.TensorProto.UINT8
    if kind not in _TYPES or numbers.get("block_size", 0):
        return None
    values, scale = (numpy_helper.to_array(stored[name]) for name in node.input[:2])
    dtype = np.dtype(np.int8 if kind == onnx.TensorProto.INT8 else np.uint8)
    zero_point = numpy_helper.to_array(stored[node.input[2]]) if has_zero_point else np.zeros((), dtype)
    if scale.size > 1:
        axis = numbers.get("axis", 1) % values.ndim
        shape = [-1 if i == axis else 1 for i in range(values.ndim)]
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    elif scale.ndim:
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        rounded = np.rint(values / scale) + zero_point.astype(np.float32)
    if not np.isfinite(rounded).all():
        return None  # what an engine makes of these is its own
    codes: np.ndarray = np.clip(rounded, limits.min, limits.max).astype(dtype)
    return codes
