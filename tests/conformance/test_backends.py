"""Every case on every native ONNX engine; `tests/browser` runs the same cases in the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.backends.registry import get_backend
from tests.support.conformance.cases import CASES, EXCUSED, Case, agrees

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel

ENGINES = ["onnxruntime", "reference"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", ENGINES)
def test_an_engine_computes_what_is_right(case: Case, backend: str, write_model: WriteModel) -> None:
    path = write_model(case.model)
    reason = EXCUSED[backend].get(case.name)

    if reason is None:
        assert agrees(case, backend, path)
        return
    try:
        passes = agrees(case, backend, path)
    except edge_infer.EdgeInferError:
        passes = False
    assert not passes, f"{case.name} passes on {backend}: take it out of excused.toml ({reason})"


@pytest.mark.parametrize("backend", ENGINES)
def test_the_engine_is_here(backend: str) -> None:
    """Without this a missing engine would leave the suite green."""
    assert get_backend(backend).availability().ready
