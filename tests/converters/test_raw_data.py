"""Raw data give the ranges of int8 and the accuracy, through the steps of the pipeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.errors import InputError
from edge_infer.tasks import vectors
from edge_infer.tasks.sources.opened import described
from edge_infer_converters import convert
from edge_infer_converters.data import raw
from edge_infer_converters.run_inputs import wanted
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.tasks.sources.found import Found

CLASSES = ("red", "green", "blue")


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    return hub_folders.write(tmp_path / "colours", hub_folders.image_classifier(3), hub_folders.VIT)


@pytest.fixture
def moods(tmp_path: Path) -> Path:
    files = {
        "config.json": {
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"0": "good", "1": "bad"},
        },
        "tokenizer.json": hub_folders.tokenizer(),
    }
    return hub_folders.write(tmp_path / "moods", hub_folders.text_classifier(2), files)


def definition(folder: Path) -> tuple[Found, Any]:
    """Return what a folder says, and the session of its model."""
    from edge_infer.tasks.sources.facts import read_facts
    from edge_infer.tasks.sources.find import find
    from edge_infer.tasks.sources.opened import files_beside

    model = folder / "onnx/model.onnx"
    facts = read_facts(model.read_bytes(), "onnx", "model.onnx")
    found = find(facts, model.read_bytes(), files_beside(str(model)))
    assert found is not None
    return found, facts


def pictures(folder: Path, counts: dict[str, int]) -> Path:
    """Write noisy images, each into the folder of its class."""
    rng = np.random.default_rng(2)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (11 + i, 9, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def evaluated(folder: Path, target: Path, **more: Any) -> dict[str, Any]:
    convert(folder, target, precision="fp32", format="onnx", **more)
    found: dict[str, Any] = json.loads((target / "quality.json").read_text("utf-8"))
    return found


def test_a_folder_for_each_class_gives_the_accuracy(colours: Path, tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", {"red": 4, "green": 3, "blue": 5})
    with edge_infer.pipeline(colours) as classify:
        right = [classify(str(file))[0]["label"] == file.parent.name for file in sorted(data.rglob("*.png"))]

    quality = evaluated(colours, tmp_path / "out.bundle", evaluation=data)

    assert quality["variants"]["onnx/fp32"]["accuracy"] == pytest.approx(sum(right) / 12)


def test_lines_of_text_give_the_accuracy(moods: Path, tmp_path: Path) -> None:
    texts = ["a good film", "the bad cat sat", "the film", "good good"]
    with edge_infer.pipeline(moods) as judge:
        answers = [judge(text)[0]["label"] for text in texts]
    wrong = {"good": "bad", "bad": "good"}[answers[3]]
    lines = tmp_path / "data.jsonl"
    given = [*answers[:3], wrong]
    lines.write_text("\n".join(json.dumps({"text": t, "label": a}) for t, a in zip(texts, given, strict=True)))
    table = tmp_path / "data.csv"
    table.write_text("text,label\n" + "\n".join(f'"{t}",{a}' for t, a in zip(texts, given, strict=True)))

    scores = [
        evaluated(moods, tmp_path / f"{file.suffix}.bundle", evaluation=file)["variants"]["onnx/fp32"]["accuracy"]
        for file in (lines, table)
    ]

    assert scores == [0.75, 0.75]


def test_images_are_calibrated_on_through_the_definitions_own_steps(colours: Path, tmp_path: Path) -> None:
    found, facts = definition(colours)
    folder = pictures(tmp_path, {"data": 3}) / "data"

    data = raw.read_raw(folder, found, facts.inputs, facts.outputs)

    assert data.classes is None
    assert [call["pixel_values"].shape for call in data.calls] == [(1, 3, 8, 8)] * 3
    bundle = described(colours)
    with edge_infer.load(bundle, arrays="numpy") as session, edge_infer.pipeline(colours) as classify:
        logits = session.run(dict(data.calls[0]))["logits"][0]
        scores = {one["label"]: one["score"] for one in classify(str(folder / "0.png"))}
    assert scores["green"] == pytest.approx(float(np.exp(logits[1]) / np.exp(logits).sum()), abs=1e-6)


def test_the_first_samples_are_of_all_classes_alike(
    colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, facts = definition(colours)
    monkeypatch.setattr(raw, "MAX_SAMPLES", 6)
    folder = pictures(tmp_path / "data", {"red": 5, "green": 2, "blue": 4})

    data = raw.read_raw(folder, found, facts.inputs, facts.outputs)

    assert data.classes is not None
    assert data.classes.tolist() == [2, 1, 0, 2, 1, 0]
    assert str(data) == "6 samples of data (6 of 11)"


def test_plain_tensors_stay_plain(colours: Path, tmp_path: Path) -> None:
    found, _ = definition(colours)
    (tmp_path / "plain").mkdir()
    np.save(tmp_path / "plain/0.npy", np.zeros((3, 8, 8), np.float32))

    assert not raw.is_raw(tmp_path / "plain", found)
    assert not raw.is_raw(tmp_path / "missing.csv", found)
    evaluated(colours, tmp_path / "out.bundle", calibration=tmp_path / "plain")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", '{"text": "a", "label": "odd"}', "line 1 of `d.jsonl` is of the class 'odd'"),
        ("d.jsonl", '{"text": "a", "label": 2}', "is of the class 2"),
        ("d.jsonl", '{"text": "a", "label": [1]}', "expected a name or a number"),
        ("d.jsonl", '{"text": "a", "label": "bad"}\n{"text": "b"}', "line 2 of `d.jsonl` has no label"),
        ("d.jsonl", "[1]", "line 1 of `d.jsonl` cannot be read"),
        ("d.jsonl", "{", "cannot be read"),
        ("d.jsonl", "", "holds no sample"),
        ("d.jsonl", '{"image": "no.png"}', "which is missing"),
        ("d.jsonl", '{"words": "a"}', "is not a text"),
        ("d.csv", "text,label\na,bad,more\n", "line 2 of `d.csv` cannot be read"),
        ("d.csv", 'text,label\n"a', "cannot be read"),
        ("d.csv", "label\nbad\n", "line 2 of `d.csv` is empty"),
    ],
)
def test_data_that_do_not_fit_are_refused_with_their_line(
    moods: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    found, facts = definition(moods)
    (tmp_path / name).write_text(content)

    with pytest.raises(InputError, match=message):
        raw.read_raw(tmp_path / name, found, facts.inputs, facts.outputs)


def test_a_broken_image_is_named(colours: Path, tmp_path: Path) -> None:
    found, facts = definition(colours)
    folder = pictures(tmp_path / "data", {"red": 1})
    (folder / "red/1.png").write_bytes(b"no image")

    with pytest.raises(InputError, match=r"`red/1\.png`: the image cannot be read"):
        raw.read_raw(folder, found, facts.inputs, facts.outputs)


def test_a_model_of_texts_without_data_is_judged_on_sentences(moods: Path, tmp_path: Path) -> None:
    quality = evaluated(moods, tmp_path / "out.bundle")

    assert quality["evaluation"]["origin"] == "made-up sentences"
    assert quality["evaluation"]["calls"] == 32
    with edge_infer.load(tmp_path / "out.bundle") as session:
        lengths = {len(one["input_ids"][0]) for one, _ in session.bundle.examples()}
    assert len(lengths) > 4


def test_a_bundle_without_the_source_is_proven_by_its_first_variant(moods: Path, tmp_path: Path) -> None:
    convert(moods, tmp_path / "out.bundle", precision="fp16", format="onnx", keep_all=True)

    bundle = edge_infer.Bundle.open(tmp_path / "out.bundle")
    assert [variant.id for variant in bundle.manifest.variants] == ["onnx/fp16"]
    assert vectors.PATH in bundle.manifest.files


def test_a_user_of_a_pipeline_is_asked_for_raw_data(colours: Path, moods: Path) -> None:
    for folder, hint in ((colours, "PHOTOS/, a folder of images"), (moods, "TEXTS.jsonl")):
        found, facts = definition(folder)
        assert wanted(facts, found).startswith(hint)
        assert wanted(facts, None).startswith("FILE.npz")
