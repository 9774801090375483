"""Write docs/reference/tests.md: how many tests each folder has, and each conformance suite and hostile corpus.

    EDGE_INFER_ZOO=FOLDER python docs/suites.py

It collects the whole suite, which takes a minute, so that docs/generate.py leaves it out;
`tests/project/test_suites_page.py` says when a file is missing.
"""

from __future__ import annotations

import ast
import datetime
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/tests.md"
TABLES = {
    "conformance": "Conformance: the same cases on every engine, and other people's suites",
    "hostile": "Hostile: what somebody damaged or made to harm",
}
"""Folders of which each file has a row, by the heading of their table."""
BEYOND = {
    "conformance": (
        "browser/test_node_cases.py",
        "browser/test_tflite_conformance.py",
        "sync/test_tuf_conformance.py",
        "tasks/test_tokenizers.py",
        "zoo/test_conversions.py",
        "zoo/test_models.py",
    ),
    "hostile": (
        "browser/test_bad_pages.py",
        "browser/test_studio_bad_input.py",
        "sync/test_power.py",
        "vectors/test_kills.py",
    ),
}
"""Files of other folders that belong into a table."""
FOLDERS = {
    "bench": "what `edge-infer bench` measures and compares",
    "browser": "pages in Chromium, the main paths in Firefox and WebKitGTK, too",
    "chains": "models and indexes that feed one another",
    "compat": "bundles, stores and packs that earlier versions wrote",
    "conformance": "the engines against each other",
    "converters": "conversions, each compared with its source",
    "device": "what devices run; `make pi` runs it on emulated Raspberry Pis",
    "doctor": "what `edge-infer doctor` finds",
    "generation": "models that generate text",
    "gpu": "CUDA; skipped without a GPU",
    "hostile": "damaged and malicious files, requests and clients",
    "kernels": "compiled models and their kernels",
    "monitor": "drift",
    "project": "documents, packages, rooms, sizes",
    "runtime": "`load`, sessions, bundles, formats",
    "server": "the server and its protocols",
    "slim": "folders for a bare Python",
    "sync": "stores, devices, updates",
    "tasks": "pipelines and tokenizers",
    "vectors": "search",
    "zoo": "models of other people, where `EDGE_INFER_ZOO` names their folder",
}
_HEAD = """\
<!-- Written by docs/suites.py; do not edit. -->

# What is tested

`make test` runs the tests without the mark `long`, and `make check-all` the rest; CI runs both on each change. Counted
on {date}: {all} tests, of which {long} are long and {browser} need a browser. Tests of JavaScript alone (`make web`)
come on top. One test may run many cases: that of ONNX's node tests in a page runs [all of them](node_tests.md).

"""


class _Counted:
    """A plugin of pytest that keeps what was collected."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.long: Counter[str] = Counter()
        self.browser = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            file = item.path.relative_to(ROOT / "tests").as_posix()
            self.all[file] += 1
            self.long[file] += item.get_closest_marker("long") is not None
            self.browser += item.get_closest_marker("browser") is not None


def rows_of(folder: str) -> list[str]:
    """Return the files that have a row in the table of a folder, below `tests/`."""
    own = sorted(f"{folder}/{path.name}" for path in (ROOT / "tests" / folder).glob("test_*.py"))
    return [*own, *BEYOND[folder]]


def page() -> str:
    """Return the whole page."""
    counted = _Counted()
    pytest.main(["--collect-only", "-qq", "-m", "", str(ROOT / "tests")], plugins=[counted])
    today = datetime.datetime.now(tz=datetime.UTC).date()
    head = _HEAD.format(date=today, all=counted.all.total(), long=counted.long.total(), browser=counted.browser)
    return head + _folders(counted) + "".join(_table(name, title, counted) for name, title in TABLES.items())


def _folders(counted: _Counted) -> str:
    lines = ["| folder of `tests/` | what | tests | of which long |", "|---|---|---:|---:|"]
    for folder, what in FOLDERS.items():
        files = [file for file in counted.all if file.startswith(f"{folder}/")]
        lines.append(f"| `{folder}` | {what} | {_sum(counted.all, files)} | {_sum(counted.long, files)} |")
    return "\n".join(lines) + "\n"


def _table(folder: str, title: str, counted: _Counted) -> str:
    lines = [f"\n## {title}\n", "| file of `tests/` | what | tests |", "|---|---|---:|"]
    for file in rows_of(folder):
        module = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
        what = (ast.get_docstring(module) or "").partition("\n")[0].rstrip(".").replace("|", "\\|")
        lines.append(f"| `{file}` | {what} | {counted.all[file]} |")
    return "\n".join(lines) + "\n"


def _sum(counts: Counter[str], files: list[str]) -> int:
    return sum(counts[file] for file in files)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
