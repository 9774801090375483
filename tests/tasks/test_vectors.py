"""The vectors of a bundle notice what was changed, and let what engines may differ by pass."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import cli
from edge_infer.errors import ExecutionError, ManifestError
from edge_infer.platform.hashing import sha256
from edge_infer.tasks import vector_making, vectors
from edge_infer.tasks.agreement import difference, plain
from edge_infer.tasks.definition import read_definition
from edge_infer.tasks.image.image import Image
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer_converters import convert
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from edge_infer.tasks.definition import Definition

    Changed = Callable[[str, Callable[[Any], Any]], Path]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle of images and one of texts."""
    folder = tmp_path_factory.mktemp("bundles")
    for name, model, files in (
        ("images", hub_folders.image_classifier(3), hub_folders.VIT),
        ("texts", hub_folders.text_encoder(), hub_folders.SENTENCES),
    ):
        hub_folders.write(folder / name, model, files)
        convert(folder / name, folder / f"{name}.bundle", precision="fp32", format="onnx")
    yield folder


def changed(bundle: Path, target: Path, file: str, change: Callable[[Any], Any]) -> Path:
    """Copy a bundle, and change a JSON file of it with its sha256."""
    shutil.copytree(bundle, target)
    place = target / file
    data = json.dumps(change(json.loads(place.read_text("utf-8"))), ensure_ascii=False).encode()
    place.write_bytes(data)
    if file != "manifest.json":
        manifest = json.loads((target / "manifest.json").read_text("utf-8"))
        for entry in manifest["files"]:
            if entry["path"] == file:
                entry["size"], entry["sha256"] = len(data), sha256(data)
        (target / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return target


def verify(path: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["verify", str(path), "--backend", "onnxruntime", *more])
    return result.exit_code, result.output


def step(document: Any, side: str, name: str) -> dict[str, Any]:
    chains = document["pipeline"]["inputs"].values() if side == "inputs" else [document["pipeline"]["outputs"]]
    found: dict[str, Any] = next(one for chain in chains for one in chain if one["step"] == name)
    return found


def test_what_the_converter_wrote_agrees_with_itself(bundles: Path) -> None:
    for name in ("images", "texts"):
        code, said = verify(bundles / f"{name}.bundle")
        assert code == 0, said
        assert "2 of 2 agree with the vectors of the pipeline" in said
        with edge_infer.pipeline(bundles / f"{name}.bundle", self_test=True):
            pass


def test_a_changed_parameter_before_the_model_is_noticed(bundles: Path, tmp_path: Path) -> None:
    def nearest(document: Any) -> Any:
        step(document, "inputs", "image.resize")["filter"] = "nearest"
        return document

    path = changed(bundles / "images.bundle", tmp_path / "b", "manifest.json", nearest)
    bundle = Bundle.open(path)
    found = vectors.read(bundle)
    assert found is not None

    differences = vectors.check_steps(bundle, found)

    assert differences[0] == "the steps were changed after their vectors were made"
    assert "case 0: the tensor `pixel_values` differs" in differences
    code, said = verify(path)
    assert code == 1
    assert "fail: the steps were changed" in said
    with pytest.raises(ExecutionError, match="the steps were changed"):
        edge_infer.pipeline(path, self_test=True)


def test_a_changed_parameter_after_the_model_is_noticed(bundles: Path, tmp_path: Path) -> None:
    def hotter(document: Any) -> Any:
        step(document, "outputs", "post.softmax")["temperature"] = 5.0
        return document

    path = changed(bundles / "images.bundle", tmp_path / "b", "manifest.json", hotter)
    document = json.loads(verify(path, "--json")[1].partition("\n}")[0] + "\n}")

    assert not document["passed"]
    rows = {row["variant"]: row for row in document["pipeline"]}
    assert rows["steps"]["verdict"] == rows["onnx/fp32"]["verdict"] == "fail"
    assert "expected" in rows["onnx/fp32"]["reason"]


def test_swapped_labels_are_noticed(bundles: Path, tmp_path: Path) -> None:
    path = changed(bundles / "images.bundle", tmp_path / "b", "labels.json", lambda names: names[::-1])

    code, said = verify(path)

    assert code == 1
    assert "the labels were changed" in said


def test_a_changed_tokenizer_is_noticed(bundles: Path, tmp_path: Path) -> None:
    def swap(document: Any) -> Any:
        vocabulary = document["model"]["vocab"]
        vocabulary["the"], vocabulary["[UNK]"] = vocabulary["[UNK]"], vocabulary["the"]
        return document

    path = changed(bundles / "texts.bundle", tmp_path / "b", "tokenizer.json", swap)

    code, said = verify(path)

    assert code == 1
    assert "the tensor `input_ids` differs" in said


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"version": 2, "cases": []},
        {"version": 1, "definition": "", "labels": "", "cases": [{}]},
        {"version": 1, "definition": "", "labels": "", "cases": [5]},
        {"version": 1, "definition": "", "labels": "", "cases": [0] * 1000},
    ],
)
def test_a_file_that_holds_no_vectors_is_refused(bundles: Path, tmp_path: Path, content: Any) -> None:
    path = changed(bundles / "images.bundle", tmp_path / "b", vectors.PATH, lambda _: content)

    with pytest.raises(ManifestError, match="does not hold vectors"):
        vectors.read(Bundle.open(path))


@pytest.mark.parametrize(
    "raw", [{"image": {"seed": 1, "width": 10**9, "height": 1}}, {"sound": {"rate": 1, "samples": 0}}, {}]
)
def test_a_case_that_cannot_be_made_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        vectors.made(vectors.Case(raw, {}))


def test_raw_inputs_are_the_same_everywhere() -> None:
    image = vectors.made(vectors.Case({"image": {"seed": 1, "width": 67, "height": 43}}, {}))
    sound = vectors.made(vectors.Case({"sound": {"rate": 44_100, "samples": 1001}}, {}))["array"]

    assert sha256(image.data)[:16] == "85c95c2b041c5e8e"
    assert (len(sound), sound[0], min(sound) >= -(2**14), max(sound) < 2**14) == (1001, -16384, True, True)
    assert sha256(sound.tobytes())[:16] == "91b5a6a71a11df7d"


def of_texts(task: str, *outputs: dict[str, Any]) -> Definition:
    document = {"version": 1, "inputs": {"*": [{"step": "text.tokenize"}]}, "outputs": list(outputs)}
    return read_definition(task, document)


def test_other_texts_are_asked_about_in_the_form_of_the_task() -> None:
    texts = ["one two three", "four five six"]
    masked = vector_making.cases_for(of_texts("fill-mask", {"step": "post.fill_mask", "mask": "<m>"}), texts)
    asked = vector_making.cases_for(of_texts("question-answering", {"step": "post.answer_span"}), texts)
    ranked = vector_making.cases_for(of_texts("text-ranking", {"step": "post.tensor"}), texts)

    assert [case.raw["value"] for case in masked[1:]] == ["one <m> three", "four <m> six"]
    assert {case.raw["value"]["context"] for case in asked} == set(texts)
    assert ranked[0].raw["value"]["documents"][1:] == texts


def test_every_kind_of_text_gets_its_own_inputs() -> None:
    def cases(task: str, *outputs: dict[str, Any]) -> list[vectors.Case]:
        return vector_making.cases_for(of_texts(task, *outputs))

    assert cases("fill-mask", {"step": "post.fill_mask", "mask": "<m>"})[0].raw["value"].count("<m>") == 1
    assert "context" in cases("question-answering", {"step": "post.answer_span"})[0].raw["value"]
    assert "documents" in cases("text-ranking", {"step": "post.tensor"})[0].raw["value"]
    assert cases("zero-shot-classification", {"step": "post.tensor"})[0].arguments["candidate_labels"]


def test_a_sound_by_log_mel_is_compared_by_values(tmp_path: Path) -> None:
    from onnx import helper

    model = zoo.model(
        [helper.make_node("ReduceMean", ["mel", "axes"], ["logits"], keepdims=0)],
        [zoo.value("mel", [1, "frames", 80])],
        [zoo.value("logits", [1, 80])],
        {"axes": np.array([1])},
    )
    (tmp_path / "model.onnx").write_bytes(model)
    chain = [{"step": "audio.decode"}, {"step": "audio.resample", "rate": 16000}, {"step": "audio.log_mel"}]
    (tmp_path / "steps.json").write_text(json.dumps({"inputs": {"mel": chain}}))
    options: dict[str, Any] = {"task": "audio-classification", "preprocess": str(tmp_path / "steps.json")}
    convert(tmp_path / "model.onnx", tmp_path / "m.bundle", precision="fp32", format="onnx", **options)

    document = json.loads((tmp_path / "m.bundle" / vectors.PATH).read_text("utf-8"))
    run = document["cases"][1]["runs"][0]["mel"]
    assert "sha256" not in run
    assert 100 < len(run["values"]) <= 256
    assert verify(tmp_path / "m.bundle")[0] == 0

    def louder(found: Any) -> Any:
        found["cases"][1]["runs"][0]["mel"]["values"][7] += 1e-3
        return found

    path = changed(tmp_path / "m.bundle", tmp_path / "b", vectors.PATH, louder)
    assert "case 1: the tensor `mel` differs" in verify(path)[1]


def test_a_variant_that_answered_otherwise_is_compared_with_itself(bundles: Path) -> None:
    bundle = Bundle.open(bundles / "images.bundle")
    found = vectors.read(bundle)
    assert found is not None
    other = [[{"label": one["label"], "score": one["score"] + 0.1} for one in answer] for answer in found.answers]
    given = {"onnx/fp32": found.answers, "onnx/fp16": found.answers, "onnx/int8": other}

    document = json.loads(vector_making.write(bundle, found.cases, given, "onnx/fp32"))

    assert [list(case["own"]) for case in document["cases"]] == [["onnx/int8"]] * 3
    own = found._replace(own={"onnx/int8": other})
    with edge_infer.pipeline(bundle) as classify:
        assert vectors.check_answers(classify, own, "onnx/fp16") == []
        assert len(vectors.check_answers(classify, own, "onnx/int8")) == 3


def test_a_detector_is_asked_so_that_it_finds_something(tmp_path: Path) -> None:
    output = np.zeros((1, 6, 21), np.float32)
    output[0, :, 4] = [32, 32, 16, 8, 0.1, 0.2]
    (tmp_path / "m.onnx").write_bytes(hub_folders.fixed_outputs(64, {"output0": output}, "images"))

    convert(tmp_path / "m.onnx", tmp_path / "m.bundle", precision="fp32", format="onnx", preprocess="yolo")

    case = json.loads((tmp_path / "m.bundle" / vectors.PATH).read_text("utf-8"))["cases"][0]
    assert case["arguments"] == {"threshold": 0.1}
    assert [one["label"] for one in case["answer"]] == ["LABEL_1"]
    assert verify(tmp_path / "m.bundle")[0] == 0


# -- answers --


def box(left: float, score: float = 0.9, label: str = "cat") -> dict[str, Any]:
    sides = {"xmin": left, "ymin": 0.0, "xmax": left + 100, "ymax": 50.0}
    return {"score": score, "label": label, "box": sides}


def classes(**scores: float) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in sorted(scores.items(), key=lambda one: -one[1])]


def entity(kind: str, score: float) -> dict[str, Any]:
    return {"entity": kind, "score": score, "start": 0, "end": 3}


def test_answers_may_differ_by_what_engines_differ_by() -> None:
    alike = [
        ([box(0), box(200, 0.51)], [box(2, 0.89)]),
        (classes(cat=0.5, dog=0.49), classes(dog=0.5, cat=0.49, cow=0.01)),
        ([], []),
        ({"score": 0.03, "start": 0, "end": 3, "answer": "one"}, {"score": 0.02, "start": 5, "end": 6, "answer": "x"}),
        (
            [
                {"entity": "PER", "score": 0.9, "start": 0, "end": 3},
                {"entity": "LOC", "score": 0.5, "start": 4, "end": 5},
            ],
            [{"entity": "PER", "score": 0.91, "start": 0, "end": 3}],
        ),
        (
            {"sequence": "x", "labels": ["a", "b"], "scores": [0.51, 0.49]},
            {"sequence": "x", "labels": ["b", "a"], "scores": [0.5, 0.5]},
        ),
        ([{"start": 0.1, "end": 0.5, "score": 0.9}], [{"start": 0.11, "end": 0.5, "score": 0.9}]),
    ]
    for expected, got in alike:
        assert difference(expected, got, 0.5) == "", (expected, got)


def test_answers_that_differ_by_more_are_told_apart() -> None:
    other = [
        ([box(0)], [box(6)], "is missing"),
        ([box(0)], [box(0, label="dog")], "'cat' at 0.900 is missing"),
        ([], [box(0)], "is not expected"),
        (classes(cat=0.9, dog=0.1), classes(dog=0.9, cat=0.1), "'cat' has 0.100"),
        (classes(cat=0.9), classes(dog=0.9), "is missing"),
        (classes(cat=0.02, dog=0.019), classes(dog=0.5, cat=0.02), "'dog' has 0.500"),
        (
            [entity("PER", 0.9)],
            [entity("LOC", 0.9)],
            "'PER' from 0 to 3",
        ),
        (
            {"score": 0.9, "start": 0, "end": 3, "answer": "one"},
            {"score": 0.9, "start": 5, "end": 6, "answer": "x"},
            "'x'",
        ),
        ([{"start": 0.1, "end": 0.5}], [], "expected"),
        (classes(cat=0.9), "cat", "another form"),
    ]
    for expected, got, said in other:
        assert said in difference(expected, got, 0.5), (expected, got)


def test_vectors_and_masks_are_compared_by_values_and_overlap() -> None:
    def tensor(*values: float) -> Any:
        return plain(Tensor(np.array(values, np.float32).tobytes(), DType.FLOAT32, (len(values),)))

    def mask(rows: int) -> Any:
        return plain(
            [
                {
                    "label": "sky",
                    "score": None,
                    "mask": Image(bytes([255] * 32 * rows + [0] * 32 * (32 - rows)), 32, 32, 1),
                }
            ]
        )

    assert difference(tensor(1, 0.5), tensor(1.01, 0.51)) == ""
    assert "a value is" in difference(tensor(1, 0.5), tensor(0.5, 1))
    assert "shape [1]" in difference(tensor(1, 0.5), tensor(1))
    assert difference(mask(20), mask(20)) == ""
    assert "the mask of 'sky'" in difference(mask(20), mask(10))
