"""`convert model.tflite`: a TFLite file is read back, quantized, and becomes a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema

import edge_infer
from edge_infer import Bundle
from edge_infer.errors import ConversionError, UnsupportedOperator
from edge_infer.parity import comparison
from edge_infer_converters import Recipe, convert
from edge_infer_converters.sources.tflite import load
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.tflite import reading
from tests.support import zoo
from tests.support.converters.engines import onnx_of_tflite, run_onnx, run_tflite
from tests.support.converters.tflite_files import File, Value, by_litert, constant
from tests.support.converters.tflite_quantized import feeds_of, graph_of, ids, image_net, language_net

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("word", ["fp32", "fp16", "int8", "int8-dynamic", "mixed", "int4"])
def test_a_file_read_and_written_again_gives_the_same_numbers(word: str) -> None:
    data = graph_of(language_net()).write(word, ids()).data

    again = reading.read(data, "model.tflite").write().data

    assert abs(len(again) - len(data)) <= 32
    np.testing.assert_array_equal(run_tflite(again, ids(1)[0])["y"], run_tflite(data, ids(1)[0])["y"])


def test_a_signature_in_another_order_than_the_graph_names_the_right_tensors(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Relu", ["a"], ["p"]), onnx.helper.make_node("Neg", ["b"], ["n"])]
    model = zoo.model(nodes, [zoo.value(one, [1, 3]) for one in "ab"], [zoo.value(one, [1, 3]) for one in "pn"])
    packed: Any = schema.ModelT.InitFromPackedBuf(tflite.write(onnx.load_from_string(model)).data, 0)
    packed.signatureDefs[0].inputs.reverse()
    packed.signatureDefs[0].outputs.reverse()
    builder = flatbuffers.Builder(1024)
    builder.Finish(packed.Pack(builder), file_identifier=b"TFL3")
    (tmp_path / "net.tflite").write_bytes(builder.Output())
    feeds = {"a": np.array([[-1, 0, 2]], np.float32), "b": np.array([[1, 2, 3]], np.float32)}
    expected = {"p": [[0, 0, 2]], "n": [[-1, -2, -3]]}

    by_source = load(tmp_path / "net.tflite").reference().run(feeds)
    convert(tmp_path / "net.tflite", tmp_path / "net.bundle", recipe=Recipe(precisions=("fp32",)))

    assert {name: value.tolist() for name, value in by_source.items()} == expected
    with edge_infer.load(tmp_path / "net.bundle", self_test=True) as session:
        assert {name: value.tolist() for name, value in session.run(feeds).items()} == expected


def test_a_float_file_becomes_a_bundle_of_all_precisions(tmp_path: Path) -> None:
    data = graph_of(image_net()).write().data
    (tmp_path / "net.tflite").write_bytes(data)
    calls = feeds_of(image_net(), 12)
    np.savez(tmp_path / "data.npz", image=np.concatenate([call["image"] for call in calls]))
    # On a net this small int8 may be slower than float, and would be left out.
    recipe = Recipe(precisions=("fp32", "fp16", "int8", "int8-dynamic"), keep_all=True)

    convert(tmp_path / "net.tflite", tmp_path / "net.bundle", calibration=tmp_path / "data.npz", recipe=recipe)

    bundle = Bundle.open(tmp_path / "net.bundle")
    ids_of = [variant.id for variant in bundle.manifest.variants]
    assert ids_of == [
        "tflite/fp32",
        "tflite/fp16",
        "tflite/int8",
        "tflite/int8-dynamic",
        "compiled/fp32",
        "compiled/int8",
    ]
    assert (tmp_path / "net.bundle/tflite/model.tflite").read_bytes() == data, "the source is kept as it came"
    assert [str(spec) for spec in bundle.manifest.inputs] == ["image: float32[1, 4, 12, 12]"]
    for variant in bundle.manifest.variants[1:4]:  # those of TFLite
        written = (tmp_path / "net.bundle" / variant.file).read_bytes()
        assert len(written) < 0.6 * len(data)
        figures = comparison.compare([run_tflite(data, calls[0])], [run_tflite(written, calls[0])])
        assert figures.sqnr_db >= 25


def test_a_file_with_weights_in_half_precision_is_kept_and_written_in_other_precisions(tmp_path: Path) -> None:
    calls = feeds_of(image_net(), 12)
    data = graph_of(image_net()).write("fp16", calls).data
    (tmp_path / "net.tflite").write_bytes(data)
    np.savez(tmp_path / "data.npz", image=np.concatenate([call["image"] for call in calls]))

    convert(
        tmp_path / "net.tflite",
        tmp_path / "net.bundle",
        calibration=tmp_path / "data.npz",
        format="both",
        keep_all=True,
    )

    variants = {variant.id: variant.file for variant in Bundle.open(tmp_path / "net.bundle").manifest.variants}
    assert [*variants] == ["onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp16", "tflite/int8"]
    files = {name: (tmp_path / "net.bundle" / file).read_bytes() for name, file in variants.items()}
    assert files["tflite/fp16"] == data
    expected = run_tflite(data, calls[0])
    for found in (run_onnx(files["onnx/fp32"], calls[0]), run_tflite(files["tflite/int8"], calls[0])):
        assert comparison.compare([expected], [found]).sqnr_db >= 25


def test_half_precision_is_widened_only_when_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(graph_of(image_net()).write("fp16", feeds_of(image_net())).data)

    convert(tmp_path / "net.tflite", tmp_path / "net.bundle", format="tflite", precision="fp32")

    (variant,) = Bundle.open(tmp_path / "net.bundle").manifest.variants
    assert variant.id == "tflite/fp32"


def test_a_quantized_file_is_kept_as_it_is(tmp_path: Path) -> None:
    data = graph_of(image_net()).write("int8", feeds_of(image_net())).data
    (tmp_path / "net.tflite").write_bytes(data)

    convert(tmp_path / "net.tflite", tmp_path / "net.bundle")

    variant, made = Bundle.open(tmp_path / "net.bundle").manifest.variants
    assert (variant.id, variant.precision) == ("tflite/int8", "int8")
    assert made.id == "compiled/int8"
    assert (tmp_path / "net.bundle" / variant.file).read_bytes() == data


def test_an_interface_named_by_the_signature_keeps_those_names() -> None:
    written = tflite.write(onnx.load_from_string(zoo.mlp()), keep_names=True).data

    graph = reading.read(written, "mlp.tflite").graph

    assert [tensor.name for tensor in (*graph.inputs, *graph.outputs)] == ["x", "logits"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="cannot be read"):
        convert(tmp_path / "none.tflite", tmp_path / "out.bundle")


def test_a_float_file_becomes_onnx_in_all_precisions(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(graph_of(image_net()).write().data)
    recipe = Recipe(formats=("onnx", "tflite"), precisions=("fp32", "fp16", "int8"), keep_all=True)

    made = convert(tmp_path / "net.tflite", tmp_path / "net.bundle", recipe=recipe)

    found = {one.variant.id: one.quality for one in made.variants}
    assert {*found} >= {"onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32"}
    assert found["onnx/fp32"].verdict.word == "ok"
    for variant in Bundle.open(tmp_path / "net.bundle").manifest.variants:
        with edge_infer.load(tmp_path / "net.bundle", variant=variant.id, self_test=True) as session:
            assert session.report().variant == variant.id


@pytest.mark.parametrize(("word", "share"), [("int8", 0.999), ("int8x16", 0.99)])
def test_a_quantized_file_as_onnx_computes_with_the_same_integers(word: str, share: float) -> None:
    graph = graph_of(image_net())
    data = graph.write(word, feeds_of(image_net(), 16), integer_interface=word == "int8").data
    file = reading.read(data, "net.tflite").graph
    rng = np.random.default_rng(0)
    feeds = [_of(file.inputs[0], rng) for _ in range(16)]

    made = onnx_of_tflite(data)

    stored = {tensor.name: tensor.data_type for tensor in onnx.load_from_string(made).graph.initializer}
    assert onnx.TensorProto.INT8 in stored.values()
    name = file.outputs[0].name
    wanted = [run_tflite(data, one)[name].astype(float) for one in feeds]
    step = 1.0 if word == "int8" else float(np.abs(wanted).max()) / 1000
    errors = [np.abs(run_onnx(made, one)[name] - value) for one, value in zip(feeds, wanted, strict=True)]
    assert np.mean(np.concatenate(errors) <= step) >= share


def _of(tensor: Any, rng: np.random.Generator) -> dict[str, Any]:
    shape = tensor.shape
    if tensor.dtype == np.int8:
        return {tensor.name: rng.integers(-128, 128, shape).astype(np.int8)}
    return {tensor.name: rng.normal(0, 1, shape).astype(np.float32)}


def test_a_file_that_is_asked_for_as_onnx_alone_names_what_is_missing(tmp_path: Path) -> None:
    packed: Any = schema.ModelT.InitFromPackedBuf(graph_of(image_net()).write().data, 0)
    for code in packed.operatorCodes:
        if code.builtinCode == schema.BuiltinOperator.CONV_2D:
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SVDF
    builder = flatbuffers.Builder(1024)
    builder.Finish(packed.Pack(builder), file_identifier=b"TFL3")
    (tmp_path / "net.tflite").write_bytes(builder.Output())

    with pytest.raises(UnsupportedOperator, match="SVDF"):
        convert(tmp_path / "net.tflite", tmp_path / "net.bundle", format="onnx")

    assert [path.name for path in tmp_path.iterdir()] == ["net.tflite"]


def test_weights_behind_a_spectrum_are_written_in_half_precision() -> None:
    x, y = Value("x", (2, 1, 64)), Value("y", (2, 64))
    complex_, size = Value("f", (2, 1, 33), "complex64"), Value("a", (2, 1, 33))
    flat, rng = Value("r", (2, 33)), np.random.default_rng(0)
    weights = constant(rng.normal(0, 1, (64, 33)), "float32")
    file = File([x], [y]).add("RFFT2D", [x, constant([1, 64])], [complex_]).add("COMPLEX_ABS", [complex_], [size])
    file.add("RESHAPE", [size, constant([2, 33])], [flat]).add("FULLY_CONNECTED", [flat, weights], [y])
    feeds = {"x": rng.normal(0, 1, (2, 1, 64)).astype(np.float32)}

    small = reading.read(file.data(), "spectrum.tflite").write("fp16").data

    assert len(small) < 0.7 * len(file.data())
    (expected,) = by_litert(file.data(), feeds["x"])
    assert comparison.compare([{"y": expected}], [run_tflite(small, feeds)]).sqnr_db > 55
