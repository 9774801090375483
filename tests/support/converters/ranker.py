"""A small model with each kind of weight: a table, a filter, a matrix and one that lies transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support import zoo


def ranker(opset: int = 20) -> onnx.ModelProto:
    """Tokens to scores: a table, a MatMul, a Gemm whose weights lie transposed, and a convolution over the rows."""
    rng = np.random.default_rng(7)
    weights: dict[str, np.ndarray[Any, Any]] = {
        "table": rng.normal(0, 1, (200, 64)),
        "filter": rng.normal(0, 0.2, (64, 64, 3)),
        "matrix": rng.normal(0, 0.2, (64, 96)),
        "gemm": rng.normal(0, 0.2, (64, 96)),
        "bias": rng.normal(0, 0.2, (64,)),
    }
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"], name="embed"),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["turned", "filter"], ["mixed"], pads=[1, 1], name="mix"),
        helper.make_node("ReduceMean", ["mixed", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "matrix"], ["wide"], name="widen"),
        helper.make_node("Relu", ["wide"], ["active"]),
        helper.make_node("Gemm", ["active", "gemm", "bias"], ["scores"], transB=1, name="score"),
    ]
    stored = {name: value.astype(np.float32) for name, value in weights.items()} | {"axes": np.array([2], np.int64)}
    inputs = [zoo.value("tokens", ["batch", "length"], "int64")]
    return onnx.load_from_string(zoo.model(nodes, inputs, [zoo.value("scores", ["batch", 64])], stored, opset))


def tokens(count: int = 4) -> dict[str, Any]:
    return {"tokens": np.random.default_rng(1).integers(0, 200, (count, 9))}
