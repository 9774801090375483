"""Vectors of generation: made at conversion, run by `verify`, and what they notice; what `info` says of a decoder."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer import Bundle
from edge_infer.cli import cli
from edge_infer.errors import BundleError, ConversionError
from edge_infer.generation.vectors import NAME, read_vectors
from edge_infer.verify.generation import generation_rows
from edge_infer_converters import convert
from edge_infer_converters.measure import generation_vectors
from tests.support.generation import hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    hub_folders.write_folder(folder / "tiny")
    return convert(folder / "tiny", folder / "tiny.bundle").path


def changed(made: Path, folder: Path, name: str, change: Callable[[Any], None]) -> Path:
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
    return folder


def test_each_variant_has_greedy_and_drawn_tokens_of_a_prompt_and_of_messages(made: Path) -> None:
    found = read_vectors(Bundle.open(made))

    kinds = {(one.variant, one.prompt is None, one.options["temperature"] == 0) for one in found}
    assert kinds == {
        (f"decoder/{word}", chat, greedy) for word in ("int4", "int8") for chat in (0, 1) for greedy in (0, 1)
    }
    assert all(one.tokens and one.ids for one in found)
    with edge_infer.generate(made, variant="decoder/int8") as generator:
        for one in found:
            if one.variant == "decoder/int8" and one.prompt is not None:
                assert list(generator.complete(one.prompt, **one.options).tokens) == one.tokens


def test_verify_runs_them(made: Path) -> None:
    run = CliRunner().invoke(cli, ["verify", str(made), "--json"])

    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert said["passed"] is True
    assert [(row["variant"], row["vectors"], row["verdict"]) for row in said["generation"]] == [
        ("decoder/int4", 4, "ok"),
        ("decoder/int8", 4, "ok"),
    ]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (NAME, lambda one: one[0]["tokens"].__setitem__(3, 7), "greedy token 3 is"),
        (NAME, lambda one: one[0]["tokens"].append(7), "expected 13"),
        (NAME, lambda one: one[2]["options"].update(seed=8), "sampled token"),
        (NAME, lambda one: one[0]["ids"].pop(), "the prompt has other tokens"),
        (NAME, lambda one: one[1].update(rendered="Hello"), "the chat template renders another text"),
        ("tokenizer.json", lambda one: one["model"].update(merges=[]), "other tokens"),
    ],
)
def test_what_differs_is_said(made: Path, tmp_path: Path, name: str, change: Callable[[Any], None], said: str) -> None:
    bundle = Bundle.open(changed(made, tmp_path / "other.bundle", name, change))

    row = generation_rows(bundle, [bundle.manifest.variant("decoder/int4")])[0]

    assert row.verdict == "fail"
    assert said in row.reason


@pytest.mark.parametrize(
    "value", [{}, [1], [{"variant": "a"}], [{"variant": 1, "prompt": "a", "ids": [], "options": {}}]]
)
def test_damaged_vectors_are_refused(made: Path, tmp_path: Path, value: Any) -> None:
    def change(found: list[Any]) -> None:
        found[:] = value if isinstance(value, list) else [value]

    bundle = Bundle.open(changed(made, tmp_path / "other.bundle", NAME, change))

    with pytest.raises(BundleError, match="is not a file of vectors"):
        read_vectors(bundle)


def test_verify_refuses_what_compares_tensors(made: Path) -> None:
    run = CliRunner().invoke(cli, ["verify", str(made), "--min-cosine", ".9", "--backend", "onnxruntime"])

    assert isinstance(run.exception, edge_infer.InputError)
    assert "--backend and --atol" in str(run.exception)


def test_a_template_with_a_clock_gives_prompts_alone(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "clock")
    (folder / "chat_template.jinja").write_text("{{ strftime_now('%d') }}" + hub_folders.TEMPLATE)

    found = read_vectors(Bundle.open(convert(folder, tmp_path / "clock.bundle").path))

    assert {one.prompt is None for one in found} == {False}


def test_a_bundle_without_vectors_is_made_where_the_kernels_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(_folder: Path) -> bytes:
        raise ConversionError("no kernels for s390x")

    monkeypatch.setattr(generation_vectors, "make", make)
    folder = hub_folders.write_folder(tmp_path / "tiny")

    result = convert(folder, tmp_path / "tiny.bundle")

    assert "vectors" not in (Bundle.open(result.path).manifest.generate or {})
    run = CliRunner().invoke(cli, ["verify", str(result.path)])
    assert run.exit_code == 1
    assert "skip: the bundle has no vectors of it" in run.stdout


def test_info_says_what_the_decoder_is(made: Path) -> None:
    shown = CliRunner().invoke(cli, ["info", str(made)]).stdout

    assert "decoder llama, 102.7 k parameters: 2 layers of 64, 4 heads on 2 of 16, MLP 96" in shown
    assert "context 128 tokens; vocabulary 320" in shown
    assert "tokens  begin 1, end 2, 4" in shown
    assert "advised temperature 0.7, top_p 0.9, top_k 40" in shown
    said = json.loads(CliRunner().invoke(cli, ["info", str(made), "--json"]).stdout)
    assert said["decoder"]["layers"] == 2
    assert said["decoder"]["parameters"] == sum(
        one.size for name, one in hub_folders.weights("llama").items() if "rotary" not in name
    )
    assert said["generate"]["kind"] == "decoder/1"
