"""Compare a benchmark with an older one: ratios, and the rows that are worse by more than their spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tools.bench.rows import Row

# What a figure may change by without meaning anything, however small the spread: clocks, caches, memory pages.
_FLOOR = {"cold_ms": 0.05, "p50_ms": 0.03, "rss_bytes": 0.05, "size_bytes": 0.001}
# Two medians differ for sure when they are this many times both spreads apart.
_SPREADS = 2.0


class Change(NamedTuple):
    """How one figure of one way has changed.

    Attributes:
        variant: The variant's id.
        backend: The engine's name.
        metric: The field of `Row`.
        old: What it was.
        new: What it is.
        ratio: New over old: above 1 is worse.
        allowed: The ratio up to which it counts as the same.
    """

    variant: str
    backend: str
    metric: str
    old: float
    new: float
    ratio: float
    allowed: float

    @property
    def is_worse(self) -> bool:
        """Whether it has become worse beyond what is allowed."""
        return self.ratio > self.allowed


def compare_rows(old: Sequence[Row], new: Sequence[Row], fail_above: float | None = None) -> list[Change]:
    """Compare the rows that both benchmarks have: same variant, engine, device and threads.

    Args:
        old: The rows of the older benchmark.
        new: Those of this one.
        fail_above: The share by which a figure may be worse; None for twice both spreads.
    """
    before = {row.key: row for row in old}
    changes = []
    for row in new:
        was = before.get(row.key)
        for metric in _FLOOR if was is not None else ():
            first, second = getattr(was, metric), getattr(row, metric)
            if first and second is not None:
                allowed = _allowed(metric, was, row) if fail_above is None else fail_above
                changes.append(Change(row.variant, row.backend, metric, first, second, second / first, 1 + allowed))
    return changes


def _allowed(metric: str, old: Row | None, new: Row) -> float:
    field = {"cold_ms": "cold_spread", "p50_ms": "spread"}.get(metric)
    spread = _SPREADS * (getattr(old, field) + getattr(new, field)) if field is not None else 0.0
    return max(_FLOOR[metric], spread)
