"""Compiled variants in bundles: made where a model fits, passed over with the reason where it does not."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import Manifest
from edge_infer.cli import main_here
from edge_infer.cli.bisect import judged_way, other_way
from edge_infer.errors import ConversionError, InputError, UnsupportedModel
from edge_infer.formats.program import call_arguments, read_compiled
from edge_infer.runtime.options import LoadOptions
from edge_infer.runtime.selection import choices
from edge_infer_converters import convert
from edge_infer_converters.compilation import compile_file
from edge_infer_converters.recipe import Recipe
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import worth
from tests.support import zoo
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


@pytest.fixture
def bundle(write_model: WriteModel, tmp_path: Path) -> Path:
    """A small network in every format."""
    return convert(write_model(zoo.mlp()), tmp_path / "mlp.bundle", precision="fp32,int8").path


def test_a_compiled_variant_gives_what_its_tflite_file_gives(bundle: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    answers = {}
    for id_ in ("tflite/fp32", "tflite/int8", "compiled/fp32", "compiled/int8"):
        with edge_infer.load(bundle, variant=id_) as session:
            answers[id_] = np.asarray(session.run({"x": x})["logits"])

    assert answers["compiled/int8"].tolist() == answers["tflite/int8"].tolist(), "bit for bit"
    np.testing.assert_allclose(answers["compiled/fp32"], answers["tflite/fp32"], rtol=1e-5, atol=1e-5)


def test_a_free_batch_stays_free(bundle: Path) -> None:
    x = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    with edge_infer.load(bundle, variant="compiled/int8") as session:
        assert session.inputs[0].shape[0] == "batch"
        whole = np.asarray(session.run({"x": x})["logits"])
        rows = [np.asarray(session.run({"x": x[i : i + 1]})["logits"])[0] for i in range(3)]
        with session.prepare({"x": (3, 64)}) as call:
            prepared = np.asarray(call({"x": x})["logits"]).tolist()
        into = np.zeros((3, 10), np.float32)
        session.run({"x": x}, into={"logits": into})
        assert np.asarray(session.run({"x": x[:0]})["logits"]).shape == (0, 10)

    assert whole.tolist() == np.stack(rows).tolist() == prepared == into.tolist()


def test_samples_that_depend_on_one_another_have_a_fixed_batch() -> None:
    """A mean over the batch: of two samples it is not what each alone has."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    model = zoo.model(nodes, [zoo.value("x", ["n", 4])], [zoo.value("y", ["n", 4])], {"axes": np.array([0], np.int64)})
    import onnx

    content = tflite.write(onnx.load_from_string(model)).data

    compiled, checked = compile_file(content, "net")

    assert not compiled.program.is_row
    assert checked.startswith("equal to LiteRT")


def test_engines_come_first_natively_and_last_is_the_compiled_one(bundle: Path) -> None:
    manifest = Bundle.open(bundle).manifest

    found = [(one.variant.id, one.backend) for one in choices(manifest)]
    asked = next(choices(manifest, LoadOptions("cpu", "compiled")))

    assert found[0] == ("onnx/int8", "onnxruntime")
    assert ("compiled/int8", "compiled") in found
    assert found.index(("compiled/int8", "compiled")) > found.index(("tflite/int8", "litert"))
    assert asked.variant.id == "compiled/int8"


def test_without_engines_the_compiled_variant_runs(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edge_infer.backends.base import Availability
    from edge_infer.backends.registry import get_backend

    for name in ("onnxruntime", "litert"):
        monkeypatch.setattr(get_backend(name), "availability", lambda: Availability(False, reason="not installed"))

    with edge_infer.load(bundle) as session:
        assert (session.report().variant, session.report().engine) == ("compiled/int8", "compiled")


def test_a_model_that_does_not_fit_is_passed_over_with_the_reason(write_model: WriteModel, tmp_path: Path) -> None:
    node = helper.make_node("Sin", ["x"], ["y"])
    model = write_model(zoo.model([node], [zoo.value("x", [1, 8])], [zoo.value("y", [1, 8])]))
    told = Told()

    made = convert(model, tmp_path / "m.bundle", precision="fp32", reporter=told)

    assert [one.variant.id for one in made.variants] == ["onnx/fp32", "tflite/fp32"]
    assert "SIN" in made.not_made["compiled/fp32"]
    assert not [text for text in told.warnings if "compiled" in text], "most models are no small networks"
    assert [text for text in told.steps if text.startswith("Skipped") and "compiled/fp32" in text]
    with pytest.raises(ConversionError, match=r"No variant of `model` can be made.*SIN"):
        convert(model, tmp_path / "c.bundle", precision="fp32", format="compiled")
    assert not (tmp_path / "c.bundle").exists()


def test_a_bundle_may_hold_compiled_variants_alone(write_model: WriteModel, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    made = convert(
        write_model(zoo.mlp()), tmp_path / "m.bundle", format="compiled", precision="fp32,int8", report=report
    )

    page = report.read_text()
    assert [page.count(f"<h2>Calls of compiled/{one}</h2>") for one in ("fp32", "int8")] == [1, 1]
    assert page.count("data:image/svg+xml;base64,") == 2
    assert [one.variant.id for one in made.variants] == ["compiled/fp32", "compiled/int8"]
    assert all(one.quality.verdict.word == "ok" for one in made.variants)
    assert {path.name for path in (tmp_path / "m.bundle").iterdir()} == {
        *("compiled", "examples", "manifest.json", "quality.json")
    }


def test_a_tflite_file_becomes_a_compiled_variant_beside_it(bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "mlp.tflite"
    source.write_bytes((bundle / "tflite/model_int8.tflite").read_bytes())

    both = convert(source, tmp_path / "both.bundle")
    alone = convert(source, tmp_path / "alone.bundle", format="compiled")

    assert [one.variant.id for one in both.variants] == ["tflite/int8", "compiled/int8"]
    assert [one.variant.id for one in alone.variants] == ["compiled/int8"]
    as_onnx = convert(source, tmp_path / "onnx.bundle", format="onnx")
    assert [one.variant.id for one in as_onnx.variants] == ["onnx/int8"]


@pytest.mark.parametrize(
    ("precision", "multiplications", "asked", "targets"),
    [
        ("int8", 40_000_000, ("any",), ("any",)),
        ("fp32", 10_000_000, ("any",), ("any",)),
        ("fp32", 30_000_000, ("any",), ("pi",)),
        ("fp32", 30_000_000, ("web", "pi"), ("pi",)),
    ],
)
def test_a_page_takes_it_only_where_it_is_not_slower(
    precision: str, multiplications: int, asked: tuple[str, ...], targets: tuple[str, ...]
) -> None:
    model: Any = Sized(b"", multiplications)

    assert worth.targets_of(model, precision, asked, is_asked_for=False) == targets


def test_a_large_file_is_made_only_where_it_is_asked_for() -> None:
    slow: Any = Sized(b"", 30_000_000)
    large: Any = Sized(bytes(worth.MAX_FILE_BYTES + 1), 1)
    for model in (slow, large):
        with pytest.raises(ConversionError) as caught:
            worth.targets_of(model, "fp32", ("web",), is_asked_for=False)
        assert caught.value.hint.startswith("--format compiled")
        assert worth.targets_of(model, "fp32", ("web",), is_asked_for=True) == ("web",)


def test_the_formats_of_a_recipe() -> None:
    def ids(**options: Any) -> list[str]:
        return [plan.id for plan in Recipe.of(**options).plans("fp32")]

    assert {"compiled/fp32", "compiled/int8"} <= set(ids())
    assert ids(format="compiled") == ["compiled/fp32", "compiled/int8"]
    assert not [one for one in ids(format="both") if one.startswith("compiled")]
    assert not [one for one in ids(target="mcu") if one.startswith("compiled")]
    with pytest.raises(InputError, match="nothing to make"):
        ids(format="compiled", precision="int4")


def test_info_prints_the_programs_of_a_bundle(bundle: Path) -> None:
    from click.testing import CliRunner

    from edge_infer.cli.info import info

    shown = CliRunner().invoke(info, [str(bundle), "--program"])
    missing = CliRunner().invoke(info, [str(bundle / "onnx/model.onnx"), "--program"])

    assert shown.exit_code == 0, shown.output
    assert "compiled/fp32" in shown.output
    assert "convolution_int8" in shown.output
    assert isinstance(missing.exception, InputError)


def test_a_damaged_compiled_variant_is_refused(bundle: Path) -> None:
    """The hash is checked first; a file whose hash is right and whose program is not is refused by its reader."""
    content = json.loads((bundle / "manifest.json").read_text())
    file = bundle / "compiled/model_int8.wasm"
    data = file.read_bytes().replace(b'"version":1', b'"version":9')
    file.write_bytes(data)
    with pytest.raises(edge_infer.EdgeInferError), edge_infer.load(bundle, variant="compiled/int8"):
        pass

    import hashlib

    for entry in content["files"]:
        if entry["path"] == "compiled/model_int8.wasm":
            entry["sha256"] = hashlib.sha256(data).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(UnsupportedModel, match="its version is 9"), edge_infer.load(bundle, variant="compiled/int8"):
        pass


def test_manifests_without_compiled_variants_have_the_bytes_they_had(bundle: Path) -> None:
    manifest = Manifest.from_bytes((bundle / "manifest.json").read_bytes())
    others = [variant for variant in manifest.variants if variant.format != "compiled"]
    kept = [entry for path, entry in manifest.files.items() if not path.startswith("compiled/")]
    before = Manifest(
        manifest.name, "1", manifest.inputs, manifest.outputs, others, kept, examples=manifest.examples
    ).to_json()

    assert "compiled" not in json.dumps(before)
    assert set(before) == {"schema_version", "name", "version", "inputs", "outputs", "variants", "files", "examples"}


class Sized:
    """A compiled model of a size, without its code."""

    def __init__(self, wasm: bytes, multiply_accumulates: int) -> None:
        self.wasm = wasm
        self.multiply_accumulates = multiply_accumulates


def _with_wrong_weights(bundle: Path, variant: str) -> None:
    """Change the signs of some weights of the second layer."""
    file = bundle / Bundle.open(bundle).manifest.variant(variant).file
    content = bytearray(file.read_bytes())
    model = read_compiled(bytes(content))
    layers = [call for call in model.program.calls if call[0].startswith("convolution")]
    arguments = call_arguments(model.constants, *layers[1])
    start = bytes(content).index(bytes(model.constants)) + arguments.tensors["weights"]
    for i in range(start, start + 64):
        content[i] = (256 - content[i]) % 256
    file.write_bytes(content)
    manifest = json.loads((bundle / "manifest.json").read_text())
    entry = next(one for one in manifest["files"] if one["path"] == file.relative_to(bundle).as_posix())
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def test_a_compiled_variant_is_compared_call_by_call(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bisected(*arguments: str) -> Any:
        given = ["verify", str(bundle), "--variant", "compiled/int8", "--backend", "compiled", "--bisect", "--json"]
        monkeypatch.setattr(sys, "argv", ["edge-infer", *given, *arguments])
        with pytest.raises(SystemExit):
            main_here()
        return json.loads(capsys.readouterr().out)["bisections"]

    (right,) = bisected("--against", "tflite/int8")
    _with_wrong_weights(bundle, "compiled/int8")
    (wrong,) = bisected()

    assert right["first_difference"] is None
    assert right["compared"] >= 3
    assert wrong["against"]["variant"] == "tflite/int8"
    assert wrong["first_difference"]["operator"] == "FULLY_CONNECTED"
    assert 1 < wrong["compared"] <= right["compared"]
    assert all(value is None or value > 30 for value in wrong["first_difference"]["inputs"].values()), (
        "what it reads was right"
    )


def test_a_compiled_variant_is_compared_with_its_tflite_file_alone(bundle: Path) -> None:
    found = Bundle.open(bundle)
    way = judged_way(found.manifest.variant("compiled/int8"), "compiled", "auto")

    with pytest.raises(UnsupportedModel, match="`tflite/int8`"):
        other_way(found, way, "onnx/fp32")
