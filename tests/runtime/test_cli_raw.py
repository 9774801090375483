"""`edge-infer run` on raw data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest
from PIL import Image

from edge_infer.cli import main_here
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    Image.new("RGB", (30, 20), (250, 20, 10)).save(tmp_path / "red.png")
    Image.new("RGB", (30, 20), (0, 20, 250)).save(tmp_path / "blue.jpg")
    return pipelines.colours(tmp_path / "colours.bundle")


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["edge-infer", "run", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main_here()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return call


def test_a_photo_is_answered_with_a_table(colours: Path, run: Run) -> None:
    done = run(colours, colours.parent / "red.png", "-a", "top_k=2")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["LABEL", "SCORE"]
    assert [line.split()[0] for line in lines[1:]] == ["red", "green"]


def test_folders_and_patterns_give_a_line_of_json_for_each(colours: Path, run: Run) -> None:
    for asked in (colours.parent, f"{colours.parent}/*.[pj]*g"):
        done = run(colours, asked, "--json", "--argument", "top_k=1")
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [one["answer"][0]["label"] for one in found] == ["blue", "red"]
        assert found[1]["input"].endswith("red.png")


def test_the_answer_is_drawn_into_the_picture(colours: Path, run: Run) -> None:
    target = colours.parent / "out" / "found.png"
    target.parent.mkdir()
    done = run(colours, colours.parent / "red.png", "--save", target)
    assert done.exit_code == 0, done.stderr
    with Image.open(target) as drawn:
        assert drawn.size == (30, 20)
        assert len(drawn.getcolors() or ()) > 1


def test_texts_are_given_as_words_or_lines(tmp_path: Path, run: Run) -> None:
    after = [{"step": "post.pool"}]
    bundle = pipelines.words(tmp_path / "w.bundle", "feature-extraction", after)
    (tmp_path / "lines.txt").write_text("good film\n\nbad film\n")
    done = run(bundle, "good film", tmp_path / "lines.txt", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["input"] for one in found] == ["good film", "good film", "bad film"]
    assert found[0]["answer"] == found[1]["answer"] != found[2]["answer"]


@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        (["none.png"], "there is no file or folder `none.png`", 1),
        (["*.xyz"], "no file is named like", 1),
        (["red.png", "--argument", "top_k"], "expected NAME=VALUE", 2),
        (["red.png", "--argument", "topk=1"], "takes no argument `topk`", 1),
        (["red.png", "blue.jpg", "--save", "x.png"], "--save draws on one image", 1),
        (["red.png", "--input", "x.npy"], "for tensors", 2),
        (["--save", "x.png"], "for raw data", 2),
        (["red.png", "--task", "object-detection"], "is for image-classification", 1),
    ],
)
def test_wrong_command_lines_say_what_to_do(
    colours: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str, code: int
) -> None:
    monkeypatch.chdir(colours.parent)
    done = run(colours, *arguments)
    assert done.exit_code == code, done.stderr
    assert told in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_a_pipe_of_samples_is_listened_to(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    import numpy as np

    noise = np.random.default_rng(2).uniform(-0.9, 0.9, 16_000)
    sound = (np.concatenate([np.zeros(8000), noise, np.zeros(8000)]) * 32767).astype("<i2").tobytes()
    bundle = pipelines.loudness(tmp_path / "loud.bundle")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sound)))
    done = run(bundle, "-", "--json")
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["start"], found["end"]) == (0.5, 1.5)
    assert run(bundle, "--camera", 0).stderr.count("takes a sound") == 1
    assert run(bundle, "--microphone", "--camera", 0).exit_code == 2
