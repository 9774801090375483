"""The tiny models that the tests run, built in code: no binary file is committed for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

OPSET = 21

#: The ONNX element type of each dtype that a model can have as its input.
ELEMENT_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
    "uint32": TensorProto.UINT32,
    "int64": TensorProto.INT64,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
}


def value(name: str, shape: Sequence[int | str] | None, dtype: str = "float32") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[dtype], shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    opset: int = OPSET,
) -> bytes:
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "zoo", list(inputs), list(outputs), initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(proto.SerializeToString())


def identity(dtype: str = "float32", shape: Sequence[int | str] = ("n", 3)) -> bytes:
    """y = x."""
    return model([helper.make_node("Identity", ["x"], ["y"])], [value("x", shape, dtype)], [value("y", shape, dtype)])


def passing_through() -> bytes:
    """An output that is also an input, one that is an initializer, and y = relu(x)."""
    shape = ("n", 3)
    return model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [value("x", shape)],
        [value("x", shape), value("c", (2,)), value("y", shape)],
        {"c": np.array([5, 7], np.float32)},
    )


def add() -> bytes:
    """sum = left + right, of free size."""
    node = helper.make_node("Add", ["left", "right"], ["sum"])
    return model([node], [value("left", ["n"]), value("right", ["n"])], [value("sum", ["n"])])


def mlp(seed: int = 0) -> bytes:
    """logits = relu(x w1 + b1) w2 + b2: 64 to 32 to 10."""
    rng = np.random.default_rng(seed)
    weights = {
        "w1": rng.normal(0, 0.2, (64, 32)).astype(np.float32),
        "b1": rng.normal(0, 0.1, 32).astype(np.float32),
        "w2": rng.normal(0, 0.2, (32, 10)).astype(np.float32),
        "b2": rng.normal(0, 0.1, 10).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["logits"]),
    ]
    return model(nodes, [value("x", ["batch", 64])], [value("logits", ["batch", 10])], weights)


def dequantize(dtype: str) -> bytes:
    """y = x / 2 as float32: the way that 4-bit inputs enter a graph."""
    node = helper.make_node("DequantizeLinear", ["x", "scale"], ["y"])
    half = {"scale": np.array(0.5, np.float32)}
    return model([node], [value("x", [2, 3], dtype)], [value("y", [2, 3])], half)


def nonzero() -> bytes:
    """The indices of the non-zero elements: an output whose shape depends on the data."""
    return model(
        [helper.make_node("NonZero", ["x"], ["where"])], [value("x", [4])], [value("where", [1, "k"], "int64")]
    )


def scalar_sum() -> bytes:
    """The sum of all elements: an output of shape ()."""
    node = helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0)
    return model([node], [value("x", ["n"])], [value("total", [])])


def halves() -> bytes:
    """y = x in two halves: x has an even count of values."""
    shape = helper.make_node("Constant", [], ["shape"], value_ints=[2, -1])
    return model(
        [shape, helper.make_node("Reshape", ["x", "shape"], ["y"])], [value("x", ["n"])], [value("y", [2, "m"])]
    )


def lstm_cell(seed: int = 0, features: int = 3, hidden: int = 4) -> bytes:
    """One step of an LSTM: x [1, 1, 3], h_in and c_in [1, 1, 4] give y, h_out and c_out."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.normal(0, 0.5, (1, 4 * hidden, features)).astype(np.float32),
        "r": rng.normal(0, 0.5, (1, 4 * hidden, hidden)).astype(np.float32),
        "b": rng.normal(0, 0.5, (1, 8 * hidden)).astype(np.float32),
    }
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "h_in", "c_in"], ["y", "h_out", "c_out"], hidden_size=hidden
    )
    state = [1, 1, hidden]
    return model(
        [node],
        [value("x", [1, 1, features]), value("h_in", state), value("c_in", state)],
        [value("y", [1, 1, 1, hidden]), value("h_out", state), value("c_out", state)],
        weights,
    )


def kv_step() -> bytes:
    """One step of a decoder's cache: present = concat(past, key), total = its sum; the cache grows by one each step."""
    nodes = [
        helper.make_node("Concat", ["past", "key"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present"], ["total"], keepdims=0),
    ]
    return model(
        nodes,
        [value("key", [1, 1, 2]), value("past", [1, "length", 2])],
        [value("total", []), value("present", [1, "next", 2])],
    )


def running_sum() -> bytes:
    """A state total [1] and x [n]: seen = x + total, where = the places of x that are not 0, total + sum of x."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=1),
        helper.make_node("Add", ["total_in", "sum"], ["total_out"]),
        helper.make_node("Add", ["x", "total_in"], ["seen"]),
        helper.make_node("NonZero", ["x"], ["where"]),
    ]
    return model(
        nodes,
        [value("x", ["n"]), value("total_in", [1])],
        [value("seen", ["n"]), value("where", [1, "count"], "int64"), value("total_out", [1])],
    )


def unknown_operator() -> bytes:
    """A model whose operator nobody implements."""
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="example.org")
    graph = helper.make_graph([node], "zoo", [value("x", [1])], [value("y", [1])])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("example.org", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def future_opset() -> bytes:
    """A model for an opset that does not exist yet."""
    return model([helper.make_node("Identity", ["x"], ["y"])], [value("x", [1])], [value("y", [1])], opset=999)
