"""The options of `load` as one immutable record."""

from __future__ import annotations

from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from edge_infer.backends.base import EngineOptions


class LoadOptions(Record):
    """The options of `edge_infer.load`, which documents each."""

    device: str = "auto"
    backend: str | None = None
    variant: str | None = None
    threads: int | None = None
    latency_budget_ms: float | None = None
    tune: bool = False
    strict: bool = False
    self_test: bool = False
    arrays: str = "auto"
    options: EngineOptions | None = None
    fallback: str | None = None


DEFAULTS = LoadOptions()
