"""The options of `load`, as one immutable record."""

from __future__ import annotations

from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from edge_infer.backends.base import EngineOptions


class Wishes(Record):
    """What the caller of `load` asked for."""

    device: str
    backend: str | None
    variant: str | None
    threads: int | None
    latency_budget_ms: float | None
    tune: bool
    strict: bool
    self_test: bool
    arrays: str
    options: EngineOptions | None
    fallback: str | None
