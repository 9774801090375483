"""What conversions under test leave out: a process that tries whether an engine crashes, half a second for each."""

from __future__ import annotations

import pytest

from edge_infer_converters.measure import variants


@pytest.fixture
def crash_test() -> None:
    """Let conversions try their variants in a process of their own first, as those of users do."""


@pytest.fixture(autouse=True)
def _no_crash_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model here crashes its engine; `test_pipeline.py` and `tests/hostile` keep the crash test."""
    if "crash_test" not in request.fixturenames:
        monkeypatch.setattr(variants, "crashing", lambda _bundle, _ids: [])
