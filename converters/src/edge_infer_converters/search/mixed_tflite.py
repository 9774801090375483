"""Make the smallest TFLite file within a budget: each weight in half precision, int8 or int4, on LiteRT itself.

The search is that of `mixed`, over what LiteRT's kernels read; its trials are files, because int8 and int4 also
quantize what the weights are multiplied with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ConversionError
from edge_infer_converters.data.reference_outputs import noise
from edge_infer_converters.engine import run_tflite
from edge_infer_converters.passes.weight import Weight
from edge_infer_converters.report.reporter import decibels as spelled
from edge_infer_converters.search.bit_allocation import Trial, moves_of, search
from edge_infer_converters.search.layers import Layer, layers_of
from edge_infer_converters.search.mixed_onnx import RANKING_CALLS
from edge_infer_converters.search.sensitivity import Sensitivity
from edge_infer_converters.writers.encode import Encoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.judge import Judge
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.search.bit_allocation import SearchResult
    from edge_infer_converters.writers.tflite import FloatGraph, TFLiteModel

    Outputs = Mapping[str, np.ndarray]


class TFLiteSearch:
    """One search: a graph, the inputs that judge it, and a budget.

    Args:
        graph: The model in TFLite operators.
        data: The inputs that each trial runs on.
        judge: Compares their outputs with the source's, within the budget.
        reporter: The receiver of progress and warnings.
    """

    def __init__(self, graph: FloatGraph, data: CalibrationSet, judge: Judge, reporter: Reporter) -> None:
        from edge_infer_converters.writers.tflite.quantize.weights import weights_of

        self._graph = graph
        self._calls = data.calls
        self._judge = judge
        self._reporter = reporter
        self.layers: tuple[Layer, ...] = ()
        self._ids: dict[str, int] = {}
        self._weights: list[Weight] = []
        for i, (tensor, operator, encodings) in enumerate(weights_of(graph.graph)):
            name = f"{i}:{tensor.name}"
            self._ids[name] = id(tensor)
            kind = {"EMBEDDING_LOOKUP": "table", "FULLY_CONNECTED": "matrix"}.get(operator.code, "filter")
            self._weights.append(Weight(name, tensor.name, kind, tensor.shape, 0, True, ("fp32", *encodings)))

    def run(self, ranking: CalibrationSet) -> Encoded:
        """Search, write and measure.

        Args:
            ranking: The inputs to rank weights on.

        Raises:
            ConversionError: There is nothing to make smaller, or nothing smaller keeps the budget.
        """
        if not self._weights:
            raise ConversionError("The model has no weights that are worth storing in fewer bits")
        sensitivities = self._ranked(ranking.first(RANKING_CALLS).calls)
        moves = moves_of(sensitivities)
        with self._reporter.progress(
            f"Searching: which of {len(self._weights)} weights in how many bits", None
        ) as told:
            found = search(self._weights, moves, self._judged, told)
        best = self._best(found)
        if best is None or best.nbytes >= self._graph.nbytes:
            raise ConversionError(self._nothing(found.trials), hint="allow more, or take --precision fp16")
        written = self._written(best.choice)
        notes = [f"{len(written.operators)} operators", written.note, f"{len(found.trials)} trials"]
        self.layers = layers_of(self._weights, sensitivities, best.choice)
        return Encoded(written.data, ", ".join(notes))

    def _best(self, found: SearchResult) -> Trial | None:
        """Return the smallest trial; where only a size is asked for, the best of those that have it."""
        budget = self._judge.budget
        if budget.max_size is None or budget.max_loss is not None or budget.min_sqnr_db is not None:
            return found.best
        small = [trial for trial in found.trials if trial.is_within and trial.nbytes <= budget.max_size]
        return max(small, key=lambda trial: trial.sqnr_db, default=found.best)

    def _ranked(self, calls: Sequence[Outputs]) -> list[Sensitivity]:
        """Measure each weight in each integer encoding, alone, all others in float."""
        references = run_tflite(self._graph.write().data, calls)
        found: list[Sensitivity] = []
        with self._reporter.progress(f"Ranking {len(self._weights)} weights", len(self._weights)) as advance:
            for weight in self._weights:
                for encoding in weight.encodings:
                    if encoding in ("int8", "int4"):
                        alone = self._graph.write_each({self._ids[weight.name]: encoding}, elsewhere="fp32")
                        found.append(Sensitivity(weight, encoding, noise(references, run_tflite(alone.data, calls))))
                advance(1)
        return found

    def _judged(self, choice: Mapping[str, str]) -> Trial:
        written = self._written(choice)
        results = run_tflite(written.data, self._calls)
        return Trial(dict(choice), len(written.data), *self._judge.judge(results))

    def _written(self, choice: Mapping[str, str]) -> TFLiteModel:
        return self._graph.write_each({self._ids[name]: encoding for name, encoding in choice.items()})

    def _nothing(self, trials: Sequence[Trial]) -> str:
        if not trials:
            return "The search was stopped before it found a file"
        best = max(trials, key=lambda trial: (-max(trial.loss, 0.0), trial.sqnr_db))
        return (
            f"Nothing smaller keeps the budget ({self._judge.limits()}): the best found of {len(trials)} "
            f"loses {max(best.loss, 0):.2%} of {self._judge.metric.name} at {spelled(best.sqnr_db)}, "
            f"{best.nbytes / 1000:.1f} kB"
        )
