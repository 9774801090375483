"""The options of `load` as one immutable record."""

from __future__ import annotations

import os

from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edge_infer.backends.base import EngineOptions
    from edge_infer.bundle.keys import KeySource


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
    key: KeySource = None

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        if isinstance(self.key, bytes):
            from edge_infer.bundle.keys import KeyRing

            self.__dict__["key"] = KeyRing.of(self.key)  # which shows the key to no log


DEFAULTS = LoadOptions()


def from_environment(asked: LoadOptions) -> LoadOptions:
    """Return options with the backend and the device of the environment where the caller leaves them open.

    `EDGE_INFER_BACKEND` and `EDGE_INFER_DEVICE` name them. Settings of one engine (`options`) and a stated backend or
    device outrank them.
    """
    if asked.options is not None:
        return asked
    backend = asked.backend or os.environ.get("EDGE_INFER_BACKEND") or None
    device = os.environ.get("EDGE_INFER_DEVICE") or "auto" if asked.device == "auto" else asked.device
    return asked._replace(backend=backend, device=device)
