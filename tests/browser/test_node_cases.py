"""The ONNX backend node tests through `import onnxruntime` in the page: every case passes or is excused by name."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import node_cases
from tests.support.browser.node_cases import NodeCase

if TYPE_CHECKING:
    from tests.support.browser.pages import PagePython

pytestmark = pytest.mark.long
_BATCH = 100
_RUN = """
import base64
import edge_infer.compat
edge_infer.compat.install()
import onnxruntime as ort
from edge_infer import Tensor

def tensor(described):
    dtype, shape, data = described
    return Tensor(data if dtype == "string" else base64.b64decode(data), dtype, shape)

def described(value):
    is_text = value.dtype == "string"
    data = value.reshape(-1).tolist() if is_text else base64.b64encode(value.data()).decode()
    return [str(value.dtype), list(value.shape), data]

def run_case(case):
    try:
        session = ort.InferenceSession(base64.b64decode(case["model"]))
        results = session.run(None, {name: tensor(value) for name, value in case["inputs"].items()})
        return [described(value) for value in results]
    except Exception as error:
        return f"{type(error).__name__}: {error}"

{case["name"]: run_case(case) for case in cases}
"""


@pytest.fixture(scope="module")
def failures(python: PagePython) -> dict[str, str]:
    """What each case that does not pass says; an empty text for those that do."""
    found: dict[str, str] = {}
    cases: list[NodeCase] = []
    for case in node_cases.collect():
        if isinstance(case, NodeCase):
            cases.append(case)
        else:
            found[case[0]] = case[1]
    for start in range(0, len(cases), _BATCH):
        batch = cases[start : start + _BATCH]
        answers: dict[str, Any] = python.run(_RUN, cases=[case.to_json() for case in batch])
        for case in batch:
            answer = answers[case.name]
            found[case.name] = answer if isinstance(answer, str) else node_cases.difference(case, answer)
    return found


def test_every_case_passes_or_is_excused(failures: dict[str, str]) -> None:
    excused = node_cases.excused()

    assert {name: said for name, said in failures.items() if said and name not in excused} == {}


def test_no_excused_case_passes(failures: dict[str, str]) -> None:
    assert [name for name in node_cases.excused() if not failures.get(name, "no such case")] == []


def test_the_excuse_list_says_how_many_pass(failures: dict[str, str]) -> None:
    counts = tomllib.loads(node_cases.EXCUSED.read_text("utf-8"))["counts"]
    passed = sum(not said for said in failures.values())

    assert {"cases": len(failures), "passed": passed} == counts
    assert passed >= 1330
