"""Small compiled models for tests of compiled files: a network, one with a state, one with filters of int8 weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.tflite import reading
from edge_infer_converters.writers.tflite.graph import Graph, Quantization, Tensor
from tests.support import zoo
from tests.support.converters import small_models

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.writer import Compiled


def recurrent() -> bytes:
    """An LSTM over rows of a table."""
    rng = np.random.default_rng(1)
    shapes = {"table": (9, 6), "w": (1, 20, 6), "r": (1, 20, 5), "b": (1, 40)}
    weights: dict[str, np.ndarray] = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["rows"]),
        helper.make_node("LSTM", ["rows", "w", "r", "b"], ["y"], hidden_size=5),
    ]
    return zoo.model(nodes, [zoo.value("x", [30, 1], "int32")], [zoo.value("y", [30, 1, 1, 5])], weights)


_MODEL = onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn()))
COMPILED = writer.write(reading.read(tflite.write(_MODEL).data, "net").graph)
#: With variables and a gather of rows.
RECURRENT = writer.write(tflite.FloatGraph.of_onnx(onnx.load_from_string(recurrent()), for_page=False).graph)


def filtered() -> Compiled:
    """Layers of int8 weights beside floats, and an SVDF."""
    rng = np.random.default_rng(2)

    def tensor(
        name: str, shape: tuple[int, ...], dtype: str, step: float = 0.0, data: np.ndarray | None = None
    ) -> Tensor:
        scale = Quantization(np.array([step], np.float32)) if step else None
        return Tensor(name, shape, shape, np.dtype(dtype), data, scale, is_variable=name == "state")

    x, hidden, y = (
        tensor("x", (1, 4), "float32"),
        tensor("hidden", (1, 8), "float32"),
        tensor("y", (1, 4), "int32", 0.1),
    )
    whole, filters = tensor("whole", (1, 8), "int8", 0.02), tensor("filters", (1, 4), "int8", 0.05)
    weights = tensor("w", (8, 4), "int8", 0.01, rng.integers(-99, 99, (8, 4)).astype(np.int8))
    features = tensor("f", (8, 8), "int8", 0.01, rng.integers(-99, 99, (8, 8)).astype(np.int8))
    times = tensor("t", (8, 3), "int16", 0.01, rng.integers(-99, 99, (8, 3)).astype(np.int16))
    graph = Graph([x], [y])
    connected: Any = schema.FullyConnectedOptionsT()
    graph.add("FULLY_CONNECTED", [x, weights], [hidden], connected, 6)
    graph.add("QUANTIZE", [hidden], [whole], None, 1)
    options: Any = schema.SVDFOptionsT()
    options.rank, options.fusedActivationFunction = 2, 1
    graph.add("SVDF", [whole, features, times, None, tensor("state", (1, 24), "int16", 0.01)], [filters], options, 3)
    graph.add("QUANTIZE", [filters], [y], None, 1)
    return writer.write(graph)


FILTERED = filtered()
