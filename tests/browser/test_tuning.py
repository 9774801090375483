"""Measuring in the page: its engine has no threads to choose, and what was measured lasts as long as the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import PagePython

pytestmark = pytest.mark.browser


def test_a_page_measures_its_variants_and_loads_the_best(python: PagePython, server: str) -> None:
    variants, path, why, loaded, best = python.run(
        """
import edge_infer
from edge_infer import remembered
tuning = edge_infer.tune(url, max_time_s=0.2, backend="ort-web")
with edge_infer.load(url) as session:
    report = session.report()
remembered._IN_PAGE.clear()
[sorted(row.variant for row in tuning.rows), tuning.path, report.why, report.variant, tuning.best.variant.id]
""",
        url=f"{server}/models/digits",
    )

    assert variants == ["onnx/fp16", "onnx/fp32", "onnx/int8"]
    assert path is None
    assert why.startswith("measured: the fastest of 3 ways")
    assert loaded == best
