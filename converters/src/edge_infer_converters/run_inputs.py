"""The inputs of a conversion: what it is measured on, and what gives int8 its ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ConversionError
from edge_infer.monitor.making import LEAST_ROWS
from edge_infer.tasks.registry import get_task
from edge_infer_converters.data import raw
from edge_infer_converters.data.calibration import RANDOM, CalibrationSet, read_set
from edge_infer_converters.data.random_inputs import random_set_that_runs, rows_of
from edge_infer_converters.measure.cost_model import multiplies_of
from edge_infer_converters.passes.graphs import without_weights
from edge_infer_converters.report.reporter import step
from edge_infer_converters.sources.onnx import SourceModel
from edge_infer_converters.sources.tflite import TFLiteSource

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer.tasks.sources.found import Found
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.sources.source import Reference, Source
    from edge_infer_converters.writers.plan import VariantPlan

    FilePath = str | os.PathLike[str]

#: More calibration data than this change no range and take time.
MAX_CALIBRATION_CALLS = 512
#: The multiply-adds of all calls together that give ranges: plain kernels, which tell them, take some five minutes for
#: five times as many. A model this large still gets a few made-up samples, or some more of those that were given.
MAX_MULTIPLIES = 128_000_000_000
LEAST_MADE_UP_CALLS = 4
LEAST_CALIBRATION_CALLS = 32


#: What a user of a pipeline gives, by what its task takes.
_RAW = {
    "text": 'TEXTS.jsonl, with {"text": "..."} on each line',
    "image": "PHOTOS/, a folder of images of the kind that the model will see",
    "sound": "SOUNDS/, a folder of WAV files of the kind that the model will hear",
}


class RunInputs:
    """Reads the data of a conversion, or makes some up.

    Args:
        model: The source.
        reference: The source on its engine.
        found: What stands before and after the model, or None.
        plans: The variants to make.
        reporter: The receiver of a warning where figures will say little.
    """

    def __init__(
        self,
        model: Source,
        reference: Reference,
        found: Found | None,
        plans: Sequence[VariantPlan],
        reporter: Reporter,
    ) -> None:
        self._model = model
        self._reference = reference
        self._found = found
        self._plans = plans
        self._reporter = reporter

    def choose(
        self, calibration: FilePath | None, evaluation: FilePath | None
    ) -> tuple[CalibrationSet, CalibrationSet]:
        """Return the inputs to measure on, and those that give int8 its ranges."""
        wants_ranges = self._model.is_float and any(
            plan.word != "int8-dynamic" and plan.precision == "int8" for plan in self._plans
        )
        ranges = None if calibration is None else self._read(calibration)
        data = None if evaluation is None else self._read(evaluation)
        if ranges is None and data is None:
            ranges = self._made_up()
            ranges = ranges.first(affordable_calls(self._model, ranges.calls[0], LEAST_MADE_UP_CALLS))
            source = "random inputs" if ranges.origin == RANDOM else ranges.origin
            self._reporter.warn(
                f"There are no calibration data: the ranges of int8, and all figures, come from {source} and say "
                "little about real ones"
                if wants_ranges
                else f"There are no evaluation data: all figures come from {source}",
                f"{'--calibration' if wants_ranges else '--eval'} {wanted(self._model, self._found)}",
            )
        elif ranges is None and wants_ranges:
            self._reporter.warn(
                "The ranges of int8 come from the evaluation data: its figures look a little better than they are",
                "--calibration FILE.npz, with other data",
            )
        chosen = ranges or data
        if chosen is None:
            raise AssertionError("one of both is there by now")
        few = self._few_of(chosen)
        if data is None:  # a judge of answers wants all of them, and so does what tells of drift later
            is_needed = chosen.is_judged or len(chosen.calls) >= LEAST_ROWS
            return chosen if is_needed else few, few
        return data, few

    def _few_of(self, chosen: CalibrationSet) -> CalibrationSet:
        """Return as many samples as ranges need, spread over all of them, and say so where time is the reason."""
        count = len(chosen.calls)
        if count <= LEAST_CALIBRATION_CALLS:
            return chosen
        most = affordable_calls(self._model, chosen.calls[0], LEAST_CALIBRATION_CALLS)
        few = chosen.spread(min(most, MAX_CALIBRATION_CALLS))
        if most < min(count, MAX_CALIBRATION_CALLS):
            why = f"more take over {MAX_MULTIPLIES / 1e9:.0f} billion multiplications"
            self._reporter.talk(step("Took", "samples:    ", f"{most} of {count}, evenly spread: {why}"))
        return few

    def _made_up(self) -> CalibrationSet:
        """Make inputs: of sentences for a model with a tokenizer, of the categories of a table, else at random."""
        framework = self._model.framework if isinstance(self._model, SourceModel) else None
        if framework is not None and framework.draws:
            return rows_of(framework.examples)
        found = None if self._found is None else raw.made_up(self._found, self._model.inputs, self._model.outputs)
        if found is not None:
            try:
                for call in found.calls:
                    self._reference.run(call)
            except ConversionError:  # such as a vocabulary larger than the model's
                found = None
        return found or random_set_that_runs(self._model.inputs, self._reference.run, self._model.usual_sizes)

    def _read(self, path: FilePath) -> CalibrationSet:
        """Read samples: raw data go through the pipeline's own steps."""
        if self._found is not None and raw.is_raw(path, self._found):
            return raw.read_raw(path, self._found, self._model.inputs, self._model.outputs)
        return read_set(path, self._model.inputs)


def affordable_calls(model: Source, call: Mapping[str, np.ndarray], least: int) -> int:
    """Return how many samples a model is run on: fewer, the more multiply-adds one of them takes.

    Args:
        model: The source; nothing is counted of one whose weights stay in files.
        call: The inputs of one call.
        least: How many of the largest model.
    """
    shapes = {name: array.shape for name, array in call.items()}
    multiplies = 0
    if isinstance(model, TFLiteSource):
        multiplies = multiplies_of(model.data, model.format, shapes)
    elif isinstance(model, SourceModel) and model.in_files is None:
        light, _ = without_weights(model.proto)
        multiplies = multiplies_of(light.SerializeToString(), model.format, shapes)
    return max(MAX_MULTIPLIES // max(multiplies, 1), least)


def wanted(model: Source, found: Found | None) -> str:
    """Say which files hold data for a model."""
    takes = None if found is None else get_task(found.definition.task).takes
    if takes in _RAW:
        return _RAW[takes]
    return "FILE.npz, with an array for each of " + ", ".join(str(spec) for spec in model.inputs)
