"""Vectors of Whisper and T5: made at conversion, run by `verify`, and what they notice."""

from __future__ import annotations

import json
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from edge_infer import Bundle
from edge_infer.cli import cli
from edge_infer.errors import BundleError, InputError
from edge_infer.generation.vectors import NAME, read_vectors
from edge_infer.verify.generation import generation_rows
from edge_infer_converters import convert
from edge_infer_converters.measure import generation_vectors
from tests.support.generation import pair_folders

if TYPE_CHECKING:
    from collections.abc import Callable

_PROVE = Path(__file__).parents[1] / "tasks/prove.mjs"


def make(folder: Path, kind: str) -> Path:
    folder = pair_folders.write_pair(folder / kind, kind)
    return convert(folder, folder.with_suffix(".bundle")).path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("text"), "flan")


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sound"), "whisper")


def changed(made: Path, folder: Path, name: str, change: Callable[[Any], None]) -> Bundle:
    """Copy a bundle with one of its JSON files changed, and the manifest told so."""
    shutil.copytree(made, folder)
    value = json.loads((folder / name).read_text())
    change(value)
    (folder / name).write_text(json.dumps(value))
    manifest = json.loads((folder / "manifest.json").read_text())
    data = (folder / name).read_bytes()
    for entry in manifest["files"]:
        if entry["path"] == name:
            entry |= {"size": len(data), "sha256": sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Bundle.open(folder)


@pytest.mark.parametrize("kind", ["made", "heard"])
def test_verify_runs_them(request: pytest.FixtureRequest, kind: str) -> None:
    run = CliRunner().invoke(cli, ["verify", str(request.getfixturevalue(kind)), "--json"])

    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert said["passed"] is True
    assert [(row["variant"], row["vectors"], row["verdict"]) for row in said["generation"]] == [
        ("onnx/fp32", 1, "ok"),
        ("onnx/int8", 1, "ok"),
    ]
    assert said["generation"][0]["tokens"] == 12


def test_verify_runs_them_on_the_engines_that_are_asked_for(made: Path) -> None:
    run = CliRunner().invoke(cli, ["verify", str(made), "--backend", "onnxruntime", "--backend", "reference", "--json"])

    assert run.exit_code == 0, run.output
    assert [(row["backend"], row["variant"], row["verdict"]) for row in json.loads(run.stdout)["generation"]] == [
        ("onnxruntime", "onnx/fp32", "ok"),
        ("onnxruntime", "onnx/int8", "ok"),
        ("reference", "onnx/fp32", "ok"),
        ("reference", "onnx/int8", "ok"),
    ]


def test_an_engine_that_reads_none_of_the_variants_is_refused(made: Path) -> None:
    run = CliRunner().invoke(cli, ["verify", str(made), "--backend", "litert"])

    assert run.exit_code != 0
    assert "reads `tflite`, none of the variants" in str(run.exception)


def test_a_text_or_a_sound_is_asked(made: Path, heard: Path) -> None:
    assert all(one.prompt and one.sound is None for one in read_vectors(Bundle.open(made)))
    for one in read_vectors(Bundle.open(heard)):
        assert (one.prompt, one.ids) == (None, [261, 262, 265, 268])
        assert one.logits is not None
        assert [value for _, value in one.logits] == sorted((value for _, value in one.logits), reverse=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one[0]["tokens"].__setitem__(3, 7), "greedy token 3 is"),
        (lambda one: one[0]["tokens"].append(7), "expected 13"),
        (lambda one: one[0]["ids"].pop(), "has other tokens"),
        (lambda one: one[0].update(text="Hello"), "the greedy text differs"),
        (lambda one: one[0]["logits"][0].__setitem__(1, one[0]["logits"][0][1] + 0.1), "the first logit of token"),
        (lambda one: one[0]["logits"][0].__setitem__(0, 99_999), "the first logit of token 99999 is None"),
        (lambda one: one[0]["options"].update(max_tokens=2), "there are 2 greedy tokens, expected 12"),
    ],
)
def test_what_differs_is_said(made: Path, tmp_path: Path, change: Callable[[Any], None], said: str) -> None:
    bundle = changed(made, tmp_path / "other.bundle", NAME, change)

    row = generation_rows(bundle, [bundle.manifest.variant("onnx/fp32")])[0]

    assert row.verdict == "fail"
    assert said in row.reason


def test_other_weights_are_noticed(made: Path, tmp_path: Path) -> None:
    def change(manifest: Any) -> None:
        of = {one["id"]: one for one in manifest["variants"]}
        of["onnx/fp32"]["file"] = of["onnx/int8"]["file"]

    bundle = changed(made, tmp_path / "other.bundle", "manifest.json", change)

    row = generation_rows(bundle, [bundle.manifest.variant("onnx/fp32")])[0]
    assert row.verdict == "fail"


@pytest.mark.parametrize(
    "change",
    [
        {"sound": [1]},
        {"sound": {"rate": 8, "samples": 8}, "prompt": "both"},
        {"prompt": None, "sound": None},
        {"logits": [["a", 1.0]]},
        {"logits": [[1]]},
        {"logits": 5},
        {"options": {"max_tokens": "many"}},
    ],
)
def test_damaged_vectors_are_refused(made: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    bundle = changed(made, tmp_path / "other.bundle", NAME, lambda one: one[0].update(change))

    with pytest.raises(BundleError, match="is not a file of vectors"):
        read_vectors(bundle)


def test_a_sound_of_a_model_of_texts_and_back_is_a_failure(made: Path, heard: Path, tmp_path: Path) -> None:
    def to_sound(one: Any) -> None:
        del one[0]["prompt"]
        one[0]["sound"] = {"rate": 16_000, "samples": 16_001}

    def to_text(one: Any) -> None:
        del one[0]["sound"]
        one[0]["prompt"] = "a text"

    for place, change in ((made, to_sound), (heard, to_text)):
        bundle = changed(place, tmp_path / change.__name__, NAME, change)
        assert generation_rows(bundle, [bundle.manifest.variant("onnx/fp32")])[0].verdict == "fail"


def test_other_tokens_of_a_sound_are_noticed(heard: Path, tmp_path: Path) -> None:
    bundle = changed(heard, tmp_path / "other.bundle", NAME, lambda one: one[0]["tokens"].__setitem__(1, 7))

    row = generation_rows(bundle, [bundle.manifest.variant("onnx/fp32")])[0]
    assert row.reason == "greedy token 1 is 155, expected 7"


def test_an_encoder_alone_proves_nothing_and_limits_are_refused(made: Path) -> None:
    run = CliRunner().invoke(cli, ["verify", str(made), "--variant", "onnx/encoder-fp32"])
    assert run.exit_code == 1
    refused = CliRunner().invoke(cli, ["verify", str(made), "--min-cosine", ".9"])
    assert isinstance(refused.exception, InputError)


def test_a_bundle_without_vectors_is_made_where_no_engine_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_folder: Path) -> bytes:
        raise InputError("no engine here")

    monkeypatch.setattr(generation_vectors, "make_sequences", refuse)
    folder = pair_folders.write_pair(tmp_path / "t5", "t5")

    result = convert(folder, tmp_path / "t5.bundle")

    assert "vectors" not in (Bundle.open(result.path).manifest.generate or {})
    run = CliRunner().invoke(cli, ["verify", str(result.path)])
    assert run.exit_code == 1
    assert "skip: the bundle has no vectors of it" in run.stdout


def test_javascript_proves_a_pair_by_them(made: Path, heard: Path, tmp_path: Path) -> None:
    def wrong(entries: list[dict[str, Any]]) -> None:
        entries[0]["tokens"][-1] ^= 1  # of fp32, which a page takes first

    bundles = [made, heard, *(tmp_path / name for name in ("text", "sound", "none"))]
    for bundle, place in zip(bundles, bundles[2:4], strict=False):
        changed(bundle, place, NAME, wrong)
    changed(made, bundles[4], NAME, lambda entries: entries.clear())

    run = subprocess.run(["node", _PROVE, "--load", *bundles], capture_output=True, text=True, check=True)

    text, sound, wrong_text, wrong_sound, absent = json.loads(run.stdout)
    assert (text, sound) == (None, None)
    assert "does not give the bundle's answer here: greedy token" in wrong_text["message"]
    assert "does not give the bundle's answer here: greedy token" in wrong_sound["message"]
    assert "cannot prove itself" in absent["message"]
