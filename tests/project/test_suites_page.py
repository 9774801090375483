"""The table of suites and corpora names each file of them, and each folder of tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/reference/tests.md").read_text("utf-8")
NAMED = set(re.findall(r"^\| `(.*?)` \|", PAGE, re.M))


@pytest.mark.parametrize("folder", ["conformance", "hostile"])
def test_each_file_of_the_folder_has_a_row(folder: str) -> None:
    files = {f"{folder}/{path.name}" for path in (TESTS / folder).glob("test_*.py")}

    assert files <= NAMED, "`make docs` writes the page again"


def test_each_folder_of_tests_has_a_row() -> None:
    assert {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")} <= NAMED
