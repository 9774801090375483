"""Networks with random weights: what they compute means nothing, what it costs is what the real ones cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# Expansion, channels, repeats, stride of the first: table 2 of https://arxiv.org/abs/1801.04381.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, values: np.ndarray | np.generic) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int, is_scaled: bool = False) -> str:
        """Add random weights; the last axis of a scaled matrix is what goes out, else the first."""
        fan_in = max(1, shape[0] if is_scaled else int(np.prod(shape[1:])))
        return self.constant(self._rng.normal(size=shape).astype(np.float32) * np.float32((2 / fan_in) ** 0.5))

    def conv(self, x: str, into: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1, relu: bool) -> str:
        pad = kernel // 2
        y = self.add(
            "Conv",
            x,
            self.weight(out, into // groups, kernel, kernel),
            self.weight(out),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=groups,
        )
        return self.add("Clip", y, "low", "high") if relu else y


def mobilenet_v2(batch: int | str = 1) -> ModelProto:
    """Build MobileNetV2-1.0 for 224x224, its batch normalisation folded as every exporter folds it: 3.5 M weights."""
    graph = _Graph()
    graph.weights += [numpy_helper.from_array(np.float32(bound), name) for name, bound in (("low", 0), ("high", 6))]
    x = graph.conv("image", 3, 32, kernel=3, stride=2, relu=True)
    channels = 32
    for expansion, out, repeats, first in _BLOCKS:
        for i in range(repeats):
            stride, hidden = (first if i == 0 else 1), channels * expansion
            y = graph.conv(x, channels, hidden, kernel=1, relu=True) if expansion > 1 else x
            y = graph.conv(y, hidden, hidden, kernel=3, stride=stride, groups=hidden, relu=True)
            y = graph.conv(y, hidden, out, kernel=1, relu=False)
            x = graph.add("Add", x, y) if stride == 1 and channels == out else y
            channels = out
    x = graph.conv(x, channels, 1280, kernel=1, relu=True)
    x = graph.add("Flatten", graph.add("GlobalAveragePool", x))
    graph.nodes.append(
        helper.make_node("Gemm", [x, graph.weight(1000, 1280), graph.weight(1000)], ["logits"], transB=1)
    )
    whole = helper.make_graph(
        graph.nodes,
        "mobilenet_v2",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 1000])],
        graph.weights,
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoder(width: int, depth: int, heads: int, length: int = 128) -> ModelProto:
    """Build a transformer encoder over embeddings, [batch, length, width] in and out: the cost of BERT and MiniLM."""
    graph = _Graph()
    scale = graph.constant(np.float32((width // heads) ** -0.5))
    split = graph.constant(np.array([0, length, heads, width // heads], np.int64))
    merge = graph.constant(np.array([0, length, width], np.int64))

    def dense(x: str, into: int, out: int) -> str:
        return graph.add("Add", graph.add("MatMul", x, graph.weight(into, out, is_scaled=True)), graph.weight(out))

    def norm(x: str) -> str:
        return graph.add(
            "LayerNormalization", x, graph.constant(np.ones(width, np.float32)), graph.weight(width), axis=-1
        )

    def per_head(x: str, order: list[int]) -> str:
        return graph.add("Transpose", graph.add("Reshape", dense(x, width, width), split), perm=order)

    x = "embeddings"
    for _ in range(depth):
        scores = graph.add("MatMul", per_head(x, [0, 2, 1, 3]), per_head(x, [0, 2, 3, 1]))
        weights = graph.add("Softmax", graph.add("Mul", scores, scale), axis=-1)
        mixed = graph.add("MatMul", weights, per_head(x, [0, 2, 1, 3]))
        mixed = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = norm(graph.add("Add", x, dense(mixed, width, width)))
        hidden = dense(x, width, 4 * width)
        x = norm(graph.add("Add", x, dense(graph.add("Gelu", hidden), 4 * width, width)))
    graph.nodes.append(helper.make_node("Identity", [x], ["states"]))
    shape = ["batch", length, width]
    whole = helper.make_graph(
        graph.nodes,
        "encoder",
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, shape)],
        graph.weights,
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
