"""ORT format: an `.ort` file is read as the graph that it holds, optimised or not; a damaged one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_infer.errors import ConversionError, EdgeInferError
from edge_infer_converters.passes import int8_static
from edge_infer_converters.passes.unfuse import unfuse
from edge_infer_converters.sources import ort_format
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.options import SourceOptions
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx
from tests.support.converters.small_cnn import small_cnn

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = onnxruntime.GraphOptimizationLevel


def branches() -> bytes:
    """y = x + 1 or x - 1, by the first element: graphs inside a node, with strings, numbers and a tensor in it."""

    def branch(name: str, kind: str) -> onnx.GraphProto:
        nodes = [helper.make_node(kind, ["x", "one"], [name])]
        return helper.make_graph(nodes, name, [], [zoo.value(name, [4])])

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("up", "Add"), else_branch=branch("down", "Sub")),
    ]
    weights = {"one": np.ones(4, np.float32), "zero": np.array(0, np.float32)}
    return zoo.model(nodes, [zoo.value("x", [4])], [zoo.value("y", [4])], weights, opset=17)


def saved(data: bytes, path: Path, level: onnxruntime.GraphOptimizationLevel = LEVELS.ORT_DISABLE_ALL) -> Path:
    """Save a model in ORT format by a session."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(data, options)
    return path


MODELS = {
    "mlp": zoo.mlp(),
    "lstm": zoo.lstm_cell(),
    "cnn": small_cnn().SerializeToString(),
    "branches": branches(),
    "strings": zoo.identity("string"),
}


@pytest.mark.parametrize("level", [LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_EXTENDED])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "strings"])
def test_a_file_is_read_as_the_model_that_it_was_made_of(
    tmp_path: Path, name: str, level: onnxruntime.GraphOptimizationLevel
) -> None:
    data = MODELS[name]
    feeds = random_feeds(data)

    source = open_source(saved(data, tmp_path / "model.ort", level))

    assert source.name == "model"
    for output, values in run_onnx(data, feeds).items():
        np.testing.assert_allclose(source.reference().run(feeds)[output], values, rtol=1e-5, atol=1e-6)


def test_text_is_read(tmp_path: Path) -> None:
    source = open_source(saved(MODELS["strings"], tmp_path / "model.ort"))

    assert [str(spec) for spec in source.inputs] == ["x: string[n, 3]"]


def test_what_the_session_joined_is_taken_apart(tmp_path: Path) -> None:
    """No quantizer and no writer knows `FusedConv`."""
    path = saved(MODELS["cnn"], tmp_path / "model.ort", LEVELS.ORT_ENABLE_EXTENDED)
    source = ort_format.load(path, SourceOptions())

    assert {node.domain for node in source.proto.graph.node} == {""}
    assert "Relu" in [node.op_type for node in source.proto.graph.node]


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", ()),
        ("Tanh", ()),
        ("Sigmoid", ()),
        ("LeakyRelu", (0.2,)),
        ("Clip", (-0.5, 0.5)),
        ("HardSigmoid", (0.3, 0.4)),
    ],
)
def test_joined_activations_keep_their_numbers(activation: str, parameters: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1, (4, 3, 3, 3)).astype(np.float32), "b": rng.normal(0, 1, 4).astype(np.float32)}
    node = helper.make_node("FusedConv", ["x", "w", "b", "z"], ["y"], domain="com.microsoft", activation=activation)
    if parameters:
        node.attribute.append(helper.make_attribute("activation_params", parameters))
    data = zoo.model(
        [node], [zoo.value("x", [1, 3, 5, 5]), zoo.value("z", [1, 4, 3, 3])], [zoo.value("y", [1, 4, 3, 3])], weights
    )
    model = onnx.load_from_string(data)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    feeds = random_feeds(data)

    plain = unfuse(model)

    assert [node.op_type for node in plain.graph.node] == ["Conv", "Add", activation]
    expected = run_onnx(model.SerializeToString(), feeds)["y"]
    np.testing.assert_allclose(run_onnx(plain.SerializeToString(), feeds)["y"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 10), (1,), ()])
def test_a_gemm_whose_bias_is_not_a_row_is_quantized(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1, (16, 10)).astype(np.float32), "b": rng.normal(0, 1, shape).astype(np.float32)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    data = zoo.model([node], [zoo.value("x", [1, 16])], [zoo.value("y", [1, 10])], weights)
    calls = [random_feeds(data, seed=seed) for seed in range(8)]

    made = int8_static.to_int8(onnx.load_from_string(data), calls)

    expected = run_onnx(data, calls[0])["y"]
    assert np.abs(run_onnx(made.SerializeToString(), calls[0])["y"] - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("data", [b"", b"hello", zoo.mlp()])
def test_a_file_of_another_format_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.ort").write_bytes(data)

    with pytest.raises(ConversionError, match="is not in ORT format"):
        open_source(tmp_path / "model.ort")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"none\.ort` cannot be read: No such file"):
        open_source(tmp_path / "none.ort")


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = saved(MODELS["mlp"], tmp_path / "model.ort")
    path.write_bytes(path.read_bytes()[:-2000])

    with pytest.raises(ConversionError, match=r"model\.ort` is cut short or contradicts itself"):
        open_source(path)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(8, 3000), st.integers(1, 255), st.integers(8, 3000), st.integers(0, 255))
def test_flipped_bytes_are_an_error_of_ours_or_none(
    tmp_path: Path, place: int, change: int, other: int, value: int
) -> None:
    path = tmp_path / "model.ort"
    if not path.exists():
        (tmp_path / "sound").write_bytes(saved(MODELS["branches"], path).read_bytes())
    data = bytearray((tmp_path / "sound").read_bytes())
    data[place % len(data)] ^= change
    data[other % len(data)] = value
    path.write_bytes(bytes(data))
    try:
        ort_format.load(path, SourceOptions())
    except EdgeInferError as error:
        assert error.message
