"""Decide whether the outputs of a search trial keep the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer_converters.data.reference_outputs import decibels, noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.measure.budget import Budget
    from edge_infer_converters.measure.metrics import Metric
    from edge_infer_converters.measure.text_vectors import TextVectors

    Outputs = Mapping[str, np.ndarray]


class Outcome(NamedTuple):
    """The measurements of a trial's outputs, independent of the budget.

    Attributes:
        sqnr_db: Their signal to noise ratio.
        loss: The relative drop of the metric.
        keeps_clear: Whether no clear answer of the golden examples changed.
    """

    sqnr_db: float
    loss: float
    keeps_clear: bool


class Judgement(NamedTuple):
    """The verdict on a trial's outputs.

    Attributes:
        sqnr_db: Their signal to noise ratio.
        loss: The relative drop of the metric.
        is_within: Whether they keep the budget, size and latency aside.
    """

    sqnr_db: float
    loss: float
    is_within: bool


class Judge:
    """Compares outputs with the source's.

    Args:
        references: The source's outputs for all calls.
        metric: The user's metric.
        budget: What must be kept.
        golden: How many of the first calls are the bundle's golden examples: no clear answer among them may change.
        vectors: What pools the outputs of a model for feature-extraction, or None.
    """

    def __init__(
        self,
        references: Sequence[Outputs],
        metric: Metric,
        budget: Budget,
        golden: int,
        vectors: TextVectors | None = None,
    ) -> None:
        self.vectors = vectors
        self.references = references
        self.metric = metric
        self.budget = budget
        self.golden = golden

    def judge(self, results: Sequence[Outputs]) -> Judgement:
        """Judge the outputs of the same calls.

        Raises:
            InputError: The user's metric failed.
        """
        return self.weigh(self.measure(results))

    def measure(self, results: Sequence[Outputs]) -> Outcome:
        """Measure outputs; the budget plays no part."""
        return Outcome(
            decibels(noise(self.references, results)),
            self.metric.loss(self.metric.score(results)),
            clear_answers_kept(self.references[: self.golden], results[: self.golden]),
        )

    def weigh(self, outcome: Outcome) -> Judgement:
        """Compare what was measured with the budget."""
        is_within = outcome.sqnr_db >= self.budget.floor_db and outcome.keeps_clear
        if self.budget.max_loss is not None and outcome.loss > self.budget.max_loss:
            is_within = False
        return Judgement(outcome.sqnr_db, outcome.loss, is_within)

    def limits(self) -> str:
        """Write the budget in words."""
        limits = [f"SQNR >= {self.budget.floor_db:g} dB"]
        if self.budget.max_loss is not None:
            limits.insert(0, f"loss <= {self.budget.max_loss:.4g} of {self.metric.name}")
        return ", ".join(limits)


def clear_answers_kept(references: Sequence[Outputs], results: Sequence[Outputs]) -> bool:
    """Tell whether every best class that leads by more than the largest error is still the best one.

    The same question as `edge_infer.parity.comparison.compare` asks of the golden examples, on arrays.
    """
    for name in references[0] if references else ():
        if references[0][name].dtype.kind != "f" or references[0][name].ndim != 2 or references[0][name].shape[-1] < 2:
            continue
        pairs = [(a[name].reshape(-1, a[name].shape[-1]), b[name]) for a, b in zip(references, results, strict=True)]
        if any(want.size != got.size for want, got in pairs):
            return False
        rows = [(want, got.reshape(want.shape)) for want, got in pairs]
        with np.errstate(all="ignore"):
            error = max((float(np.abs(want - got).max(initial=0)) for want, got in rows), default=0.0)
        for want, got in rows:
            ordered = np.sort(want, axis=1)
            is_clear = ordered[:, -1] - ordered[:, -2] > error
            if (want.argmax(axis=1) != got.argmax(axis=1))[is_clear].any():
                return False
    return True
