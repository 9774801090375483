"""Small instances, with random weights, of the networks that people convert: every kind of block, few channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Arrays = dict[str, np.ndarray[Any, Any]]


class Net:
    """Collects nodes and weights; each method returns the name of its result."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: Arrays = {}

    def stored(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x: str, ins: int, outs: int, size: int = 3, stride: int = 1, group: int = 1, **more: Any) -> str:
        weight = self.rng.normal(0, (2 / (ins // group * size * size)) ** 0.5, (outs, ins // group, size, size))
        bias = self.stored(self.rng.normal(0, 0.1, outs))
        pads = more.pop("pads", [size // 2] * 4)
        return str(self.op("Conv", x, self.stored(weight), bias, strides=[stride] * 2, group=group, pads=pads, **more))

    def relu6(self, x: str) -> str:
        return str(self.op("Clip", x, self.stored(0), self.stored(6)))

    def norm(self, x: str, channels: int) -> str:
        """Batch normalization, as exporters leave it behind a convolution."""
        parts = (self.rng.normal(1, 0.1, channels), *self.rng.normal(0, 0.1, (2, channels)))
        stored = [self.stored(part) for part in (*parts, self.rng.uniform(0.5, 1.5, channels))]
        return str(self.op("BatchNormalization", x, *stored))

    def dense(self, x: str, ins: int, outs: int) -> str:
        weight = self.stored(self.rng.normal(0, ins**-0.5, (ins, outs)))
        return str(self.op("Add", self.op("MatMul", x, weight), self.stored(self.rng.normal(0, 0.1, outs))))

    def layer_norm(self, x: str, width: int) -> str:
        scale, shift = self.stored(self.rng.normal(1, 0.1, width)), self.stored(self.rng.normal(0, 0.1, width))
        return str(self.op("LayerNormalization", x, scale, shift, axis=-1))

    def head(self, x: str, channels: int, classes: int = 10) -> str:
        flat = self.op("Flatten", self.op("GlobalAveragePool", x))
        weight = self.stored(self.rng.normal(0, channels**-0.5, (classes, channels)))
        return str(self.op("Gemm", flat, weight, self.stored(self.rng.normal(0, 0.1, classes)), transB=1))

    def attention(self, x: str, width: int, heads: int, mask: str = "") -> str:
        """Self-attention over x [batch, length, width]."""
        split, joined = self.stored([0, -1, heads, width // heads], np.int64), self.stored([0, -1, width], np.int64)
        query, key, value = (
            self.op("Transpose", self.op("Reshape", self.dense(x, width, width), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = self.op("Mul", self.op("MatMul", query, key), self.stored((width // heads) ** -0.5))
        weights = self.op("Softmax", self.op("Add", scores, mask) if mask else scores, axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.dense(self.op("Reshape", mixed, joined), width, width)

    def model(self, inputs: Sequence[onnx.ValueInfoProto], *results: str) -> bytes:
        outputs = [zoo.value(name, None) for name in results]
        return zoo.model(self.nodes, inputs, outputs, self.weights)


def image(size: int = 32, channels: int = 3) -> onnx.ValueInfoProto:
    return zoo.value("image", ["batch", channels, size, size])


def mobilenet_v1() -> bytes:
    net = Net()
    x = net.op("Relu", net.norm(net.conv("image", 3, 8, stride=2), 8))
    for ins, outs, stride in ((8, 16, 1), (16, 32, 2), (32, 32, 1)):
        x = net.op("Relu", net.norm(net.conv(x, ins, ins, stride=stride, group=ins), ins))
        x = net.op("Relu", net.norm(net.conv(x, ins, outs, size=1), outs))
    return net.model([image()], net.head(x, 32))


def mobilenet_v2() -> bytes:
    net = Net()
    x = net.relu6(net.conv("image", 3, 8, stride=2))
    for ins, outs, stride in ((8, 12, 2), (12, 12, 1), (12, 16, 1)):
        y = net.relu6(net.conv(x, ins, ins * 6, size=1))
        y = net.conv(net.relu6(net.conv(y, ins * 6, ins * 6, stride=stride, group=ins * 6)), ins * 6, outs, size=1)
        x = net.op("Add", x, y) if ins == outs and stride == 1 else y
    return net.model([image()], net.head(x, 16))


def mobilenet_v3() -> bytes:
    """Squeeze and excitation, hard swish, hard sigmoid, windows of 5."""
    net = Net()
    x = net.op("HardSwish", net.conv("image", 3, 8, stride=2))
    for ins, outs, size in ((8, 16, 3), (16, 16, 5)):
        wide = ins * 3
        y = net.op("HardSwish", net.conv(x, ins, wide, size=1))
        y = net.op("HardSwish", net.conv(y, wide, wide, size=size, group=wide))
        squeezed = net.op("Relu", net.conv(net.op("GlobalAveragePool", y), wide, 8, size=1))
        gate = net.op("HardSigmoid", net.conv(squeezed, 8, wide, size=1), alpha=1 / 6, beta=0.5)
        y = net.conv(net.op("Mul", y, gate), wide, outs, size=1)
        x = net.op("Add", x, y) if ins == outs else y
    return net.model([image()], net.head(x, 16))


def efficientnet_lite() -> bytes:
    """Uneven padding, as TensorFlow's SAME comes out of exporters."""
    net = Net()
    x = net.relu6(net.conv("image", 3, 8, stride=2, pads=[0, 0, 1, 1]))
    y = net.relu6(net.conv(x, 8, 48, size=1))
    y = net.relu6(net.conv(y, 48, 48, size=5, stride=2, group=48, pads=[1, 1, 2, 2]))
    x = net.conv(y, 48, 12, size=1)
    y = net.relu6(net.conv(x, 12, 72, size=1))
    y = net.conv(net.relu6(net.conv(y, 72, 72, group=72)), 72, 12, size=1)
    return net.model([image()], net.op("Softmax", net.head(net.op("Add", x, y), 12)))


def resnet() -> bytes:
    net = Net()
    x = net.op("Relu", net.norm(net.conv("image", 3, 8, size=7, stride=2), 8))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for ins, outs, stride in ((8, 8, 1), (8, 16, 2)):
        y = net.op("Relu", net.norm(net.conv(x, ins, outs, stride=stride), outs))
        y = net.norm(net.conv(y, outs, outs), outs)
        shortcut = x if ins == outs else net.norm(net.conv(x, ins, outs, size=1, stride=stride), outs)
        x = net.op("Relu", net.op("Add", y, shortcut))
    return net.model([image()], net.head(x, 16))


def u_net() -> bytes:
    """A transposed convolution one way up, a resize the other."""
    net = Net()
    first = net.op("Relu", net.conv("image", 3, 8))
    down = net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    second = net.op("Relu", net.conv(down, 8, 16))
    third = net.op("Relu", net.conv(net.op("AveragePool", second, kernel_shape=[2, 2], strides=[2, 2]), 16, 16))
    weight = net.stored(net.rng.normal(0, 0.15, (16, 16, 2, 2)))
    up = net.op("ConvTranspose", third, weight, net.stored(np.zeros(16)), strides=[2, 2])
    x = net.op("LeakyRelu", net.conv(net.op("Concat", up, second, axis=1), 32, 8), alpha=0.1)
    scales = net.stored([1, 1, 2, 2])
    up = net.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    x = net.op("PRelu", net.conv(net.op("Concat", up, first, axis=1), 16, 8), net.stored(np.full((8, 1, 1), 0.2)))
    return net.model([zoo.value("image", [1, 3, 16, 16])], net.op("Sigmoid", net.conv(x, 8, 2, size=1)))


def detector() -> bytes:
    """Two scales with a nearest resize between, and a head that turns its numbers into boxes, as YOLO does."""
    net = Net()
    near = net.op("Mul", (x := net.conv("image", 3, 16, stride=2)), net.op("Sigmoid", x))
    left, right = net.op("Split", near, net.stored([8, 8], np.int64), axis=1, outputs=2)
    near = net.op("Concat", left, net.op("Relu", net.conv(right, 8, 8)), axis=1)
    far = net.op("Relu", net.conv(near, 16, 16, stride=2))
    scales = net.stored([1, 1, 2, 2])
    up = net.op(
        "Resize", far, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    near = net.op("Relu", net.conv(net.op("Concat", up, near, axis=1), 32, 16))
    found = []
    for x, count in ((near, 256), (far, 64)):
        y = net.op("Reshape", net.conv(x, 16, 12, size=1), net.stored([1, 2, 6, count], np.int64))
        found.append(net.op("Reshape", net.op("Transpose", y, perm=[0, 1, 3, 2]), net.stored([1, -1, 6], np.int64)))
    every = net.op("Concat", *found, axis=1)
    begin = [net.stored([i], np.int64) for i in (0, 2, 4, 6)]
    last, one = net.stored([2], np.int64), net.stored([1], np.int64)
    centre, size, score = (net.op("Slice", every, begin[i], begin[i + 1], last, one) for i in range(3))
    grid = net.stored(net.rng.uniform(0, 16, (1, 640, 2)))
    centre = net.op("Add", net.op("Sigmoid", centre), grid)
    size = net.op("Mul", net.op("Exp", size), net.stored([4.0, 6.0]))
    half = net.op("Mul", size, net.stored(0.5))
    boxes = net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=2)
    return net.model([zoo.value("image", [1, 3, 32, 32])], boxes, net.op("Sigmoid", score))


def ds_cnn() -> bytes:
    net = Net()
    x = net.op("Relu", net.conv("image", 1, 32, size=5, stride=2, pads=[2, 2, 2, 2]))
    for _ in range(2):
        x = net.op("Relu", net.norm(net.conv(x, 32, 32, group=32), 32))
        x = net.op("Relu", net.norm(net.conv(x, 32, 32, size=1), 32))
    return net.model([zoo.value("image", ["batch", 1, 49, 10])], net.head(x, 32, 12))


def crnn() -> bytes:
    """Convolutions over a line of text, its columns as the steps of a two-way LSTM."""
    net = Net()
    x = net.op("Relu", net.conv("image", 1, 8))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Relu", net.conv(x, 8, 8))
    x = net.op("MaxPool", x, kernel_shape=[8, 1], strides=[8, 1])
    x = net.op("Transpose", net.op("Squeeze", x, net.stored([2], np.int64)), perm=[2, 0, 1])
    parts = [net.stored(net.rng.normal(0, 0.3, shape)) for shape in ((2, 96, 8), (2, 96, 24), (2, 192))]
    y, _, _ = net.op("LSTM", x, *parts, hidden_size=24, direction="bidirectional", outputs=3)
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.stored([0, 0, -1], np.int64))
    return net.model([zoo.value("image", [1, 1, 16, 24])], net.op("LogSoftmax", net.dense(y, 48, 11), axis=-1))


def bert() -> bytes:
    """Two layers over 12 tokens, a mask, mean pooling."""
    net = Net()
    mask = net.op("Cast", "mask", to=int(onnx.TensorProto.FLOAT))
    wide = net.op("Unsqueeze", mask, net.stored([1, 2], np.int64))
    far = net.op("Mul", net.op("Sub", wide, net.stored(1)), net.stored(1e4))
    x = net.op("Gather", net.stored(net.rng.normal(0, 1, (60, 32))), "ids")
    x = net.layer_norm(net.op("Add", x, net.stored(net.rng.normal(0, 0.3, (12, 32)))), 32)
    for _ in range(2):
        x = net.layer_norm(net.op("Add", x, net.attention(x, 32, 4, far)), 32)
        inner = net.op("Gelu", net.dense(x, 32, 64))
        x = net.layer_norm(net.op("Add", x, net.dense(inner, 64, 32)), 32)
    column = net.op("Unsqueeze", mask, net.stored([2], np.int64))
    total = net.op("ReduceSum", net.op("Mul", x, column), net.stored([1], np.int64), keepdims=0)
    pooled = net.op("Div", total, net.op("ReduceSum", mask, net.stored([1], np.int64)))
    ids, lengths = zoo.value("ids", ["batch", 12], "int64"), zoo.value("mask", ["batch", 12], "int64")
    return net.model([ids, lengths], net.op("LpNormalization", pooled, axis=1, p=2))


def vision_transformer() -> bytes:
    net = Net()
    x = net.conv("image", 3, 32, size=8, stride=8, pads=[0, 0, 0, 0])
    x = net.op("Transpose", net.op("Reshape", x, net.stored([1, 32, 16], np.int64)), perm=[0, 2, 1])
    x = net.op("Concat", net.stored(net.rng.normal(0, 1, (1, 1, 32))), x, axis=1)
    x = net.op("Add", x, net.stored(net.rng.normal(0, 0.3, (1, 17, 32))))
    for _ in range(2):
        x = net.op("Add", x, net.attention(net.layer_norm(x, 32), 32, 4))
        y = net.dense(net.layer_norm(x, 32), 32, 64)
        erf = net.op("Erf", net.op("Mul", y, net.stored(2**-0.5)))
        y = net.op("Mul", net.op("Mul", y, net.op("Add", erf, net.stored(1))), net.stored(0.5))
        x = net.op("Add", x, net.dense(y, 64, 32))
    first = net.op("Gather", net.layer_norm(x, 32), net.stored(0, np.int64), axis=1)
    return net.model([zoo.value("image", [1, 3, 32, 32])], net.dense(first, 32, 10))


def decoder() -> bytes:
    """One step of a language model with its cache: root mean square norms, rotated halves, a gated product."""
    net, width, heads, length = Net(), 32, 4, 7

    def rms(x: str) -> str:
        mean = net.op("ReduceMean", net.op("Mul", x, x), net.stored([-1], np.int64))
        root = net.op("Sqrt", net.op("Add", mean, net.stored(1e-5)))
        return str(net.op("Mul", net.op("Div", x, root), net.stored(net.rng.normal(1, 0.1, width))))

    def rotated(x: str) -> str:
        left, right = net.op("Split", x, net.stored([4, 4], np.int64), axis=-1, outputs=2)
        turned = net.op("Concat", net.op("Neg", right), left, axis=-1)
        cosine, sine = (net.op("Gather", net.stored(net.rng.uniform(-1, 1, (16, 8))), "position") for _ in range(2))
        return str(net.op("Add", net.op("Mul", x, cosine), net.op("Mul", turned, sine)))

    x = net.op("Gather", net.stored(net.rng.normal(0, 1, (50, width))), "token")
    y = rms(x)
    split = net.stored([1, 1, heads, 8], np.int64)
    query, key, value = (
        net.op("Transpose", net.op("Reshape", net.dense(y, width, width), split), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    query, key = rotated(query), rotated(key)
    keys, values = net.op("Concat", "keys", key, axis=2), net.op("Concat", "values", value, axis=2)
    scores = net.op("MatMul", query, net.op("Transpose", keys, perm=[0, 1, 3, 2]))
    weights = net.op("Softmax", net.op("Mul", scores, net.stored(8**-0.5)), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    mixed = net.op("Reshape", mixed, net.stored([1, 1, width], np.int64))
    x = net.op("Add", x, net.dense(mixed, width, width))
    y = rms(x)
    gate = net.dense(y, width, 48)
    gated = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), net.dense(y, width, 48))
    x = net.op("Add", x, net.dense(gated, 48, width))
    cache = [zoo.value(name, [1, heads, length, 8]) for name in ("keys", "values")]
    inputs = [zoo.value("token", [1, 1], "int64"), zoo.value("position", [1], "int64"), *cache]
    return net.model(inputs, net.dense(rms(x), width, 50), keys, values)


MODELS: dict[str, Callable[[], bytes]] = {
    one.__name__: one
    for one in (
        mobilenet_v1,
        mobilenet_v2,
        mobilenet_v3,
        efficientnet_lite,
        resnet,
        u_net,
        detector,
        ds_cnn,
        crnn,
        bert,
        vision_transformer,
        decoder,
    )
}


def calls_of(model: bytes, count: int, batch: int = 1) -> list[Arrays]:
    """Draw inputs: normal floats, tokens below 16, masks of ones with zeros behind."""
    rng = np.random.default_rng(7)
    calls: list[Arrays] = []
    for _ in range(count):
        call: Arrays = {}
        for value in onnx.load_from_string(model).graph.input:
            kind = value.type.tensor_type
            shape = [dim.dim_value if dim.HasField("dim_value") else batch for dim in kind.shape.dim]
            if kind.elem_type == onnx.TensorProto.FLOAT:
                call[value.name] = rng.normal(0, 1, shape).astype(np.float32)
            elif value.name == "mask":
                call[value.name] = np.broadcast_to(np.arange(shape[1]) < rng.integers(3, shape[1]), shape).astype(
                    np.int64
                )
            else:
                call[value.name] = rng.integers(0, 16, shape)
        calls.append(call)
    return calls
