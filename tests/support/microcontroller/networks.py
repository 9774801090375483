"""A small int8 network for models in C: a residual block, a depthwise convolution, a pool, a layer and a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite import flatbuffer
from edge_infer_converters.writers.tflite.graph import Graph, Quantization, Tensor

_INT8 = np.dtype(np.int8)


def residual(seed: int = 4, height: int = 11, width: int = 9, channels: int = 6, *, has_empty: bool = False) -> bytes:
    """Return the file of a network over an image of 3 channels, with 5 classes.

    Training leaves channels without weights, with a bias that 32 bits hardly hold: `has_empty` makes some.
    """
    rng = np.random.default_rng(seed)

    def value(name: str, *shape: int, step: float = 0.05, zero: int = -3) -> Tensor:
        return Tensor(name, shape, shape, _INT8, None, Quantization(np.array([step], np.float32), zero))

    def weights(*shape: int, axis: int = 0, inputs: float = 0.05) -> list[Tensor]:
        scales = rng.uniform(2e-3, 2e-2, shape[axis]).astype(np.float32)
        data = rng.integers(-127, 128, shape).astype(np.int8)
        bias = rng.integers(-900, 900, shape[axis]).astype(np.int32)
        if has_empty:
            np.moveaxis(data, axis, 0)[:2] = 0
            bias[:2], scales[:2] = (2**30, -(2**30) - 128), (1e-12, 1e-9)
        return [
            Tensor("w", shape, shape, _INT8, data, Quantization(scales, 0, axis)),
            Tensor("b", bias.shape, bias.shape, bias.dtype, bias, Quantization(scales * np.float32(inputs))),
        ]

    def windows(found: Any, stride: int = 1) -> Any:
        found.padding, found.strideH, found.strideW, found.fusedActivationFunction = 0, stride, stride, 1
        found.dilationHFactor = found.dilationWFactor = 1
        return found

    x = value("image", 1, height, width, 3)
    first, second = value("first", 1, height, width, channels), value("second", 1, height, width, channels)
    rows, columns = -(-height // 2), -(-width // 2)
    total, small = value("sum", 1, height, width, channels, step=0.07), value("small", 1, rows, columns, channels)
    pooled, flat = value("pooled", 1, 1, 1, channels), value("flat", 1, channels)
    scores, shares = value("scores", 1, 5, step=0.1), value("shares", 1, 5, step=1 / 256, zero=-128)
    depthwise: Any = windows(schema.DepthwiseConv2DOptionsT(), 2)
    depthwise.depthMultiplier = 1
    pool: Any = schema.Pool2DOptionsT()
    pool.padding, pool.strideH, pool.strideW, pool.filterHeight, pool.filterWidth = 1, rows, columns, rows, columns
    layer: Any = schema.FullyConnectedOptionsT()
    softmax: Any = schema.SoftmaxOptionsT()
    softmax.beta = 1.0
    shape = np.array([1, channels], np.int32)
    graph = Graph([x], [shares])
    graph.add("CONV_2D", [x, *weights(channels, 3, 3, 3)], [first], windows(schema.Conv2DOptionsT()), 3)
    graph.add("CONV_2D", [first, *weights(channels, 1, 1, channels)], [second], windows(schema.Conv2DOptionsT()), 3)
    graph.add("ADD", [first, second], [total], schema.AddOptionsT(), 2)
    graph.add("DEPTHWISE_CONV_2D", [total, *weights(1, 3, 3, channels, axis=3, inputs=0.07)], [small], depthwise, 3)
    graph.add("AVERAGE_POOL_2D", [small], [pooled], pool, 2)
    graph.add("RESHAPE", [pooled, Tensor("shape", (2,), (2,), shape.dtype, shape)], [flat], schema.ReshapeOptionsT(), 1)
    graph.add("FULLY_CONNECTED", [flat, *weights(5, channels)], [scores], layer, 5)
    graph.add("SOFTMAX", [scores], [shares], softmax, 2)
    return flatbuffer.write(graph, "residual")
