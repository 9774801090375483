"""What stands beside int8 weights in fewer bytes: the numbers stay, and so do the engine's int8 kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from edge_infer_converters.passes.int8_static import to_int8
from edge_infer_converters.passes.small_constants import halve, share_scalars
from tests.support import zoo
from tests.support.converters.engines import run_onnx

DIGITS = Path(__file__).parents[2] / "examples/digits"


def adding(values: np.ndarray) -> onnx.ModelProto:
    """A model that adds these values."""
    nodes = [helper.make_node("Add", ["x", "values"], ["y"])]
    shape: list[int | str] = ["batch", len(values)]
    return onnx.load_from_string(
        zoo.model(nodes, [zoo.value("x", shape)], [zoo.value("y", shape)], {"values": values.astype(np.float32)})
    )


def test_a_vector_takes_half_the_bytes_and_keeps_eleven_bits() -> None:
    values = np.random.default_rng(2).normal(0, 3, 512)
    model = adding(values)
    before = model.ByteSize()

    halve(model.graph, ["values"])

    x = np.zeros((1, 512), np.float32)
    assert before - model.ByteSize() > 512 * 2 - 60
    np.testing.assert_allclose(run_onnx(model.SerializeToString(), {"x": x})["y"][0], values, rtol=2**-11)


@pytest.mark.parametrize(
    "values",
    [np.full(64, 1e6), np.full(64, 1e-9), np.full(4, 0.5), np.array([np.inf] * 64)],
    ids=["too large", "too small", "too few", "infinite"],
)
def test_what_half_precision_cannot_hold_or_save_stays(values: np.ndarray) -> None:
    model = adding(values)
    before = model.SerializeToString()

    halve(model.graph, ["values", "no such tensor"])

    assert model.SerializeToString() == before


def test_equal_scalars_are_stored_once_and_vectors_are_not() -> None:
    stored = {
        "a": np.float32(2.0),
        "b": np.float32(2.0),
        "c": np.float32(3.0),
        "v": np.ones(4, np.float32),
        "w": np.ones(4, np.float32),
    }
    nodes = [
        helper.make_node(op, [left, right], [out])
        for op, left, right, out in [
            ("Mul", "x", "a", "p"),
            ("Mul", "p", "b", "q"),
            ("Mul", "q", "c", "r"),
            ("Add", "r", "v", "s"),
            ("Add", "s", "w", "y"),
        ]
    ]
    values = [zoo.value("x", ["batch", 4])], [zoo.value("y", ["batch", 4])]
    model = onnx.load_from_string(zoo.model(nodes, *values, {k: np.asarray(v) for k, v in stored.items()}))

    share_scalars(model.graph)

    assert sorted(tensor.name for tensor in model.graph.initializer) == ["a", "c", "v", "w"]
    got = run_onnx(model.SerializeToString(), {"x": np.ones((1, 4), np.float32)})["y"]
    np.testing.assert_array_equal(got, np.full((1, 4), 14.0, np.float32))


@pytest.mark.parametrize("is_precise", [True, False])
def test_the_engine_still_fuses_int8_kernels(is_precise: bool, tmp_path: Path) -> None:
    images = np.load(DIGITS / "calibration.npz")["image"][:8]
    quantized = to_int8(onnx.load(DIGITS / "digits.onnx"), [{"image": image[None]} for image in images])
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", str(int(is_precise)))

    onnxruntime.InferenceSession(quantized.SerializeToString(), options, providers=["CPUExecutionProvider"])

    kinds = [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    halves = [t for t in quantized.graph.initializer if t.data_type == onnx.TensorProto.FLOAT16]
    assert "QLinearConv" in kinds
    assert "Conv" not in kinds
    assert len(halves) >= 4
    assert all(numpy_helper.to_array(tensor).size >= 24 for tensor in halves)


def test_int8_weights_are_rounded_to_the_scales_that_half_precision_leaves() -> None:
    rng = np.random.default_rng(4)
    weights = rng.normal(0, rng.uniform(0.01, 1, (64, 1, 1, 1)), (64, 8, 3, 3)).astype(np.float32)
    shape, wide = ("n", 8, 8, 8), ("n", 64, 6, 6)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    model = onnx.load_from_string(zoo.model(nodes, [zoo.value("x", shape)], [zoo.value("y", wide)], {"w": weights}))

    calls = [{"x": rng.normal(0, 1, (1, 8, 8, 8)).astype(np.float32)}]
    graph = to_int8(model, calls, corrects=False).graph  # corrected biases are halves too

    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (codes,) = (value for value in stored.values() if value.dtype == np.int8 and value.shape == weights.shape)
    (scales,) = (value for value in stored.values() if value.dtype == np.float16)
    scales = scales.astype(np.float32).reshape(64, 1, 1, 1)
    assert np.abs(codes - weights / scales).max() <= 0.5001
