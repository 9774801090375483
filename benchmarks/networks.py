"""Networks with random weights: what they compute means nothing, what it costs is what the real ones cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

# Expansion, channels, repeats, stride of the first: table 2 of https://arxiv.org/abs/1801.04381.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class Graph:
    """A graph that grows node by node; its weights are random, the same each time."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Add a node; return the name of its output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, values: np.ndarray | np.generic) -> str:
        """Add a constant; return its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int, is_scaled: bool = False) -> str:
        """Add random weights; the last axis of a scaled matrix is what goes out, else the first."""
        fan_in = max(1, shape[0] if is_scaled else int(np.prod(shape[1:])))
        return self.constant(self._rng.normal(size=shape).astype(np.float32) * np.float32((2 / fan_in) ** 0.5))

    def conv(self, x: str, into: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1, relu: bool) -> str:
        """Add a convolution that keeps the size but for its stride, and the limits 0 to 6 behind it."""
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
    graph = Graph()
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
    graph = Graph()
    x = _blocks(graph, "embeddings", width, depth, heads, length)
    graph.nodes.append(helper.make_node("Identity", [x], ["states"]))
    shape = ["batch", length, width]
    return _transformer(
        graph,
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, shape)],
        helper.make_tensor_value_info("states", TensorProto.FLOAT, shape),
    )


def token_encoder(words: int, width: int, depth: int, heads: int, length: int) -> ModelProto:
    """Build an encoder from tokens and their mask to one vector, the mean over the tokens: the whole of MiniLM."""
    graph = Graph()
    mask = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.add("Mul", graph.add("Sub", graph.constant(np.float32(1)), mask), graph.constant(np.float32(-1e4)))
    hidden = graph.add("Unsqueeze", hidden, graph.constant(np.array([1, 2], np.int64)))
    x = graph.add("Gather", graph.weight(words, width), "input_ids", axis=0)
    x = _blocks(graph, graph.add("Add", x, graph.weight(length, width)), width, depth, heads, length, hidden)
    part = graph.add("Unsqueeze", mask, graph.constant(np.array([2], np.int64)))
    axes = graph.constant(np.array([1], np.int64))
    total = graph.add("ReduceSum", graph.add("Mul", x, part), axes, keepdims=0)
    graph.nodes.append(helper.make_node("Div", [total, graph.add("ReduceSum", part, axes, keepdims=0)], ["embedding"]))
    names = ("input_ids", "attention_mask")
    return _transformer(
        graph,
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length]) for name in names],
        helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", width]),
    )


def _blocks(graph: Graph, x: str, width: int, depth: int, heads: int, length: int, hidden_tokens: str = "") -> str:
    """Add the layers of a transformer; `hidden_tokens` is added to the scores of attention."""
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

    for _ in range(depth):
        scores = graph.add("MatMul", per_head(x, [0, 2, 1, 3]), per_head(x, [0, 2, 3, 1]))
        scores = graph.add("Mul", scores, scale)
        if hidden_tokens:
            scores = graph.add("Add", scores, hidden_tokens)
        mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), per_head(x, [0, 2, 1, 3]))
        mixed = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = norm(graph.add("Add", x, dense(mixed, width, width)))
        hidden = dense(x, width, 4 * width)
        x = norm(graph.add("Add", x, dense(graph.add("Gelu", hidden), 4 * width, width)))
    return x


def _transformer(graph: Graph, inputs: list[ValueInfoProto], output: ValueInfoProto) -> ModelProto:
    whole = helper.make_graph(graph.nodes, "encoder", inputs, [output], graph.weights)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
