"""The guide to pipelines does what it says: its commands make the bundle, its lines print what stands behind them."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_infer.cli import main_here

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide/pipelines.md").read_text("utf-8")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Run a command line in this process."""

    def run(line: str) -> int:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main_here()
        return int(ended.value.code or 0)

    return run


def test_its_commands_and_lines_give_what_they_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str], int],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "astronaut.jpg").symlink_to(ROOT / "examples/faces/astronaut.jpg")
    (lines,) = re.findall(r"```sh\n(edge-infer convert.*?)```", GUIDE, re.DOTALL)
    for line in lines.replace("\\\n", " ").splitlines():
        assert command(line.partition("#")[0]) == 0, capsys.readouterr().err
    assert (tmp_path / "found.png").stat().st_size > 10_000
    capsys.readouterr()

    code = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[0]
    expected = re.findall(r"print\(.*\)\s+# (.*)", code)
    exec(compile(code, "pipelines.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == expected
    assert len(expected) == 2
