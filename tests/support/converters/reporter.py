"""A reporter that remembers what a conversion said."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Told:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.warnings: list[str] = []
        self.hints: list[str] = []
        self.jobs: list[str] = []
        self.totals: list[int | None] = []

    def talk(self, text: str) -> None:
        self.steps.append(text)

    def warn(self, text: str, hint: str) -> None:
        self.warnings.append(text)
        self.hints.append(hint)

    @contextmanager
    def progress(self, text: str, total: int | None) -> Iterator[Callable[[int], None]]:
        self.jobs.append(text)
        self.totals.append(total)
        yield lambda _steps: None
