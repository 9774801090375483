"""The distance of two engines on one integer model, in quantization steps."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from edge_infer.parity.comparison import dtype_name, flat
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def steps_apart(references: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> float:
    """Measure how far two engines are apart on the same integer model, in quantization steps of each output.

    A step is the distance of neighbouring values that the reference shows, or 1/255 of the range that it spans
    (which 8 bits divide into 255 steps) where that is larger.

    Args:
        references: The outputs of the engine that is right.
        results: The outputs to judge, in the same order and shapes.

    Returns:
        The largest difference over the step, of the worst output; infinite where a shape differs, or a value is finite
        on one side only. Equal infinities and two NaNs agree; strings have no steps and do not count.
    """
    worst = 0.0
    for name, first in references[0].items() if references else ():
        if dtype_name(first) == DType.STRING:
            continue
        wanted, got = _pooled(references, name), _pooled(results, name)
        if len(wanted) != len(got):
            return inf
        finite: list[tuple[float, float]] = []
        for a, b in zip(wanted, got, strict=True):
            if isfinite(a) and isfinite(b):
                finite.append((a, b))
            elif not (a == b or (a != a and b != b)):
                return inf
        largest = max((abs(a - b) for a, b in finite), default=0.0)
        values = sorted({a for a, _ in finite})
        spread = (values[-1] - values[0]) / 255 if values else 0.0
        # Values closer than a thousandth of the spread's step are one value with rounding noise, not two.
        gaps = [b - a for a, b in pairwise(values) if b - a > spread / 1000]
        step = max(min(gaps, default=0.0), spread)
        if largest:
            worst = max(worst, largest / step if step else inf)
    return worst


def _pooled(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(value) for run in runs if name in run for value in flat(run[name])]
