"""What a conversion says: progress while it runs, and a table of what it made."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Protocol

from edge_infer.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from edge_infer_converters.conversion import Conversion


class Reporter(Protocol):
    """Who is told what a conversion does."""

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


class TerminalReporter:
    """Tells the terminal, by way of stderr."""

    def talk(self, text: str) -> None:
        """Print a step."""
        output.talk(text)

    def warn(self, text: str, hint: str) -> None:
        """Print a warning."""
        output.warn(text, hint)

    def progress(self, text: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar while a long job runs."""
        return output.progress(text, total)


def step(verb: str, what: str, detail: str = "") -> str:
    """Write a line of progress: what was done, to what, and how much."""
    return f"{verb:<11}{what}  {detail}".rstrip()


def print_table(conversion: Conversion) -> None:
    """Print the variants with their figures, those that were left out too."""
    metric = conversion.metric
    columns = ["variant", "size", "sqnr", "max err/rms", "top-1", *([metric] if metric else []), "latency", "verdict"]
    rows: list[list[str]] = []
    for one in conversion.variants:
        score = [_score(metric, one.quality.score)] if metric else []
        figures = one.quality.parity
        verdict = one.quality.verdict.word if one.is_kept else "left out"
        rows.append(
            [
                one.variant.id,
                output.size(one.nbytes),
                decibels(figures.sqnr_db),
                f"{figures.max_err:.1e}" if figures.max_err else "0",
                _share(figures.top1),
                *score,
                "" if one.latency is None else f"{one.latency.ratio:.2f}x",
                verdict,
            ]
        )
    missing = [""] * (len(columns) - 2)
    rows += [[id_, *missing, "left out"] for id_ in conversion.not_made]
    output.table(columns, rows, right=columns[1:-1])


def decibels(value: float) -> str:
    """Write a signal to noise ratio; `exact` where there is no noise."""
    return "exact" if value == inf else f"{value:.1f} dB"


def _score(metric: str, value: float | None) -> str:
    """Write a metric: the usual ones as a share, the user's own as a number."""
    return _share(value) if value is None or metric in ("accuracy", "top5") else f"{value:.4f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
