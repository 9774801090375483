"""Compare a variant with the source, on the engine that will run it."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.parity import comparison as measures
from edge_infer.parity.verdict import judge_outputs, to_manifest
from edge_infer.platform.cpu import read_processor
from edge_infer.runtime.selection import exact_engine
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.measure.metrics import scores_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edge_infer.bundle.variant import Variant
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.budget import Budget
    from edge_infer_converters.measure.metrics import Metric
    from edge_infer_converters.measure.own_error import OwnError
    from edge_infer_converters.measure.text_vectors import Nearness, TextVectors

_MAX_WORST = 6


@dataclass(frozen=True, slots=True)
class Quality:
    """How good a variant is.

    Attributes:
        parity: How near its outputs are to the source's.
        verdict: `ok`, `warn` or `fail`, and why.
        accuracy: The share of samples whose best class is the right one, or None where the data name no classes.
        engine: What ran it, with its version.
        calls: The calls that were compared.
        metric: What the score is of.
        score: The metric on all calls.
        loss: Its relative drop against the source's.
        worst: The calls whose outputs are farthest from the source's, with their SQNR in dB, the worst first.
        known: What the manifest keeps of it, for engines elsewhere to be judged by.
        vectors: How near the vectors of texts are, or None where the task is another one.
    """

    parity: measures.Parity
    verdict: measures.Verdict
    accuracy: float | None
    engine: str
    calls: int
    metric: str
    score: float
    loss: float
    worst: tuple[tuple[int, float], ...] = ()
    known: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    vectors: Nearness | None = None

    def to_json(self) -> dict[str, Any]:
        """Describe this as `quality.json` does; an infinite SQNR, equal to the last bit, is null."""
        return {
            "sqnr_db": _number(self.parity.sqnr_db),
            "max_err_over_rms": _number(self.parity.max_err),
            "cosine": round(self.parity.cosine, 7),
            "top1": self.parity.top1,
            "accuracy": self.accuracy,
            "metric": {"name": self.metric, "score": _number(self.score), "loss": _number(self.loss)},
            "verdict": self.verdict.word,
            "reason": self.verdict.reason,
            "engine": self.engine,
            "calls": self.calls,
            **({} if self.vectors is None else {"vectors": _rounded(self.vectors)}),
            "worst": [{"call": call, "sqnr_db": _number(round(sqnr_db, 2))} for call, sqnr_db in self.worst],
        }


def measure_quality(
    bundle: Path,
    variant: Variant,
    data: CalibrationSet,
    references: Sequence[Mapping[str, np.ndarray]],
    metric: Metric,
    budget: Budget,
    own: OwnError,
    *,
    is_source: bool = False,
    vectors: TextVectors | None = None,
) -> Quality:
    """Run a variant of a bundle and compare it with the source.

    Args:
        bundle: The bundle's folder, its golden examples those of the first calls.
        variant: Which variant.
        data: The inputs.
        references: The source's outputs for each of these calls.
        metric: The user's metric, over the same inputs.
        budget: What the variant must keep.
        own: The source's own error.
        is_source: Whether the variant is the source's own file: its outputs differ by the engine's fast kernels only,
            so that nothing is lost and it never fails.
        vectors: What pools the outputs of a model for feature-extraction: where its vectors are near enough, the usual
            limits only warn.

    Raises:
        BackendError: The engine cannot load or run the variant.
        InputError: The user's metric failed.
    """
    import edge_infer

    backend = exact_engine(variant.format)
    with edge_infer.load(bundle, variant=variant.id, backend=backend, device="cpu", arrays="numpy") as session:
        results = [session.run(call) for call in data.calls]
        engine = f"{backend} {session.report().engine_version}"
    outputs = measures.compare_outputs(references, results)
    figures = measures.worst_of(outputs.values())
    # `edge-infer verify` sees the golden examples and asks that no clear answer among them changes. Of thousands of
    # answers one may: it is reported, and decides nothing.
    proofs = [wanted for _, wanted in session.bundle.examples()]
    decisive = measures.compare_outputs(proofs, results[: len(proofs)])
    judged = {name: one._replace(top1=decisive[name].top1) for name, one in outputs.items() if name in decisive}
    floor = own.at(variant.precision)
    verdict = judge_outputs(judged or outputs, variant.precision, floor, tightens=False)
    nearness = None if vectors is None else vectors.compare(references, results)
    score = metric.score(results)
    loss = metric.loss(score)
    beyond = _beyond(budget, variant, figures, metric, loss)
    if beyond is not None:
        verdict = beyond if verdict.word != "fail" else verdict
    elif verdict.word == "fail" and nearness is not None and nearness.is_good and isfinite(figures.max_err):
        verdict = measures.Verdict("warn", f"{verdict.reason}; {nearness}")
    elif verdict.word == "fail" and _outranks(budget, figures, metric):
        verdict = measures.Verdict("warn", verdict.reason)
    if is_source and verdict.word == "fail":
        verdict = measures.Verdict("warn", f"{verdict.reason}; it is the source, on the engine's fast kernels")
    return Quality(
        figures,
        verdict,
        accuracy(results, data),
        engine,
        len(references),
        metric.name,
        score,
        loss,
        _worst(references, results),
        to_manifest(_known(variant.precision, verdict, decisive, floor)),
        nearness,
    )


def accuracy(results: Sequence[Mapping[str, np.ndarray]], data: CalibrationSet) -> float | None:
    """Return the share of samples whose best class is the right one.

    Returns:
        The share, or None where the data name no classes or no output has a row of scores for each sample.
    """
    output = scores_of(data, results)
    if output is None or data.classes is None:
        return None
    best = np.concatenate([np.asarray(result[output]).argmax(axis=1) for result in results])
    return float((best == data.classes).mean())


def describe_machine() -> dict[str, str]:
    """Name the processor and the versions that figures depend on."""
    names = ("edge-infer-converters", "onnx", "onnxruntime", "ai-edge-litert", "numpy")
    processor = read_processor()
    cpu = " ".join([processor.model or platform.processor() or platform.machine(), *processor.features])
    return {"cpu": cpu, "python": platform.python_version(), **{name: version(name) for name in names}}


def _known(
    precision: str,
    verdict: measures.Verdict,
    measured: Mapping[str, measures.Parity],
    floor: Mapping[str, measures.Parity],
) -> Mapping[str, measures.Parity]:
    """Return what the manifest keeps: of an integer variant its figures, else the floor where a limit is beyond it."""
    if verdict.word == "fail":
        return {}
    if precision not in ("fp32", "fp16"):
        return measured
    is_needed = "fail" in {judge_outputs(figures, precision).word for figures in (measured, floor) if figures}
    return floor if is_needed else {}


def _outranks(budget: Budget, figures: measures.Parity, metric: Metric) -> bool:
    """Tell whether the budget, which is kept, outranks the usual limits.

    A cosine and an SQNR do not see a lost slice, for which the limit on slices is there; a metric on labels does.
    """
    return budget.decides and isfinite(figures.max_err) and not (figures.lost and metric.name == "cosine")


def _beyond(
    budget: Budget, variant: Variant, figures: measures.Parity, metric: Metric, loss: float
) -> measures.Verdict | None:
    """Return the verdict on a variant that is beyond the budget, or None."""
    if budget.max_loss is not None and loss > budget.max_loss:
        return measures.Verdict(
            "fail", f"it loses {loss:.2%} of {metric.name}, at most {budget.max_loss:.4g} may be lost"
        )
    if budget.min_sqnr_db is not None and variant.precision != "fp32" and figures.sqnr_db < budget.min_sqnr_db:
        return measures.Verdict("fail", f"SQNR {figures.sqnr_db:.1f} dB, asked for >= {budget.min_sqnr_db:g}")
    return None


def _worst(
    references: Sequence[Mapping[str, np.ndarray]], results: Sequence[Mapping[str, np.ndarray]]
) -> tuple[tuple[int, float], ...]:
    """Find the calls with most noise."""
    noises = [noise([want], [got]) for want, got in zip(references, results, strict=True)]
    order = sorted(range(len(noises)), key=lambda i: -noises[i])[:_MAX_WORST]
    return tuple((i, decibels(noises[i])) for i in order if noises[i])


def _rounded(nearness: Nearness) -> dict[str, float]:
    return {"mean_cosine": round(nearness.mean, 6), "least_cosine": round(nearness.least, 6)}


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
