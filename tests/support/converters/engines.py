"""Run models on the two engines without the rest of edge-infer, to compare what a converter wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter

from edge_infer_converters.writers.onnx import to_onnx
from edge_infer_converters.writers.tflite import reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    Arrays = Mapping[str, np.ndarray[Any, Any]]


def run_onnx(model: bytes, feeds: Arrays, *, optimize: bool = False, precise: bool = True) -> dict[str, Any]:
    """Run a model on ONNX Runtime, by default exactly as it is written."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1" if precise else "0")
    session = onnxruntime.InferenceSession(model, options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def run_tflite(model: bytes, feeds: Arrays) -> dict[str, Any]:
    """Run a model on LiteRT by its signature; inputs are resized to what is fed."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    (signature,) = interpreter.get_signature_list()
    runner = interpreter.get_signature_runner(signature)
    return {name: np.array(value) for name, value in runner(**feeds).items()}


def onnx_of_tflite(data: bytes) -> bytes:
    """Write a TFLite file as ONNX; a checker has looked at it."""
    bodies = reading.read_subgraphs(data, "model.tflite")
    made = to_onnx(bodies[0], "model", bodies)
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


def near(wanted: Arrays, got: Arrays) -> dict[str, float]:
    """Return, of floats, the decibels of signal by error; of integers the share of values within a step."""
    found = {}
    for name, value in wanted.items():
        assert (got[name].shape, got[name].dtype) == (value.shape, value.dtype)
        error = got[name].astype(float) - value.astype(float)
        if value.dtype.kind == "f":
            found[name] = min(10 * np.log10((value.astype(float) ** 2).sum() / max((error**2).sum(), 1e-30)), 120)
        else:
            found[name] = float(np.mean(np.abs(error) <= 1))
    return found


def random_feeds(model: bytes, batch: int = 1, seed: int = 0) -> dict[str, Any]:
    """Draw inputs of a model whose free dimensions are batches."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    graph = onnx.load_from_string(model).graph
    stored = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in stored:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else batch for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = rng.normal(0, 1, shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
    return feeds
