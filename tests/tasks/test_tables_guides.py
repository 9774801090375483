"""The guides to tables and to drift do what they say: commands and Python are run, from the files."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from edge_infer.cli import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)( file=(\S+))?\n(.*?)^```$", re.M | re.S)


def run_blocks(guide: str, names: dict[str, Any]) -> list[str]:
    """Run the blocks in their order, and return what the prints should have said."""
    expected: list[str] = []
    for kind, _, file, code in BLOCK.findall((ROOT / "docs/guide" / guide).read_text("utf-8")):
        if file:
            Path(file).write_text(code, "utf-8")
        elif kind == "sh":
            for line in code.splitlines():
                done = CliRunner().invoke(cli, shlex.split(line)[1:])
                assert done.exit_code == 0, (line, done.output, done.exception)
        else:
            expected += re.findall(r"^ *print\(.*\)  # (.*)$", code, re.M)
            exec(compile(code, guide, "exec"), names)
    return expected


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("risk", None)


def test_the_guides_do_what_they_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    capsys.readouterr()
    expected = run_blocks("tables.md", names)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line in expected] == expected

    people = names["people"]
    people(1500, 7).to_parquet("monday.parquet")
    older = people(1500, 8)
    older["age"] += 30
    older.to_parquet("tuesday.parquet")
    expected = run_blocks("drift.md", {})
    assert capsys.readouterr().out.splitlines()[-1:] == expected
    assert "The data have changed" in (folder / "report.html").read_text("utf-8")


def test_the_callable_for_ray_adds_the_answers_to_a_batch(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from tests.support.tasks import tables

    names: dict[str, Any] = {"__name__": "example"}
    exec(compile((ROOT / "examples/tables/ray_batches.py").read_text("utf-8"), "ray_batches.py", "exec"), names)
    batch = pyarrow.table(tables.rows(50))

    found = names["Predict"](str(tables.risk(folder / "risk.bundle")))(batch)

    assert found.column_names == [*batch.column_names, "label", "score"]
    assert found.num_rows == 50
