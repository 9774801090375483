"""Conversion from a file to a bundle: what is made, what is left out and why, and that nothing is half-written."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

import edge_infer
from edge_infer import Bundle, TensorSpec
from edge_infer.bundle.manifest import PART_SIZE
from edge_infer.errors import AccuracyError, BundleError, ConversionError, InputError
from edge_infer.parity import comparison
from edge_infer_converters import Recipe, convert
from edge_infer_converters.bundle_writer import BundleWriter
from edge_infer_converters.measure.budget import Budget
from edge_infer_converters.measure.crash_test import crashing
from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.rules import RULES
from tests.support import zoo
from tests.support.converters.conversions import files_of, mlp_data, without_times
from tests.support.converters.engines import random_feeds, run_onnx
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.writers.tflite.node import Node
    from tests.support.model_files import WriteModel


MLP_VARIANTS = [
    *("onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32", "tflite/fp16", "tflite/int8"),
    *("compiled/fp32", "compiled/int8"),
]


def test_a_model_becomes_a_bundle_of_eight_variants(write_model: WriteModel, tmp_path: Path) -> None:
    data = mlp_data(tmp_path / "data.npz")

    result = convert(write_model(zoo.mlp(), "mlp.onnx"), tmp_path / "mlp.bundle", calibration=data, evaluation=data)

    bundle = Bundle.open(tmp_path / "mlp.bundle")
    assert [variant.id for variant in bundle.manifest.variants] == MLP_VARIANTS
    assert (bundle.manifest.name, bundle.manifest.version) == ("mlp", "1")
    assert bundle.manifest.inputs == (TensorSpec("x", "float32", ("batch", 64)),)
    assert bundle.revision == result.revision
    assert result.not_made == {}
    assert all(one.quality.verdict.word == "ok" for one in result.variants)
    assert result.variants[0].quality.accuracy == 1.0
    assert bundle.manifest.variant("onnx/int8").options == {"onnxruntime": {"session.x64quantprecision": "1"}}


@pytest.fixture(scope="module")
def mlp_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network converted as users convert it, its crash test included; tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("mlp")
    (folder / "mlp.onnx").write_bytes(zoo.mlp())
    convert(folder / "mlp.onnx", folder / "mlp.bundle")
    return folder / "mlp.bundle"


@pytest.mark.parametrize("id_", MLP_VARIANTS)
def test_every_variant_runs_and_agrees_with_its_golden_examples(mlp_bundle: Path, id_: str) -> None:
    examples = Bundle.open(mlp_bundle).examples()
    with edge_infer.load(mlp_bundle, variant=id_, arrays="tensor") as session:
        results = [session.run(inputs) for inputs, _ in examples]

    assert len(examples) == 32
    assert examples[0][0]["x"].shape == (1, 64)
    figures = comparison.compare([outputs for _, outputs in examples], results)
    assert comparison.judge(figures, id_.partition("/")[2]).word == "ok"


def test_golden_outputs_are_those_of_the_source(mlp_bundle: Path) -> None:
    inputs, outputs = Bundle.open(mlp_bundle).examples()[7]

    wanted = run_onnx(zoo.mlp(), {"x": np.asarray(inputs["x"])})
    np.testing.assert_array_equal(np.asarray(outputs["logits"]), wanted["logits"])


def test_the_same_model_and_options_give_the_same_bytes(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(zoo.mlp()), mlp_data(tmp_path / "data.npz")

    first, second = (
        convert(model, tmp_path / f"{name}.bundle", calibration=data, name="mlp") for name in ("one", "two")
    )

    assert first.revision == second.revision
    assert first.revision == second.revision
    files, others = (files_of(bundle.path) for bundle in (first, second))
    assert without_times(files.pop("quality.json")) == without_times(others.pop("quality.json"))
    assert files == others


def test_the_manifest_names_every_file_but_itself_and_the_quality(write_model: WriteModel, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join("abcdefghij"))

    convert(write_model(zoo.mlp()), tmp_path / "mlp.bundle", labels=labels)

    bundle = Bundle.open(tmp_path / "mlp.bundle")
    found = files_of(tmp_path / "mlp.bundle")
    assert set(found) - {"manifest.json", "quality.json"} == set(bundle.manifest.files)
    for path, entry in bundle.manifest.files.items():
        assert (entry.size, entry.sha256) == (len(found[path]), hashlib.sha256(found[path]).hexdigest())
    assert bundle.labels() == list("abcdefghij")


def test_files_above_a_mebibyte_carry_the_hashes_of_their_parts(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000

    with BundleWriter(tmp_path / "big.bundle") as writer:
        writer.add("onnx/model.onnx", data)
        variant = edge_infer.Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")
        writer.write_manifest("big", "1", [], [], [variant])
        writer.commit()

    entry = Bundle.open(tmp_path / "big.bundle").manifest.files["onnx/model.onnx"]
    assert entry.parts == (
        hashlib.sha256(data[:PART_SIZE]).hexdigest(),
        hashlib.sha256(data[PART_SIZE:]).hexdigest(),
    )


def test_quality_says_what_was_measured_on_what(write_model: WriteModel, tmp_path: Path) -> None:
    data = mlp_data(tmp_path / "data.npz")

    convert(write_model(zoo.mlp()), tmp_path / "mlp.bundle", calibration=data)

    quality = json.loads((tmp_path / "mlp.bundle/quality.json").read_text())
    assert quality["evaluation"] == {"origin": "data.npz", "sha256": _sha256(data), "calls": 48}
    assert {"cpu", "onnxruntime", "ai-edge-litert"} <= quality["machine"].keys()
    assert quality["variants"]["tflite/fp32"]["engine"].startswith("litert ")
    assert quality["variants"]["onnx/int8"]["verdict"] == "ok"
    assert 30 <= quality["variants"]["onnx/int8"]["sqnr_db"] < 70


def without_saturation(told: Told) -> list[str]:
    """Return the warnings but those that only x86 CPUs without VNNI give."""
    return [text for text in told.warnings if "by saturation on x86 CPUs without VNNI" not in text]


def test_random_ranges_are_warned_of(write_model: WriteModel, tmp_path: Path) -> None:
    told = Told()

    result = convert(write_model(zoo.mlp()), tmp_path / "mlp.bundle", reporter=told)

    assert len(without_saturation(told)) == 2
    assert "come from random inputs" in told.warnings[0]
    assert result.data == "32 random samples"


def test_int8_with_random_ranges_is_taken_by_its_id_only(write_model: WriteModel, tmp_path: Path) -> None:
    told = Told()
    convert(write_model(zoo.mlp()), tmp_path / "m.bundle", format="onnx", reporter=told)
    convert(write_model(zoo.mlp()), tmp_path / "asked.bundle", format="onnx", precision="fp32,int8")
    convert(write_model(zoo.mlp()), tmp_path / "d.bundle", format="onnx", calibration=mlp_data(tmp_path / "d.npz"))

    taken = {}
    for name in ("m", "asked", "d"):
        with edge_infer.load(tmp_path / f"{name}.bundle", device="cpu") as session:
            taken[name] = session.report().variant
    assert taken == {"m": "onnx/fp32", "asked": "onnx/int8", "d": "onnx/int8"}
    assert told.warnings[-1].startswith("onnx/int8: taken by its id only: random inputs")
    for name, is_marked in (("m", True), ("asked", False), ("d", False)):
        quality = json.loads((tmp_path / f"{name}.bundle/quality.json").read_text())["variants"]["onnx/int8"]
        assert (quality["verdict"], "by its id only" in quality["reason"]) == ("ok", is_marked)
    with edge_infer.load(tmp_path / "m.bundle", variant="onnx/int8") as session:
        assert session.report().variant == "onnx/int8"


def test_ranges_from_the_evaluation_data_are_warned_of(write_model: WriteModel, tmp_path: Path) -> None:
    told = Told()

    convert(write_model(zoo.mlp()), tmp_path / "m.bundle", evaluation=mlp_data(tmp_path / "d.npz"), reporter=told)

    assert ["come from the evaluation data" in text for text in without_saturation(told)] == [True]


def test_an_operator_that_tflite_lacks_leaves_that_format_out(write_model: WriteModel, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Einsum", ["m"], ["y"], name="same", equation="...j->...j"),
    ]
    weights = {"w": np.random.default_rng(0).normal(0, 0.1, (64, 64)).astype(np.float32)}
    model = zoo.model(nodes, [zoo.value("x", ["n", 64])], [zoo.value("y", ["n", 64])], weights)
    told = Told()

    result = convert(write_model(model), tmp_path / "m.bundle", reporter=told)

    assert [one.variant.id for one in result.variants] == ["onnx/fp32", "onnx/fp16", "onnx/int8"]
    why = "the equation `...j->...j`: an ellipsis, or a letter twice in one operand"
    reason = f"TFLite is not written for Einsum ({why}): `same`"
    assert result.not_made == dict.fromkeys(
        ("tflite/fp32", "tflite/fp16", "tflite/int8", "compiled/fp32", "compiled/int8"), reason
    )
    assert told.warnings.count(f"tflite/fp32 is left out: {reason}") == 1
    assert not any(reason in text for text in told.warnings if not text.startswith("tflite/fp32")), "it is said once"
    assert not (tmp_path / "m.bundle/tflite").exists()


def test_a_variant_that_is_not_good_enough_is_left_out(write_model: WriteModel, tmp_path: Path) -> None:
    """Ranges from inputs a thousand times too small clip everything else."""
    inputs = np.random.default_rng(5).normal(0, 1, (40, 64)).astype(np.float32)
    np.savez(tmp_path / "small.npz", x=inputs / 1000)
    np.savez(tmp_path / "real.npz", x=inputs)
    told = Told()

    result = convert(
        write_model(zoo.mlp()),
        tmp_path / "m.bundle",
        calibration=tmp_path / "small.npz",
        evaluation=tmp_path / "real.npz",
        reporter=told,
    )

    assert [one.variant.id for one in result.variants if not one.is_kept] == [
        *("onnx/int8", "tflite/int8", "compiled/int8")
    ]
    assert any(text.startswith("onnx/int8 is left out: SQNR") for text in told.warnings)
    kept = [variant.id for variant in Bundle.open(tmp_path / "m.bundle").manifest.variants]
    assert kept == ["onnx/fp32", "onnx/fp16", "tflite/fp32", "tflite/fp16", "compiled/fp32"]
    assert not (tmp_path / "m.bundle/onnx/model_int8.onnx").exists()


def test_keep_all_keeps_it(write_model: WriteModel, tmp_path: Path) -> None:
    inputs = np.random.default_rng(5).normal(0, 1, (40, 64)).astype(np.float32)
    np.savez(tmp_path / "small.npz", x=inputs / 1000)
    np.savez(tmp_path / "real.npz", x=inputs)

    convert(
        write_model(zoo.mlp()),
        tmp_path / "m.bundle",
        calibration=tmp_path / "small.npz",
        evaluation=tmp_path / "real.npz",
        recipe=Recipe(keep_all=True),
    )

    assert len(Bundle.open(tmp_path / "m.bundle").manifest.variants) == 8


def test_no_good_variant_is_an_error_and_writes_nothing(write_model: WriteModel, tmp_path: Path) -> None:
    inputs = np.random.default_rng(5).normal(0, 1, (40, 64)).astype(np.float32)
    np.savez(tmp_path / "small.npz", x=inputs / 1000)
    np.savez(tmp_path / "real.npz", x=inputs)

    with pytest.raises(AccuracyError, match="good enough"):
        convert(
            write_model(zoo.mlp()),
            tmp_path / "m.bundle",
            calibration=tmp_path / "small.npz",
            evaluation=tmp_path / "real.npz",
            recipe=Recipe(precisions=("int8",)),
        )

    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "real.npz", "small.npz"]


def test_a_model_with_two_inputs_is_converted(write_model: WriteModel, tmp_path: Path) -> None:
    result = convert(write_model(zoo.add(), "add.onnx"), tmp_path / "add.bundle")

    assert [one.variant.id for one in result.variants] == ["onnx/fp32", "tflite/fp32", "compiled/fp32"]
    assert set(result.not_made) == {"onnx/fp16", "onnx/int8", "tflite/fp16", "tflite/int8", "compiled/int8"}


def test_an_integer_model_is_converted(write_model: WriteModel, tmp_path: Path) -> None:
    """Token numbers in, scores out; the free length is drawn too."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"]),
        helper.make_node("ReduceMean", ["rows", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["scores"]),
    ]
    rng = np.random.default_rng(2)
    weights: dict[str, np.ndarray[Any, Any]] = {
        "table": rng.uniform(1, 2, (20, 8)).astype(np.float32),
        "axes": np.array([1], np.int64),
        "w": rng.normal(0, 1, (8, 3)).astype(np.float32),
    }
    inputs = [zoo.value("tokens", ["batch", "length"], "int64")]
    model = zoo.model(nodes, inputs, [zoo.value("scores", ["batch", 3])], weights)

    result = convert(write_model(model), tmp_path / "m.bundle")

    assert [one.variant.id for one in result.variants if one.is_kept][:2] == ["onnx/fp32", "onnx/fp16"]
    assert result.not_made["tflite/fp32"].startswith("Dimension 1 of input `tokens` is free")


def test_a_string_model_is_converted(write_model: WriteModel, tmp_path: Path) -> None:
    result = convert(write_model(zoo.identity("string")), tmp_path / "m.bundle")

    assert [one.variant.id for one in result.variants] == ["onnx/fp32"]
    assert Bundle.open(tmp_path / "m.bundle").examples()[0][1]["y"].dtype == "string"


def test_a_half_precision_model_is_kept_as_it_is_beside_its_floats(write_model: WriteModel, tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(0).normal(0, 0.3, (8, 8)).astype(np.float16)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = zoo.model([node], [zoo.value("x", ["n", 8], "float16")], [zoo.value("y", ["n", 8], "float16")], weights)

    result = convert(write_model(model), tmp_path / "m.bundle")

    made = {one.variant.id: one.variant.file for one in result.variants}
    assert [*made] == ["onnx/fp32", "onnx/fp16", "tflite/fp32"]  # weights this small are not worth fewer bits
    kept = onnx.load(tmp_path / "m.bundle" / made["onnx/fp16"])
    assert kept.graph.SerializeToString() == onnx.load_from_string(model).graph.SerializeToString()


def test_a_fixed_batch_is_said_in_the_variant(write_model: WriteModel, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"], end=1),
        helper.make_node("Cast", ["dims"], ["count"], to=int(onnx.TensorProto.FLOAT)),
        helper.make_node("Add", ["x", "count"], ["y"]),
    ]
    model = zoo.model(nodes, [zoo.value("x", ["batch", 3])], [zoo.value("y", ["batch", 3])])

    convert(write_model(model), tmp_path / "m.bundle")

    variant = Bundle.open(tmp_path / "m.bundle").manifest.variant("tflite/fp32")
    assert variant.inputs == (TensorSpec("x", "float32", (1, 3)),)
    assert variant.outputs == (TensorSpec("y", "float32", (1, 3)),)


def test_external_weights_are_taken_into_the_bundle(tmp_path: Path) -> None:
    proto = onnx.load_from_string(zoo.mlp())
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)

    convert(tmp_path / "m.onnx", tmp_path / "m.bundle")

    feeds = random_feeds(zoo.mlp())
    written = (tmp_path / "m.bundle/onnx/model.onnx").read_bytes()
    np.testing.assert_array_equal(run_onnx(written, feeds)["logits"], run_onnx(zoo.mlp(), feeds)["logits"])


def test_what_is_there_is_not_overwritten_unasked(write_model: WriteModel, tmp_path: Path, mlp_bundle: Path) -> None:
    model = write_model(zoo.mlp())
    shutil.copytree(mlp_bundle, tmp_path / "m.bundle")
    before = files_of(tmp_path / "m.bundle")

    with pytest.raises(BundleError, match="exists") as caught:
        convert(model, tmp_path / "m.bundle", name="other")
    assert files_of(tmp_path / "m.bundle") == before
    assert "--force" in caught.value.hint

    convert(model, tmp_path / "m.bundle", name="other", force=True)
    assert Bundle.open(tmp_path / "m.bundle").manifest.name == "other"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.bundle", "model.onnx"]


def test_a_folder_that_is_no_bundle_is_never_overwritten(write_model: WriteModel, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_bytes(b"cat")

    with pytest.raises(BundleError, match="is not a bundle"):
        convert(write_model(zoo.mlp()), tmp_path / "photos", force=True)

    assert (tmp_path / "photos/cat.jpg").read_bytes() == b"cat"


@pytest.mark.parametrize("stage", ["encode", "measure", "commit"])
def test_a_failure_leaves_the_old_bundle_and_nothing_else(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlp_bundle: Path, stage: str
) -> None:
    model = write_model(zoo.mlp())
    shutil.copytree(mlp_bundle, tmp_path / "m.bundle")
    before = files_of(tmp_path / "m.bundle")

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    places = {
        "encode": "edge_infer_converters.variant_files.encode",
        "measure": "edge_infer_converters.measure.variants.measure_quality",
        "commit": "edge_infer_converters.bundle_writer.BundleWriter.commit",
    }
    monkeypatch.setattr(places[stage], fail)
    with pytest.raises(KeyboardInterrupt):
        convert(model, tmp_path / "m.bundle", name="other", force=True)

    assert files_of(tmp_path / "m.bundle") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.bundle", "model.onnx"]


def test_a_folder_that_is_not_there_is_named(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="There is no folder"):
        convert(write_model(zoo.mlp()), tmp_path / "missing/m.bundle")


def test_labels_must_be_as_many_as_classes(write_model: WriteModel, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text('["a", "b"]')

    with pytest.raises(InputError, match="name 2 classes, output `logits` has 10"):
        convert(write_model(zoo.mlp()), tmp_path / "m.bundle", labels=tmp_path / "labels.json")


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]", "[", "[]"])
def test_labels_that_are_no_list_of_texts_are_refused(write_model: WriteModel, tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.json").write_text(text)

    with pytest.raises(InputError, match="Labels"):
        convert(write_model(zoo.mlp()), tmp_path / "m.bundle", labels=tmp_path / "labels.json")


def test_a_model_that_does_not_run_is_an_error_that_says_why(write_model: WriteModel, tmp_path: Path) -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [zoo.value("x", ["n", 3]), zoo.value("shape", [2], "int64")]
    model = zoo.model([node], inputs, [zoo.value("y", ["a", "b"])])

    with pytest.raises(ConversionError, match="does not run on random inputs") as caught:
        convert(write_model(model), tmp_path / "m.bundle")

    assert "--calibration" in caught.value.hint
    assert not (tmp_path / "m.bundle").exists()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"precisions": ("int9",)}, "Precision `int9` is not known"),
        ({"formats": ("onyx",)}, "Format `onyx` is not known"),
        ({"targets": ("mcu",), "precisions": ("fp32",)}, "nothing to make"),
    ],
)
def test_a_recipe_of_what_cannot_be_made_is_refused(recipe: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe(**recipe)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_variant_that_is_no_smaller_is_left_out(write_model: WriteModel, tmp_path: Path) -> None:
    weights = {"w": np.ones((3, 3), np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = zoo.model([node], [zoo.value("x", ["n", 3])], [zoo.value("y", ["n", 3])], weights)

    result = convert(write_model(model), tmp_path / "m.bundle")

    assert result.not_made["onnx/int8"].startswith("It is not smaller than the source")


def test_half_precision_attention_is_kept_and_runs(write_model: WriteModel, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    weights = {"w": np.random.default_rng(0).normal(0, 0.3, (64, 64)).astype(np.float32)}
    model = zoo.model(nodes, [zoo.value("x", [2, 5, 64])], [zoo.value("y", [5, 2, 64])], weights)

    result = convert(write_model(model), tmp_path / "m.bundle", recipe=Recipe(formats=("onnx",)))

    assert {one.variant.id: one.quality.verdict.word for one in result.variants}["onnx/fp16"] == "ok"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_an_engine_that_crashes_costs_its_variant_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Python whose engine dies of int8."""
    stand_in = tmp_path / "python"
    stand_in.write_text(
        '#!/bin/sh\nshift 3\nfor id in "$@"; do [ "$id" = onnx/int8 ] && kill -SEGV $$; echo "$id"; done\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))

    assert crashing(tmp_path, ["onnx/fp32", "onnx/int8", "tflite/fp32"]) == ["onnx/int8"]
    assert crashing(tmp_path, ["onnx/fp32", "tflite/fp32"]) == []


def test_an_integer_interface_is_for_microcontrollers_and_is_measured_with_floats(
    write_model: WriteModel, tmp_path: Path
) -> None:
    data = mlp_data(tmp_path / "data.npz")
    recipe = Recipe(("tflite",), ("fp32", "int8"), tflite_io="int8")

    result = convert(write_model(zoo.mlp()), tmp_path / "m.bundle", calibration=data, evaluation=data, recipe=recipe)

    (measured,) = (one for one in result.variants if one.variant.id == "tflite/int8")
    assert measured.quality.verdict.word == "ok"
    variant = Bundle.open(tmp_path / "m.bundle").manifest.variant("tflite/int8")
    assert variant.targets == ("mcu", "pi")
    interpreter = Interpreter(model_path=str(tmp_path / "m.bundle" / variant.file))
    assert interpreter.get_input_details()[0]["dtype"] == np.int8
    with edge_infer.load(tmp_path / "m.bundle", variant="tflite/int8", arrays="numpy") as session:
        x = np.load(data)["x"][:1]
        assert [spec.dtype for spec in (*session.inputs, *session.outputs)] == ["float32", "float32"]
        want = run_onnx(zoo.mlp(), {"x": x})["logits"]
        np.testing.assert_allclose(session.run({"x": x})["logits"], want, atol=0.2)
        with session.prepare({"x": (1, 64)}) as call:
            np.testing.assert_array_equal(call({"x": x})["logits"], session.run({"x": x})["logits"])


def test_a_file_that_is_wrong_for_two_samples_gets_a_batch_of_one(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_row_only(node: Node) -> None:
        """What a rule writes that takes a free batch for 1."""
        f = Formula(node)
        node.give(f.select(f.constant(np.triu(np.ones((1, 4), bool))), node.input(), 0))

    monkeypatch.setitem(RULES, "Trilu", first_row_only)
    model = zoo.model([helper.make_node("Trilu", ["x"], ["y"])], [zoo.value("x", ["n", 4])], [zoo.value("y", ["n", 4])])
    told = Told()

    made = convert(write_model(model), tmp_path / "m.bundle", recipe=Recipe(("tflite",), ("fp32",)), reporter=told)

    assert "TFLite is right for one sample at a time only: its batch is fixed to 1" in told.warnings
    (one,) = made.variants
    assert one.quality.verdict.word == "ok"
    assert one.variant.inputs == (TensorSpec("x", "float32", [1, 4]),)


def blind_detector() -> bytes:
    """Boxes up to 640 and scores up to 1 in one output, joined by an addition: int8 has one step for all of it."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(0, 0.3, (10, 16, 1)).astype(np.float32),
        "b": np.zeros(10, np.float32),
        "scale": np.array([640.0] * 4 + [1.0] * 6, np.float32).reshape(1, 10, 1),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"]),
        helper.make_node("Sigmoid", ["h"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["y"]),
    ]
    return zoo.model(nodes, [zoo.value("x", [1, 16, 200])], [zoo.value("y", [1, 10, 200])], weights)


@pytest.mark.parametrize("budget", [Budget(), Budget(min_sqnr_db=25.0)], ids=["no budget", "an SQNR"])
def test_a_detector_that_int8_makes_blind_fails_whatever_sqnr_was_asked_for(tmp_path: Path, budget: Budget) -> None:
    (tmp_path / "net.onnx").write_bytes(blind_detector())
    recipe = Recipe(formats=("onnx",), precisions=("fp32", "int8"), keep_all=True, budget=budget)

    made = convert(tmp_path / "net.onnx", tmp_path / "net.bundle", recipe=recipe)

    (quality,) = [one.quality for one in made.variants if one.variant.precision == "int8"]
    assert quality.parity.sqnr_db > 25
    assert quality.verdict.word == "fail"
    assert "nothing is left of `y[:, " in quality.verdict.reason


def test_no_variant_must_be_nearer_to_the_source_than_the_source_is(tmp_path: Path) -> None:
    """The model gives the small rest of large numbers: a rounding of its input shows in the fourth digit."""
    nodes = [helper.make_node("Sub", ["x", "large"], ["y"])]
    net = zoo.model(
        nodes, [zoo.value("x", [1, 16])], [zoo.value("y", [1, 16])], {"large": np.full((1, 16), 4096, np.float32)}
    )
    (tmp_path / "net.onnx").write_bytes(net)
    data = tmp_path / "data.npz"
    np.savez(data, x=4096 + np.random.default_rng(0).uniform(-1, 1, (4, 16)).astype(np.float32))

    convert(tmp_path / "net.onnx", tmp_path / "net.bundle", calibration=data, evaluation=data)

    source = Bundle.open(tmp_path / "net.bundle").manifest.variant("onnx/fp32")
    assert source.parity["y"]["sqnr_db"] < comparison.FP32_MIN_SQNR_DB
    assert verified(tmp_path / "net.bundle")["onnx/fp32"] == "ok"


def test_verify_keeps_to_the_budget_of_the_conversion(tmp_path: Path, write_model: WriteModel) -> None:
    data = mlp_data(tmp_path / "data.npz")
    recipe = Recipe(formats=("onnx",), precisions=("fp32", "int8"), budget=Budget(min_sqnr_db=5.0))
    model = zoo.mlp()
    bundle = tmp_path / "mlp.bundle"

    made = convert(write_model(model, "mlp.onnx"), bundle, recipe=recipe, calibration=data, evaluation=data)

    (quality,) = [one.quality for one in made.variants if one.variant.precision == "int8"]
    (known,) = Bundle.open(bundle).manifest.variant("onnx/int8").parity.values()
    assert known["sqnr_db"] == pytest.approx(quality.parity.sqnr_db, abs=3)
    assert verified(bundle)["onnx/int8"] in ("ok", "warn")
    rewritten = json.loads((bundle / "manifest.json").read_text())
    (figures,) = rewritten["variants"][1]["parity"].values()
    figures["sqnr_db"] += 3  # as if the file had been another one
    (bundle / "manifest.json").write_text(json.dumps(rewritten))
    assert verified(bundle)["onnx/int8"] == "warn"


def verified(bundle: Path) -> dict[str, str]:
    """Return the verdict of each variant on its exact engine."""
    from click.testing import CliRunner

    from edge_infer import cli

    done = CliRunner().invoke(cli.cli, ["verify", str(bundle), "--json"])
    return {row["variant"]: row["verdict"] for row in json.loads(done.stdout)["rows"]}
