"""Inputs that hold nothing, or too much: an answer, or an error that says what it is."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from PIL import Image

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import InputError
from tests.support.tasks import tables
from tests.support.tasks.pipelines import colours, words

if TYPE_CHECKING:
    from pathlib import Path

_AFTER = [{"step": "post.softmax"}, {"step": "post.top_k"}]


def test_an_empty_text_is_a_text_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = words(tmp_path / "words.bundle", "text-classification", _AFTER, 2, ["x", "y"], pooled=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("good film")
    done = CliRunner().invoke(cli, ["run", str(bundle), "", "--json"])
    assert done.exit_code == 0, done.output
    (line,) = (json.loads(line) for line in done.stdout.splitlines())
    assert line["input"] == ""


def head_of(width: int, height: int) -> bytes:
    """A PNG file whose head says a size, and which holds almost nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "said", "hint"),
    [
        (b"", "cannot be read: it is empty", "JPEG"),
        (b"<svg/>", "of no format that Pillow knows", "JPEG"),
        (head_of(30_000, 30_000), "an image has too many pixels, expected 1 to 100000000 in all", "give a smaller one"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "EPS is a drawing", "JPEG"),
        (head_of(12_000, 12_000), "12000 x 12000 pixels", "give a smaller one"),
    ],
)
def test_no_image_and_too_large_a_one_are_told_apart(data: bytes, said: str, hint: str, tmp_path: Path) -> None:
    ask = edge_infer.pipeline(colours(tmp_path / "colours.bundle"))
    with ask, pytest.raises(InputError, match=said) as caught:
        ask(data)
    assert hint in caught.value.hint
    assert "0x" not in caught.value.message


def test_images_of_extreme_sides_are_answered_or_refused(tmp_path: Path) -> None:
    with edge_infer.pipeline(colours(tmp_path / "colours.bundle")) as ask:
        assert ask(Image.new("RGB", (1, 1), (0, 200, 0)))[0]["label"] == "green"
        for size in ((10_000, 1), (1, 10_000)):  # the shorter side to 8 would make the other one 80,000
            with pytest.raises(InputError, match="would be resized to") as caught:
                ask(Image.new("RGB", size, (0, 200, 0)))
            assert "less extreme proportions" in caught.value.hint


def test_rows_whose_answer_is_nan_are_rejected_and_an_empty_table_says_so(tmp_path: Path) -> None:
    bundle = tables.risk(tmp_path / "risk.bundle")
    rows = ["41,Bern,1", "41,Bern,inf", "41,Bern,NaN", "99999999999999999999999,Bern,1", ",Bern,1"]
    (tmp_path / "rows.csv").write_text("\n".join(["age,city,income", *rows]))
    done = CliRunner().invoke(cli, ["predict", str(bundle), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "o.csv")])
    assert done.exit_code == 1
    assert [line.split(",")[0] for line in (tmp_path / "o.csv").read_text().splitlines()] == ["row", "0", "2"]
    rejects = [json.loads(line) for line in (tmp_path / "o.csv.rejects.jsonl").read_text().splitlines()]
    assert [one["row"] for one in rejects] == [1, 3, 4]
    assert rejects[0]["reason"] == "the model gives NaN"
    (tmp_path / "empty.csv").write_text("")
    done = CliRunner().invoke(cli, ["predict", str(bundle), str(tmp_path / "empty.csv"), "-o", str(tmp_path / "p.csv")])
    assert isinstance(done.exception, InputError)
    assert "begin with a line of names" in done.exception.hint
