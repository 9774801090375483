"""The receiver of a conversion's progress, and the words for its figures."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@runtime_checkable
class Reporter(Protocol):
    """The receiver of a conversion's progress and warnings."""

    def talk(self, text: str) -> None:
        """Take note of a step that is done."""

    def warn(self, text: str, hint: str) -> None:
        """Take note of something that the user should know."""

    def progress(self, text: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Follow a long job: the context gives a function that takes how many steps were done."""


class LogReporter:
    """Tells the log: what the library does where no other reporter is given."""

    _log = logging.getLogger("edge_infer_converters")

    def talk(self, text: str) -> None:
        """Log a step."""
        self._log.info("%s", text)

    def warn(self, text: str, hint: str) -> None:
        """Log a warning."""
        self._log.warning("%s (%s)" if hint else "%s%s", text, hint)

    @contextmanager
    def progress(self, text: str, total: int | None) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        """Log the start of a long job."""
        self._log.info("%s", text)
        yield lambda _steps: None


def step(verb: str, what: str, detail: str = "") -> str:
    """Write a line of progress: what was done, to what, and how much."""
    return f"{verb:<11}{what}  {detail}".rstrip()


def decibels(value: float) -> str:
    """Write a signal to noise ratio; `exact` where there is no noise."""
    return "exact" if value == inf else f"{value:.1f} dB"


def score(metric: str, value: float | None) -> str:
    """Write a metric: the usual ones as a share, the user's own as a number."""
    return share(value) if value is None or metric in ("accuracy", "top5") else f"{value:.4f}"


def share(value: float | None) -> str:
    """Write a share in percent, empty where it is None."""
    return "" if value is None else f"{value:.2%}"
