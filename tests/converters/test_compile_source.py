"""What `compile` takes: sizes, values and free dimensions as options, scales that came with the model, and refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import edge_infer
from edge_infer.errors import ConversionError, EdgeInferError, InputError, UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.compile_source import read
from edge_infer_converters.sources.options import Dynamic, SourceOptions
from tests.support import real_models, zoo
from tests.support.converters import small_models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

ZOO = real_models.folder()
_NODE = helper.make_node


def compiled(source: Path, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(compile_, [str(source), "-o", str(folder), *options])


def saved(path: Path, nodes: list[onnx.NodeProto], *dims: int | str, dtype: int = TensorProto.FLOAT) -> Path:
    """Write a model from `x` to `y` with these sizes."""
    ends = [helper.make_tensor_value_info(name, dtype, [*dims]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_a_free_size_is_told_by_the_option_that_fixes_it(tmp_path: Path) -> None:
    source = saved(tmp_path / "net.onnx", [_NODE("Relu", ["x"], ["y"])], 1, "length")

    refused = compiled(source, tmp_path / "out")
    assert isinstance(refused.exception, EdgeInferError)
    assert refused.exception.hint == "--shape x=1xSIZE, with sizes of your own"
    assert not (tmp_path / "out").exists()
    for to in ("wasm", "c"):
        done = compiled(source, tmp_path / to, "--shape", "x=1x5", "--to", to)
        assert done.exit_code == 0, done.output
    with edge_infer.load(tmp_path / "wasm/model.wasm") as session:
        assert session.inputs[0].shape == (1, 5)


@pytest.mark.parametrize(
    "words", [("--shape", "x"), ("--shape", "x=0x1"), ("--bind", "x=much"), ("--dynamic", "nothing")]
)
def test_an_option_that_cannot_be_read_is_wrong_usage(words: tuple[str, str], tmp_path: Path) -> None:
    source = saved(tmp_path / "net.onnx", [_NODE("Relu", ["x"], ["y"])], 1, 4)

    assert compiled(source, tmp_path / "out", *words).exit_code == 2


def test_a_batch_is_freed_and_a_tflite_file_gets_other_sizes(tmp_path: Path) -> None:
    source = saved(tmp_path / "net.onnx", [_NODE("Relu", ["x"], ["y"])], 3, 4)
    done = compiled(source, tmp_path / "free", "--dynamic", "batch")
    assert done.exit_code == 0, done.output
    with edge_infer.load(tmp_path / "free/model.wasm", arrays="numpy") as session:
        assert session.run({"x": np.full((7, 4), -1, np.float32)})["y"].shape == (7, 4)

    name, content = read(source, options=SourceOptions(dynamic=(Dynamic("batch"),)))
    assert isinstance(content, bytes)
    (tmp_path / "net.tflite").write_bytes(content)
    done = compiled(tmp_path / "net.tflite", tmp_path / "two", "--shape", "x=2x4")
    assert done.exit_code == 0, done.output
    with edge_infer.load(tmp_path / "two/model.wasm") as session:
        assert (name, session.inputs[0].shape) == ("net.onnx", (2, 4))


def test_a_value_decides_a_branch_and_the_hint_names_its_input(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    rate = helper.make_tensor_value_info("rate", TensorProto.BOOL, [])

    def branch(kind: str) -> onnx.GraphProto:
        return helper.make_graph(
            [_NODE(kind, ["x"], [kind])], kind, [], [helper.make_tensor_value_info(kind, TensorProto.FLOAT, [1, 4])]
        )

    node = _NODE("If", ["rate"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    graph = helper.make_graph([node], "net", [ends[0], rate], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "net.onnx")

    refused = compiled(tmp_path / "net.onnx", tmp_path / "out")
    assert isinstance(refused.exception, UnsupportedOperator)
    assert refused.exception.hint.startswith("--bind rate=VALUE,")
    done = compiled(tmp_path / "net.onnx", tmp_path / "out", "--bind", "rate=0")
    assert done.exit_code == 0, done.output
    with edge_infer.load(tmp_path / "out/model.wasm", arrays="numpy") as session:
        np.testing.assert_array_equal(session.run({"x": np.ones((1, 4), np.float32)})["y"], -np.ones((1, 4)))


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator], ids=lambda one: one.name)
def test_quantized_onnx_is_compiled_with_the_scales_that_it_came_with(form: QuantFormat, tmp_path: Path) -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn()))
    onnx.save(model, tmp_path / "float.onnx")
    calls = small_models.calls_of(model.SerializeToString(), 8)
    given = iter(calls)

    class Calls(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(given, None)

        def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
            return given

    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", Calls(), quant_format=form, **kinds)

    done = compiled(tmp_path / "int8.onnx", tmp_path / "out", "--json")

    assert done.exit_code == 0, done.output
    kernels = {layer["kernel"] for layer in json.loads(done.stdout)["layers"]}
    assert {"convolution_int8", "depthwise_int8"} <= kernels
    assert not {"convolution_float", "depthwise_float"} & kernels
    with (
        edge_infer.load(tmp_path / "out/model.wasm", arrays="numpy") as session,
        edge_infer.load(tmp_path / "int8.onnx", backend="onnxruntime", arrays="numpy") as engine,
    ):
        for call in calls[:4]:
            ((got,), (want,)) = (one.run(call).values() for one in (session, engine))
            assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def weighted(path: Path, to: int, weights: np.ndarray[Any, Any]) -> Path:
    """Write a model that multiplies in one type, by weights of another, between float32 ends."""
    nodes = [
        _NODE("Cast", ["stored"], ["w"], to=to),
        _NODE("Cast", ["x"], ["given"], to=to),
        _NODE("MatMul", ["given", "w"], ["made"]),
        _NODE("Cast", ["made"], ["y"], to=TensorProto.FLOAT),
    ]
    model = onnx.load(saved(path, nodes, 1, 4))
    model.graph.initializer.append(numpy_helper.from_array(weights, "stored"))
    onnx.save(model, path)
    return path


def test_weights_of_16_bits_become_floats(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(0, 1, (4, 4)).astype(np.float16)
    source = weighted(tmp_path / "half.onnx", TensorProto.FLOAT16, weights)

    done = compiled(source, tmp_path / "out")
    assert done.exit_code == 0, done.output
    x = np.array([[1, -2, 3, 0.5]], np.float32)
    with edge_infer.load(tmp_path / "out/model.wasm", arrays="numpy") as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], x @ weights.astype(np.float32), rtol=1e-5)


def test_weights_in_integers_without_scales_are_refused_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(EdgeInferError) as refused:
        read(weighted(tmp_path / "whole.onnx", TensorProto.FLOAT, np.ones((4, 4), np.int8)))
    assert "edge-infer convert" in refused.value.hint


def test_operators_without_a_form_in_tflite_are_named_before_sizes_are_asked_for(tmp_path: Path) -> None:
    body = helper.make_graph(
        [_NODE("Identity", ["more"], ["again"]), _NODE("Identity", ["value"], ["next"])],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    model = onnx.load(saved(tmp_path / "net.onnx", [_NODE("Loop", ["count", "", "x"], ["y"], body=body)], 1, "length"))
    model.graph.input.append(helper.make_tensor_value_info("count", TensorProto.INT64, []))
    onnx.save(model, tmp_path / "net.onnx")

    with pytest.raises(UnsupportedOperator, match="Loop") as refused:
        read(tmp_path / "net.onnx")
    assert refused.value.hint.startswith(f"edge-infer convert {tmp_path}/net.onnx --format onnx ")


def test_the_sizes_of_a_bundle_are_fixed(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(zoo.mlp())
    convert(tmp_path / "net.onnx", tmp_path / "net.bundle", precision="fp32", format="tflite")

    refused = compiled(tmp_path / "net.bundle", tmp_path / "out", "--shape", "x=1x4")

    assert isinstance(refused.exception, InputError)
    assert "is a bundle" in refused.exception.message


@pytest.mark.long
@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("byte_bidi_lstm", ("--shape", "input=1x20")),
        ("silero_16k_op15", ("--shape", "input=1x576", "--shape", "state=2x1x128", "--bind", "sr=16000")),
        ("silero_v5", ("--shape", "input=1x512", "--shape", "state=2x1x128", "--bind", "sr=16000")),
        ("treecl", ("--shape", "input=?x20")),
    ],
)
def test_real_models_compile_with_sizes_and_values(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    assert ZOO is not None

    done = compiled(ZOO / f"{name}.onnx", tmp_path, *options)

    assert "equal to" in done.stderr, done.output


@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
def test_a_real_quantized_model_is_refused_for_its_size_alone() -> None:
    assert ZOO is not None

    _, content = read(ZOO / "maui_model.onnx")

    assert isinstance(content, bytes)
    from edge_infer_converters.compilation import compile_file

    with pytest.raises(ConversionError, match="380 million multiplications"):
        compile_file(content, "maui")
