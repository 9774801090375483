"""The node tests of the ONNX standard, written as TFLite and run on LiteRT; those that fail are excused by name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.converters import onnx_nodes

pytestmark = pytest.mark.long
_EXCUSED = Path(__file__).with_name("excused_tflite_nodes.toml")


def excused() -> dict[str, str]:
    """Return the reason for each case that need not pass."""
    groups = tomllib.loads(_EXCUSED.read_text("utf-8"))["group"]
    return {name: group["reason"] for group in groups for name in group["cases"]}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    return {case.name: onnx_nodes.judge(case) for case in onnx_nodes.cases()}


def test_every_case_passes_or_is_excused(verdicts: dict[str, str]) -> None:
    failed = {name: said for name, said in verdicts.items() if said and name not in excused()}

    assert failed == {}


def test_no_case_is_excused_that_passes(verdicts: dict[str, str]) -> None:
    passing = sorted(name for name in excused() if verdicts.get(name) == "")

    assert passing == []


def test_excused_cases_are_refused_and_never_wrong(verdicts: dict[str, str]) -> None:
    """What the writer cannot write it says; it writes no file that gives other numbers."""
    wrong = {name: said for name, said in verdicts.items() if said and not said.startswith("refused: ")}

    assert wrong == {}


def test_most_of_the_standard_is_covered(verdicts: dict[str, str]) -> None:
    passed = sum(not said for said in verdicts.values())

    assert passed >= 700, f"{passed} of {len(verdicts)}"
