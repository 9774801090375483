"""A source made ready: cleaned up, checked against the targets, with what stands before and after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import listed
from edge_infer_converters import support
from edge_infer_converters.bundle_writer import checked_name
from edge_infer_converters.data import golden
from edge_infer_converters.left_out import LeftOut
from edge_infer_converters.measure.batch_check import is_right_for_two
from edge_infer_converters.report.reporter import step
from edge_infer_converters.run_inputs import RunInputs, wanted
from edge_infer_converters.sources import pipelines
from edge_infer_converters.sources.factory import open_source

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import onnx

    from edge_infer.tasks.sources.found import Found
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.given import Given
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.sources.source import Source
    from edge_infer_converters.writers.plan import VariantPlan
    from edge_infer_converters.writers.tflite import FloatGraph

    FilePath = str | os.PathLike[str]


class Prepared:
    """A source, the variants to make of it, and those that cannot be made.

    Attributes:
        model: The source.
        name: Its name in the manifest.
        found: What stands before and after it, or None.
        reference: The source on its engine, until `release`.
        plans: The variants to make.
        left_out: Those of them that cannot be made.
        source_id: The variant that holds the source itself: always kept, there is nothing else to compare with.
        graph: The model in TFLite operators, or None.
        is_table: Whether compiled variants are made of the ONNX model: it has operators of ONNX-ML.
        is_calibrated: Whether calibration data were given: matrices in int4 are fitted to them.
    """

    def __init__(self, model: Source, name: str, recipe: Recipe, reporter: Reporter) -> None:
        self.model = model
        self.name = name
        self.found: Found | None = None
        self.reference = model.reference()
        self.plans: Sequence[VariantPlan] = recipe.plans(model.precision, model.format, is_float=model.is_float)
        self.left_out = LeftOut(reporter, is_compiled_asked_for="compiled" in recipe.formats)
        self.source_id = f"{model.format}/{model.precision}"
        self.graph: FloatGraph | None = None
        self.is_table = False
        self.is_calibrated = False
        self._recipe = recipe
        self._reporter = reporter

    @property
    def left(self) -> list[VariantPlan]:
        """The variants that can be made as far as is known."""
        return [plan for plan in self.plans if plan.id not in self.left_out]

    @property
    def least_bytes(self) -> float:
        """How many bytes the variants will have at least."""
        precisions = [plan.precision for plan in self.left]
        return golden.least_bytes(self.model.nbytes, self.model.precision, precisions)

    @property
    def data_wanted(self) -> str:
        """Which files hold data for this model."""
        return wanted(self.model, self.found)

    def check_support(self) -> None:
        """Clean the model up and say what is not supported where, before any work."""
        self.model, removed = self.model.cleaned(self._recipe.source.opset, prunes=self._recipe.prunes)
        if removed is not None:
            said = ", ".join(f"{count} of {name}" for name, count in removed.items()) or "none is constant"
            self._reporter.talk(step("Pruned", "channels:   ", said))
        found = self.model.support(self._recipe.targets, [plan.format for plan in self.plans])
        self.graph, self.is_table = found.graph, found.is_table
        for line in support.table(found.lacks) if found.lacks else ():
            self._reporter.talk(line)
        if any(support.PAGE in lack.where for lack in found.lacks):
            self._reporter.warn("The page's engine cannot run this model", "--target pi")
        for plan in self.plans:
            own_id = f"tflite/{plan.precision}" if plan.format == "compiled" else plan.id
            is_made_of_graph = plan.format != "onnx" and self.model.own_file(own_id) is None
            if plan.format == "compiled" and plan.precision == "fp32" and found.is_table:
                continue
            if is_made_of_graph and found.tflite is not None:
                self.left_out.add(plan.id, found.tflite)
            if plan.format == "onnx" and found.onnx is not None:
                self.left_out.add(plan.id, found.onnx)
        if found.onnx is not None and not self.left:
            raise found.onnx

    def choose_inputs(
        self, calibration: FilePath | None, evaluation: FilePath | None
    ) -> tuple[CalibrationSet, CalibrationSet]:
        """Return the inputs to measure on, and those that give int8 its ranges."""
        self.is_calibrated = calibration is not None
        inputs = RunInputs(self.model, self.reference, self.found, self.plans, self._reporter)
        return inputs.choose(calibration, evaluation)

    def check_batch(self, data: CalibrationSet) -> None:
        """Fix the batch of the TFLite files where two samples at once would give other numbers than the model does."""
        if self.graph is None or self.model.own_file(self.source_id) is not None:
            return
        if not is_right_for_two(self.graph, data.calls, self.reference.run):
            self._reporter.warn("TFLite is right for one sample at a time only: its batch is fixed to 1", "")
            self.graph = self.model.graph_for_one(self._recipe.targets)

    def release(self) -> onnx.ModelProto:
        """Return the ONNX model for what is left to make; the source and its engine let their weights go."""
        self.model, cleaned = self.model.release([plan.format for plan in self.left])
        del self.reference  # its session holds another copy of the weights
        return cleaned


def prepare(
    model: FilePath,
    recipe: Recipe,
    given: Given,
    reporter: Reporter,
) -> Prepared:
    """Read a model and make it ready; `api.convert` documents the arguments and errors."""
    model, folder_name = pipelines.opened(model)
    origin = open_source(model, recipe.source)
    reporter.talk(step("Read", Path(model).name, f"{origin.nbytes / 1000:.1f} kB, {origin.count}"))
    for note in origin.notes:
        reporter.warn(note, "")
    if broken := origin.nan_weights():
        reporter.warn(f"Weights hold NaN: {listed(broken)}; what depends on them is NaN too", "train it again")
    prepared = Prepared(origin, checked_name(given.name, folder_name or origin.name), recipe, reporter)
    asked = pipelines.Asked(given.task, given.preprocess, given.labels)
    prepared.found = pipelines.find_definition(model, origin, asked, reporter)
    del origin  # a copy of the weights
    prepared.check_support()
    return prepared
