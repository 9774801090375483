"""A small convolutional model and its calibration data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support import zoo
from tests.support.converters.engines import random_feeds


def small_cnn(opset: int = zoo.OPSET) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, pooling and a Gemm with transposed weights: [batch, 3, 8, 8] to [batch, 4]."""
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(0, 0.3, (8, 3, 3, 3)),
        "scale": rng.uniform(0.5, 2, 8),
        "bias": rng.normal(0, 0.2, 8),
        "mean": rng.normal(0, 0.2, 8),
        "var": rng.uniform(0.5, 2, 8),
        "v": rng.normal(0, 0.3, (4, 8)),
        "c": rng.normal(0, 0.3, 4),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["conv"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "var"], ["norm"]),
        helper.make_node("Relu", ["norm"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "v", "c"], ["logits"], transB=1),
    ]
    data = zoo.model(
        nodes,
        [zoo.value("image", ["batch", 3, 8, 8])],
        [zoo.value("logits", ["batch", 4])],
        {name: value.astype(np.float32) for name, value in weights.items()},
        opset,
    )
    return onnx.load_from_string(data)


def calibration(model: onnx.ModelProto, calls: int = 16) -> list[dict[str, Any]]:
    return [random_feeds(model.SerializeToString(), seed=seed) for seed in range(calls)]
