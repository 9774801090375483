"""Make the smallest file within a budget: rank the weights, search, write, and measure what was written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.engine import make_session
from edge_infer_converters.measure.cost_model import cost_of
from edge_infer_converters.measure.speed import estimated
from edge_infer_converters.passes.palette import with_palettes
from edge_infer_converters.passes.weight import INTEGERS
from edge_infer_converters.passes.weight_only import engine_options, prepare, rewrite, weights_of
from edge_infer_converters.report.reporter import decibels as spelled
from edge_infer_converters.report.reporter import step
from edge_infer_converters.search.bit_allocation import SearchResult, Trial, choice_after, moves_of, search, start_of
from edge_infer_converters.search.layers import Layer, layers_of
from edge_infer_converters.search.sensitivity import Sensitivity, WeightSession, rank
from edge_infer_converters.search.trial_cache import TrialCache, key_of
from edge_infer_converters.writers import onnx as onnx_target
from edge_infer_converters.writers.fitted_blocks import fit_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.judge import Judge
    from edge_infer_converters.measure.speed import DeviceTimes, Speed
    from edge_infer_converters.passes.packing import Packed
    from edge_infer_converters.passes.weight import Weight
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.search.bit_allocation import Move

    Outputs = Mapping[str, np.ndarray]

#: A dozen inputs are enough to rank weights by; all of the evaluation data judge each trial.
RANKING_CALLS = 12
#: How many of the best trials are written and measured before giving up.
_MAX_WRITTEN = 4


@dataclass(frozen=True, slots=True)
class MixedModel:
    """The file that a search ended with.

    Attributes:
        data: The bytes of the `.onnx` file.
        trial: What was chosen, and what it gave.
        weights: All weights, in the order in which they are read.
        sensitivities: What each weight does to the outputs, in each integer encoding.
        search: All that was tried.
    """

    data: bytes
    trial: Trial
    weights: tuple[Weight, ...]
    sensitivities: tuple[Sensitivity, ...]
    search: SearchResult

    @property
    def guilty(self) -> tuple[Weight, ...]:
        """The weights that could be integers and had to stay float, those that take most bytes first."""
        kept = [
            weight
            for weight in self.weights
            if any(e in INTEGERS for e in weight.encodings) and self.trial.choice.get(weight.name) not in INTEGERS
        ]
        return tuple(sorted(kept, key=lambda weight: (-weight.nbytes("fp16"), weight.label)))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The weights with what they cost, those that bring most error first."""
        return layers_of(self.weights, self.sensitivities, self.trial.choice)

    @property
    def options(self) -> dict[str, dict[str, str]] | None:
        """The engine settings that the file needs, by backend."""
        return engine_options(self.weights, self.trial.choice)

    def counts(self) -> dict[str, int]:
        """Count the weights of each encoding."""
        chosen = [self.trial.choice.get(weight.name, "fp32") for weight in self.weights]
        return {encoding: chosen.count(encoding) for encoding in ("fp32", "fp16", *INTEGERS) if encoding in chosen}

    def to_json(self) -> dict[str, Any]:
        """Describe this as `quality.json` does."""
        worst: dict[str, dict[str, float | None]] = {}
        for one in self.sensitivities:
            value = round(one.sqnr_db, 2)
            worst.setdefault(one.weight.name, {})[one.encoding] = value if isfinite(value) else None
        return {
            "layers": [
                {
                    "name": weight.label,
                    "weight": weight.name,
                    "stored": self.trial.choice.get(weight.name, "fp32"),
                    "sqnr_db": worst.get(weight.name, {}),
                }
                for weight in self.weights
            ],
            "kept_float": [weight.label for weight in self.guilty],
            "trials": len(self.search.trials),
            "is_interrupted": self.search.is_interrupted,
        }


class MixedSearch:
    """One search: a model, the inputs that judge it, and a budget.

    Args:
        cleaned: The source after `clean_up`.
        data: The inputs that each trial runs on.
        judge: Compares their outputs with the source's, within the budget.
        reporter: The receiver of progress and warnings.
        is_cached: Whether figures are kept for the next search, and taken from earlier ones.
        times: Times of the device, or None.
        palettes: Whether weights may become palettes, and bytes on the wire count.
        fits: Whether matrices in int4 are fitted to the inputs that weights are ranked on.
    """

    def __init__(
        self,
        cleaned: onnx.ModelProto,
        data: CalibrationSet,
        judge: Judge,
        reporter: Reporter,
        *,
        is_cached: bool = False,
        times: DeviceTimes | None = None,
        palettes: bool = False,
        fits: bool = False,
    ) -> None:
        self._times = times
        self._fits = fits
        self._fitted: Mapping[str, Packed] = {}
        self._is_cached = is_cached
        self._model = prepare(cleaned)
        self._nbytes = len(onnx_target.write(cleaned))
        self._calls = data.calls
        self._classes = data.classes
        self._judge = judge
        self._budget = judge.budget
        self._reporter = reporter
        found = weights_of(self._model)
        self._weights = with_palettes(found) if palettes else found

    def run(self, ranking: CalibrationSet) -> MixedModel:
        """Search, write and measure.

        Args:
            ranking: The inputs to rank weights on.

        Raises:
            ConversionError: There is nothing to make smaller, or nothing smaller keeps the budget.
        """
        if not self._weights:
            raise ConversionError("The model has no float32 weights to make smaller")
        if self._fits:
            self._fitted, said = fit_blocks(self._model, self._weights, ranking)
            if said:
                self._reporter.talk(step("Fitted", "onnx/mixed  ", said))
        found = self._run(ranking)
        limit = self._budget.max_latency_ratio
        packed = any(w.kind == "matrix" and found.trial.choice.get(w.name) == "int4" for w in self._weights)
        speed = self._speed(found) if limit is not None and packed else None
        if limit is None or speed is None or speed.ratio <= limit:
            return found
        said = f"takes {speed}, at most {limit:g}x is asked for: matrices in int4 are what is slow"
        self._reporter.talk(step("Gave up", "onnx/mixed  ", said))
        self._weights = tuple(_without_packed(weight) for weight in self._weights)
        return self._run(ranking)

    def _run(self, ranking: CalibrationSet) -> MixedModel:
        known = self._remembered(ranking)
        session = WeightSession(self._model, self._weights, self._fitted)
        count = len(self._weights)
        with self._reporter.progress(f"Ranking {count} weights", count) as advance:
            sensitivities = rank(session, self._weights, ranking.first(RANKING_CALLS).calls, advance, known)
        moves = moves_of(sensitivities)

        def evaluate(choice: Mapping[str, str]) -> Trial:
            outcome = known.outcome(choice)
            if outcome is None:
                outcome = self._judge.measure(session.run(self._calls, choice))
                known.add_outcome(choice, outcome)
            return Trial(dict(choice), self._estimated(choice), *self._judge.weigh(outcome))

        if self._is_size_only:
            found = self._until_small_enough(moves, evaluate)
        else:
            with self._reporter.progress(f"Searching: which of {count} weights in how many bits", None) as advance:
                found = search(self._weights, moves, evaluate, advance)
        if found.is_interrupted:
            self._reporter.warn("The search was stopped: the best file so far is kept", "")
        session.close()
        known.save()
        if known.hits:
            self._reporter.talk(step("Took", "onnx/mixed  ", f"{known.hits} figures from an earlier search"))
        return self._written(found, sensitivities)

    def _remembered(self, ranking: CalibrationSet) -> TrialCache:
        """Return what was measured before; a metric of the user's own may have changed, and is measured again."""
        metric = self._judge.metric.name
        if not self._is_cached or ":" in metric:
            return TrialCache(None)
        calls = [*self._calls, *ranking.first(RANKING_CALLS).calls]
        labels = "" if self._classes is None else sha256(self._classes.tobytes()).hexdigest()
        fitted = sha256()
        for blocks in self._fitted.values():
            fitted.update(blocks.codes.tobytes() + blocks.scales.tobytes())
        words = metric, str(self._judge.golden), str(self._judge.metric.base), labels, fitted.hexdigest()
        return TrialCache(key_of(onnx_target.write(self._model), calls, *words))

    def _speed(self, found: MixedModel) -> Speed | None:
        """Compare a file with the float model: by the device's times, else by the cost model."""
        measured = self._times.speed("onnx/mixed", "onnx/fp32") if self._times is not None else None
        if measured is not None:
            return measured
        shapes = {name: array.shape for name, array in self._calls[0].items()}
        base, cost = (cost_of(data, "onnx", shapes) for data in (onnx_target.write(self._model), found.data))
        return estimated("onnx/fp32", base, cost) if base and cost else None

    @property
    def _is_size_only(self) -> bool:
        limits = self._budget
        return limits.max_size is not None and limits.max_loss is None and limits.min_sqnr_db is None

    def _until_small_enough(self, moves: Sequence[Move], evaluate: Any) -> SearchResult:
        """Take bits away, cheapest first, until the file is as small as it must be."""
        limit = self._budget.max_size or 0
        start = start_of(self._weights)
        for count in range(len(moves) + 1):
            choice = choice_after(start, moves[:count])
            # The estimate errs upwards; within 10 % of the limit the file itself is looked at.
            is_near = self._estimated(choice) <= limit * 1.1
            if count == len(moves) or (is_near and len(self._encoded(choice)) <= limit):
                trial = evaluate(choice)
                return SearchResult(trial if trial.is_within else None, (trial,), False)
        raise AssertionError("the last turn returns")

    def _written(self, found: SearchResult, sensitivities: tuple[Sensitivity, ...]) -> MixedModel:
        """Write the smallest trial whose file, on the engine itself, keeps the budget too."""
        fitting = sorted((trial for trial in found.trials if trial.is_within), key=lambda trial: trial.nbytes)
        for trial in fitting[:_MAX_WRITTEN]:
            data = self._encoded(trial.choice)
            session = make_session(data, "onnx/mixed")
            names = list(self._judge.references[0])
            results = [dict(zip(names, session.run(names, dict(call)), strict=True)) for call in self._calls]
            measured = self._tried(trial.choice, results)
            if measured.is_within and len(data) < self._nbytes:
                return MixedModel(data, measured, self._weights, sensitivities, found)
        raise ConversionError(self._nothing(found), hint="allow more, or take --precision fp16")

    def _nothing(self, found: SearchResult) -> str:
        if not found.trials:
            return "The search was stopped before it found a file"
        best = max(found.trials, key=lambda trial: (-max(trial.loss, 0.0), trial.sqnr_db))
        return (
            f"Nothing smaller keeps the budget ({self._judge.limits()}): the best found of {len(found.trials)} loses "
            f"{max(best.loss, 0):.2%} of {self._judge.metric.name} at {spelled(best.sqnr_db)}, "
            f"{len(self._encoded(best.choice)) / 1000:.1f} kB"
        )

    def _tried(self, choice: Mapping[str, str], results: Sequence[Outputs]) -> Trial:
        return Trial(dict(choice), self._estimated(choice), *self._judge.judge(results))

    def _estimated(self, choice: Mapping[str, str]) -> int:
        saved = sum(w.nbytes("fp32") - w.nbytes(choice.get(w.name, "fp32")) for w in self._weights)
        return self._nbytes - saved

    def _encoded(self, choice: Mapping[str, str]) -> bytes:
        return onnx_target.write(rewrite(self._model, self._weights, choice, fitted=self._fitted))


def _without_packed(weight: Weight) -> Weight:
    """Return a matrix without int4, the encoding that engines compute with directly; other weights stay."""
    if weight.kind != "matrix":
        return weight
    return replace(weight, encodings=tuple(encoding for encoding in weight.encodings if encoding != "int4"))


def said_of(mixed: MixedModel) -> tuple[str, str]:
    """Return what to say of a search: what is stored how, and which layers had to stay float."""
    counts = ", ".join(f"{count} in {encoding}" for encoding, count in mixed.counts().items())
    tried = f"{counts}; {len(mixed.search.trials)} trials"
    labels = [weight.label for weight in mixed.guilty]
    return step("Searched", "onnx/mixed  ", tried), ", ".join(labels)
