"""Write a small TFLite net as ONNX with the same weights, for ONNX Runtime as a peer of compiled models.

Integers become QuantizeLinear and DequantizeLinear around float operators, which the engine fuses where it can. Images
stay channels-last at both ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edge_infer_converters.writers.tflite import reading

if TYPE_CHECKING:
    import onnx

    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


class _Writer:
    """The nodes and constants of a graph that is being written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.names: dict[int, str] = {}

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def node(self, code: str, inputs: list[str], **options: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(code, inputs, [name], **options))
        return name

    def scales(self, tensor: Tensor) -> list[str]:
        found = tensor.quantization
        if found is None:
            raise ValueError(f"{tensor.name} has no scale")
        return [self.constant(np.float32(found.scales[0])), self.constant(np.array(found.zero_point, tensor.dtype))]

    def weights(self, tensor: Tensor, data: np.ndarray, axis: int = 0) -> str:
        if data.dtype == np.float32:
            return self.constant(data)
        scales = tensor.quantization.scales  # type: ignore[union-attr]
        if len(scales) == 1:
            return self.node("DequantizeLinear", [self.constant(data), self.constant(np.float32(scales[0]))])
        return self.node("DequantizeLinear", [self.constant(data), self.constant(scales)], axis=axis)

    def bias(self, operator: Operator) -> list[str]:
        given, weights = operator.inputs[:2]
        bias = operator.inputs[2] if len(operator.inputs) > 2 else None
        if bias is None or bias.data is None or given is None or weights is None:
            return []
        if bias.data.dtype == np.float32:
            return [self.constant(bias.data)]
        step = given.quantization.scales[0] * weights.quantization.scales  # type: ignore[union-attr]
        scales = np.broadcast_to(step, bias.shape).astype(np.float32)
        return [self.node("DequantizeLinear", [self.constant(bias.data), self.constant(scales)], axis=0)]


def to_onnx(content: bytes, name: str) -> bytes:
    """Write a file of convolutions, layers, pools, sums and a softmax.

    Raises:
        ValueError: It has other operators.
    """
    graph, writer = reading.read(content, name).graph, _Writer()
    (given,), (made,) = graph.inputs, graph.outputs
    current = "input"
    if given.dtype == np.int8:
        current = writer.node("DequantizeLinear", [current, *writer.scales(given)])
    if given.rank == 4:
        current = writer.node("Transpose", [current], perm=[0, 3, 1, 2])
    writer.names[id(given)] = current
    for operator in graph.operators:
        output = operator.outputs[0]
        value = _node(writer, operator)
        fused = getattr(operator.options, "fusedActivationFunction", 0)
        if fused == 1:
            value = writer.node("Relu", [value])
        elif fused == 3:
            bounds = [writer.constant(np.float32(bound)) for bound in (0, 6)]
            value = writer.node("Clip", [value, *bounds])
        if output.dtype == np.int8 and operator.code != "RESHAPE":
            scales = writer.scales(output)
            value = writer.node("DequantizeLinear", [writer.node("QuantizeLinear", [value, *scales]), *scales])
        writer.names[id(output)] = value
    writer.nodes.append(helper.make_node("Identity", [writer.names[id(made)]], ["output"]))
    kind = TensorProto.INT8 if given.dtype == np.int8 else TensorProto.FLOAT
    ends = (
        [helper.make_tensor_value_info("input", kind, given.shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, made.shape)],
    )
    proto = helper.make_graph(writer.nodes, name, *ends, writer.constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def _node(writer: _Writer, operator: Operator) -> str:
    options: Any = operator.options
    tensors = [one for one in operator.inputs if one is not None]
    value, output = writer.names[id(tensors[0])], operator.outputs[0]
    if operator.code in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        source, weights = tensors[:2]
        data: np.ndarray = weights.data  # type: ignore[assignment]
        height, width = weights.shape[1:3]
        is_deep = operator.code == "DEPTHWISE_CONV_2D"
        groups = source.shape[3] if is_deep else 1
        if is_deep:
            data = data.reshape(height, width, groups, -1).transpose(2, 3, 0, 1).reshape(-1, 1, height, width)
        else:
            data = data.transpose(0, 3, 1, 2)
        pads = []
        for axis, kernel, stride in ((1, height, options.strideH), (2, width, options.strideW)):
            missing = max((output.shape[axis] - 1) * stride + kernel - source.shape[axis], 0)
            pads.append((missing // 2, missing - missing // 2) if options.padding == 0 else (0, 0))
        return writer.node(
            "Conv",
            [value, writer.weights(weights, data), *writer.bias(operator)],
            group=groups,
            kernel_shape=[height, width],
            strides=[options.strideH, options.strideW],
            pads=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]],
        )
    if operator.code == "FULLY_CONNECTED":
        weights = tensors[1]
        matrix = writer.weights(weights, weights.data)  # type: ignore[arg-type]
        return writer.node("Gemm", [value, matrix, *writer.bias(operator)], transB=1)
    if operator.code == "AVERAGE_POOL_2D":
        sizes = {"kernel_shape": [options.filterHeight, options.filterWidth]}
        return writer.node("AveragePool", [value], strides=[options.strideH, options.strideW], **sizes)
    if operator.code == "RESHAPE" and tensors[0].rank == 4 and output.rank == 2:
        value = writer.node("Transpose", [value], perm=[0, 2, 3, 1])
        return writer.node("Reshape", [value, writer.constant(np.array([1, -1], np.int64))])
    if operator.code == "ADD":
        return writer.node("Add", [value, writer.names[id(tensors[1])]])
    if operator.code == "SOFTMAX":
        return writer.node("Softmax", [value], axis=-1)
    raise ValueError(f"{operator.code} is not written")
