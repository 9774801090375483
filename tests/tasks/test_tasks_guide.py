"""The guide to tasks prints, in Python, what stands behind its lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.tasks.registry import OWN
from tests.support.tasks.each_task import write_all

if TYPE_CHECKING:
    import pytest

GUIDE = Path(__file__).parents[2] / "docs/guide/tasks.md"


def test_each_task_prints_what_stands_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"## (\S+)\n\n```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert sorted(task for task, _ in blocks) == sorted(task.name for task in OWN)

    for task, code in blocks:
        expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
        assert len(expected) == 1, task
        exec(compile(code, task, "exec"), {})
        assert capsys.readouterr().out.splitlines() == expected, task
