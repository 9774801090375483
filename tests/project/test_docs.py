"""Documents that cannot lie: generated pages equal the code, examples in them run, links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[2]
MARKDOWN = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    if "node_modules" not in path.parts
]
#: Pages that hold measurements and counts, which no test can take again, or only one of its own.
MEASURED = {"c_models.md", "real_models.md", "estimators.md", "tests.md"}


@pytest.mark.parametrize("name", sorted({path.name for path in ROOT.glob("docs/reference/*.md")} - MEASURED))
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    # In an interpreter of its own: click remembers how a command was first called.
    page = subprocess.run([sys.executable, "docs/generate.py", name], cwd=ROOT, capture_output=True, check=True).stdout

    assert (ROOT / "docs/reference" / name).read_bytes() == page, "run `make docs`"


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readmes_python_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The comments behind its prints are what it prints."""
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    expected = re.findall(r"print\(.*\)\s+# (.*)", code)

    exec(compile(code, "README.md", "exec"), {})

    assert capsys.readouterr().out.splitlines() == expected
    assert len(expected) == 2


@pytest.mark.parametrize(
    "name",
    ["edge_infer.tensors.tensor", "edge_infer.runtime.session", "edge_infer.runtime.load", "edge_infer.runtime.tuning"],
)
def test_the_examples_in_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(name)

    results = doctest.testmod(module, extraglobs={"load": importlib.import_module("edge_infer").load})

    assert results.attempted > 0
    assert results.failed == 0


def test_the_readme_names_every_command() -> None:
    """A command that nobody can find is not there."""
    from edge_infer.cli import cli

    text = (ROOT / "README.md").read_text("utf-8")
    for command in cli.list_commands(click.Context(cli)):
        assert f"edge-infer {command}" in text
