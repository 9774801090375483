"""The table of variants in the terminal."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edge_infer.parity.comparison import Parity, Verdict
from edge_infer_converters.report.terminal import print_table

if TYPE_CHECKING:
    import pytest


def variant(parity: Parity) -> Any:
    quality = SimpleNamespace(parity=parity, verdict=Verdict("warn", ""))
    return SimpleNamespace(
        variant=SimpleNamespace(id="onnx/int8"), nbytes=10, quality=quality, is_kept=True, latency=None
    )


def test_outputs_of_integers_are_told_in_steps_and_never_exact_where_they_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    off, same = Parity(0.0, inf, 1.0, 1.0, 4, steps=3.0), Parity(0.0, inf, 1.0, 1.0, 4)
    conversion: Any = SimpleNamespace(metric="", variants=[variant(off), variant(same)], not_made={})

    print_table(conversion)

    _, first, second = capsys.readouterr().out.splitlines()
    assert "3 steps" in first
    assert "exact" not in first
    assert "exact" in second
