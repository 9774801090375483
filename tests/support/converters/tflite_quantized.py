"""Quantized TFLite models, made by the converter's own writer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from edge_infer_converters.writers.tflite import FloatGraph
from tests.support import zoo
from tests.support.converters.engines import random_feeds

Arrays = dict[str, np.ndarray[Any, Any]]


def normal(*shape: int, spread: float = 0.5) -> np.ndarray[Any, Any]:
    """Weights whose first axis has very different scales, as after batch normalization."""
    rng = np.random.default_rng(len(shape))
    return (rng.normal(0, spread, shape) * np.exp(rng.normal(0, 1, (shape[0], *[1] * (len(shape) - 1))))).astype("f")


def graph_of(model: bytes) -> FloatGraph:
    return FloatGraph.of_onnx(onnx.load_from_string(model))


def feeds_of(model: bytes, count: int = 16) -> list[Arrays]:
    return [random_feeds(model, seed=seed) for seed in range(count)]


def image_net() -> bytes:
    """All operators with weights but tables, an addition, pooling: score [n, 128] of image [n, 4, 12, 12]."""
    weights = {
        "a": normal(32, 4, 3, 3),
        "ab": normal(32),
        "d": normal(32, 1, 9, 9),
        "p": normal(32, 32, 1, 1, spread=0.2),
        "t": normal(32, 16, 2, 2, spread=0.2),
        "m": normal(16, 128, spread=0.2),
        "z": np.zeros(128, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "a", "ab"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "d"], ["c2"], pads=[4, 4, 4, 4], group=32),
        helper.make_node("Conv", ["c2", "p"], ["c3"]),
        helper.make_node("Add", ["c3", "r1"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["mp"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["mp", "t"], ["c4"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c4"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "z"], ["score"]),
    ]
    return zoo.model(nodes, [zoo.value("image", ["n", 4, 12, 12])], [zoo.value("score", ["n", 128])], weights)


def language_net() -> bytes:
    """A table, layer normalization, attention over 8 tokens: y [n, 8, 64] of ids [n, 8]."""
    weights = {
        "table": normal(50, 64),
        "scale": np.ones(64, np.float32),
        "shift": np.zeros(64, np.float32),
        "q": normal(64, 64, spread=0.03).T.copy(),
        "v": normal(64, 64, spread=0.1).T.copy(),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("LayerNormalization", ["e", "scale", "shift"], ["n1"]),
        helper.make_node("MatMul", ["n1", "q"], ["query"]),
        helper.make_node("MatMul", ["n1", "v"], ["value"]),
        helper.make_node("Transpose", ["n1"], ["key"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["query", "key"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "value"], ["mixed"]),
        helper.make_node("Add", ["mixed", "e"], ["residual"]),
        helper.make_node("LayerNormalization", ["residual", "scale", "shift"], ["y"]),
    ]
    return zoo.model(nodes, [zoo.value("ids", ["n", 8], "int64")], [zoo.value("y", ["n", 8, 64])], weights)


def ids(count: int = 8) -> list[Arrays]:
    rng = np.random.default_rng(1)
    return [{"ids": rng.integers(0, 50, (1, 8))} for _ in range(count)]
