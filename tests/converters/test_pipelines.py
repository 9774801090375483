"""What stands before and after a model is found, or asked for, and written into the bundle."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import cli
from edge_infer.errors import BundleError, ConversionError, InputError, UnsupportedError
from edge_infer_converters import convert
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

GREEN = np.full((7, 5, 3), (0, 255, 0), np.uint8)


class Said:
    """Keeps what a conversion tells."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def talk(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str, hint: str) -> None:
        self.lines.append(f"{text} ({hint})")

    @contextmanager
    def progress(self, text: str, total: int | None) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        yield lambda _: None


def to_onnx(model: Path, output: Path, **more: Any) -> Said:
    said = Said()
    convert(model, output, precision="fp32", format="onnx", reporter=said, **more)
    return said


def info(path: Path, *more: str) -> Result:
    result = CliRunner().invoke(cli, ["info", str(path), *more])
    assert result.exit_code == 0, result.output
    return result


def test_a_folder_of_the_hub_becomes_a_bundle_that_takes_images(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "colours", hub_folders.image_classifier(3), hub_folders.VIT)

    said = to_onnx(folder, tmp_path / "out.bundle")

    bundle = Bundle.open(tmp_path / "out.bundle")
    assert any("image-classification, from huggingface, 3 labels" in line for line in said.lines)
    assert (bundle.manifest.name, bundle.manifest.task) == ("colours", "image-classification")
    with edge_infer.pipeline(bundle) as classify, edge_infer.pipeline(folder) as unconverted:
        assert classify(GREEN) == unconverted(GREEN)
    lines = info(tmp_path / "out.bundle").stdout.splitlines()
    assert "task    image-classification, from huggingface" in lines
    assert "before  pixel_values: image.resize width=8 height=8" in lines
    assert lines.index("after   post.top_k") == lines.index("after   post.softmax") + 1
    assert json.loads(info(tmp_path / "out.bundle", "--json").stdout)["pipeline"] == bundle.manifest.pipeline


def test_info_shows_what_an_unconverted_model_says(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "colours", hub_folders.image_classifier(3), hub_folders.VIT)
    odd = {**hub_folders.VIT, "preprocessor_config.json": {"image_processor_type": "OddImageProcessor"}}
    refused = hub_folders.write(tmp_path / "odd", hub_folders.image_classifier(3), odd) / "onnx/model.onnx"

    assert "task    image-classification, from huggingface" in info(folder).stdout
    result = info(refused)
    assert "`OddImageProcessor` is not supported" in result.stderr
    assert "task" not in result.stdout


def test_tokenizers_travel_in_the_bundle(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "s", hub_folders.text_encoder(), hub_folders.SENTENCES)

    to_onnx(folder, tmp_path / "s.bundle")

    assert Bundle.open(tmp_path / "s.bundle").read("tokenizer.json") == hub_folders.tokenizer()
    with edge_infer.pipeline(tmp_path / "s.bundle") as embed, edge_infer.pipeline(folder) as unconverted:
        assert embed("a good film").tolist() == unconverted("a good film").tolist()


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "colours", hub_folders.image_classifier(3), hub_folders.VIT)

    for name in ("one", "two"):
        to_onnx(folder, tmp_path / name)

    def contents(name: str) -> dict[str, bytes]:
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file() and path.name != "quality.json"]
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files}

    assert contents("one") == contents("two")


def test_a_preset_and_labels_make_a_pipeline(tmp_path: Path) -> None:
    model, labels = tmp_path / "plain.onnx", tmp_path / "labels.txt"
    model.write_bytes(hub_folders.image_classifier(3))
    labels.write_text("red\ngreen\nblue\n")

    missing = to_onnx(model, tmp_path / "none.bundle")
    to_onnx(model, tmp_path / "out.bundle", preprocess="imagenet", labels=labels)

    assert any("--task image-classification --preprocess imagenet --labels FILE" in line for line in missing.lines)
    assert Bundle.open(tmp_path / "none.bundle").manifest.task is None
    with edge_infer.pipeline(tmp_path / "out.bundle") as classify:
        assert {one["label"] for one in classify(GREEN)} == {"red", "green", "blue"}


def test_a_file_of_steps_makes_a_pipeline(tmp_path: Path) -> None:
    model, file = tmp_path / "plain.onnx", tmp_path / "steps.json"
    model.write_bytes(hub_folders.image_classifier(3))
    before = [{"step": "image.decode"}, {"step": "image.resize", "width": 8, "height": 8}]
    file.write_text(json.dumps({"inputs": {"pixel_values": [*before, {"step": "image.rescale_normalize"}]}}))

    said = to_onnx(model, tmp_path / "out.bundle", preprocess=str(file), task="image-classification")

    assert any("Nothing names the classes" in line and "--labels FILE" in line for line in said.lines)
    with edge_infer.pipeline(tmp_path / "out.bundle") as classify:
        assert {one["label"] for one in classify(GREEN)} == {"LABEL_0", "LABEL_1", "LABEL_2"}


def test_every_option_that_names_a_file_takes_a_path(tmp_path: Path) -> None:
    model = tmp_path / "colours.onnx"
    model.write_bytes(hub_folders.image_classifier(3))
    names = ("before.json", "labels.txt", "data.npz", "sample.json", "report.html", "measured.json")
    files = {name: tmp_path / name for name in names}
    steps = [{"step": "image.decode"}, {"step": "image.resize", "width": 8, "height": 8}]
    before = {"inputs": {"pixel_values": [*steps, {"step": "image.rescale_normalize"}]}}
    files["before.json"].write_text(json.dumps(before), "utf-8")
    files["labels.txt"].write_text("red\ngreen\nblue\n", "utf-8")
    files["sample.json"].write_text("{}", "utf-8")
    row = {"variant": "onnx/fp32", "backend": "onnxruntime", "version": "1", "device": "cpu", "threads": 1}
    rows = [{**row, "ms": 2.0, "spread": 0.01}]
    files["measured.json"].write_text(json.dumps({"model": "m@0", "rows": rows, "failed": []}), "utf-8")
    np.savez(files["data.npz"], pixel_values=np.random.default_rng(0).random((4, 3, 8, 8), np.float32))

    to_onnx(
        model,
        tmp_path / "out.bundle",
        task="image-classification",
        preprocess=files["before.json"],
        labels=files["labels.txt"],
        calibration=files["data.npz"],
        evaluation=files["data.npz"],
        samples=[files["sample.json"]],
        report=files["report.html"],
        measured=files["measured.json"],
    )

    with edge_infer.pipeline(tmp_path / "out.bundle") as classify:
        assert {one["label"] for one in classify(GREEN)} == {"red", "green", "blue"}
    assert (tmp_path / "out.bundle/samples/sample.json").is_file()
    assert files["report.html"].is_file()


def test_what_is_asked_for_and_does_not_fit_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    model, labels, wrong = tmp_path / "plain.onnx", tmp_path / "labels.txt", tmp_path / "wrong.json"
    model.write_bytes(hub_folders.image_classifier(3))
    labels.write_text("red\ngreen\n")
    wrong.write_text(json.dumps({"inputs": {"pixels": [{"step": "image.decode"}, {"step": "image.to_tensor"}]}}))
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InputError, "2 labels, and output `logits` has 3 classes", {"preprocess": "imagenet", "labels": labels}),
        (InputError, "there is no task `cats`", {"task": "cats"}),
        (ConversionError, "Nothing says what stands before a model for fill-mask", {"task": "fill-mask"}),
        (InputError, "no preset `imagent`", {"preprocess": "imagent"}),
        (InputError, "cannot be read", {"preprocess": "missing.json"}),
        (Exception, "has no input `pixels`", {"preprocess": str(wrong), "task": "image-classification"}),
    ]
    for kind, message, given in refused:
        with pytest.raises(kind, match=message):
            to_onnx(model, tmp_path / "out.bundle", **given)
    assert not (tmp_path / "out.bundle").exists()


def test_metadata_that_cannot_be_used_leave_a_bundle_without_a_pipeline(tmp_path: Path) -> None:
    odd = {**hub_folders.VIT, "preprocessor_config.json": {"image_processor_type": "OddImageProcessor"}}
    folder = hub_folders.write(tmp_path / "odd", hub_folders.image_classifier(3), odd)
    strange = json.loads(hub_folders.tokenizer()) | {"pre_tokenizer": {"type": "Fancy"}}
    text = hub_folders.write(
        tmp_path / "t", hub_folders.text_encoder(), {**hub_folders.SENTENCES, "tokenizer.json": strange}
    )

    images, texts = to_onnx(folder, tmp_path / "odd.bundle"), to_onnx(text, tmp_path / "t.bundle")

    assert any("gets no pipeline: the image processor `OddImageProcessor`" in line for line in images.lines)
    assert any("gets no pipeline" in line and "Fancy" in line for line in texts.lines)
    assert Bundle.open(tmp_path / "odd.bundle").manifest.task is None
    with pytest.raises(UnsupportedError, match="OddImageProcessor"):
        to_onnx(folder, tmp_path / "again.bundle", task="image-classification")


def test_a_folder_without_onnx_says_how_to_export_it(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "bare", None, {"config.json": {}, "model.safetensors": b""})

    with pytest.raises(UnsupportedError, match=r"no onnx/model\.onnx") as caught:
        to_onnx(folder, tmp_path / "out.bundle")
    assert "optimum-cli export onnx" in caught.value.hint


def test_a_table_of_numbers_is_told_nothing_of_pipelines(tmp_path: Path) -> None:
    model = tmp_path / "plain.onnx"
    model.write_bytes(zoo.mlp())

    said = to_onnx(model, tmp_path / "out.bundle")

    assert not any("pipeline" in line for line in said.lines)


def test_damaged_files_beside_a_model_do_not_stop_its_conversion(tmp_path: Path) -> None:
    folder = hub_folders.write(tmp_path / "x", hub_folders.image_classifier(3), {"config.json": b"{"})

    said = to_onnx(folder / "onnx/model.onnx", tmp_path / "out.bundle")

    assert any("`config.json` is not JSON" in line for line in said.lines)
    with pytest.raises(BundleError, match="is not JSON"):
        edge_infer.pipeline(folder)
