"""Convert a graph, such as an ONNX file: read the source, make the variants, measure them, write the bundle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edge_infer.errors import AccuracyError, EdgeInferError, InputError
from edge_infer.formats import safetensors
from edge_infer.monitor.making import described, make_reference
from edge_infer.monitor.reference import PATH as REFERENCE
from edge_infer.monitor.reference import read_reference
from edge_infer.tasks import vectors
from edge_infer_converters.bundle_writer import EXAMPLES_NAME, LABELS_NAME, BundleWriter
from edge_infer_converters.conversion import Conversion
from edge_infer_converters.data import golden
from edge_infer_converters.data.calibration import RANDOM
from edge_infer_converters.data.labels import read_labels
from edge_infer_converters.data.raw_samples import add_samples
from edge_infer_converters.data.reference_outputs import reference_outputs
from edge_infer_converters.forecast import Forecast, forecast
from edge_infer_converters.measure import pipeline_vectors
from edge_infer_converters.measure.judge import Judge
from edge_infer_converters.measure.metrics import choose_metric
from edge_infer_converters.measure.own_error import MAX_BYTES, OwnError, own_error
from edge_infer_converters.measure.text_vectors import TextVectors
from edge_infer_converters.measure.variants import Bench
from edge_infer_converters.prepared import prepare
from edge_infer_converters.report import html, quality_json
from edge_infer_converters.report.reporter import step
from edge_infer_converters.search.selection import UNTESTED, choose, mark_untested
from edge_infer_converters.variant_files import VariantFiles

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from edge_infer.bundle.variant import Variant
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.given import Given
    from edge_infer_converters.measure.metrics import Metric
    from edge_infer_converters.measure.speed import DeviceTimes
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.prepared import Prepared
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.report.reporter import Reporter

    FilePath = str | os.PathLike[str]
    Outputs = Mapping[str, np.ndarray]


def convert(
    model: FilePath,
    output: FilePath,
    recipe: Recipe,
    given: Given,
    *,
    times: DeviceTimes | None,
    force: bool,
    report: FilePath | None,
    reporter: Reporter,
    source: Mapping[str, str] | None,
) -> Conversion:
    """Run a recipe on a model that lies here; `api.convert` documents the other arguments and the errors.

    `times` are those that devices measured, `source` says where the model came from, for the manifest.
    """
    recipe.budget.check(has_evaluation=given.evaluation is not None, has_measured=times is not None)
    with BundleWriter(output, force=force, source=source, license=given.license) as writer:
        prepared = prepare(model, recipe, given, reporter)
        run = _Run(prepared, given.version, recipe, writer, reporter, times)
        data, ranges = prepared.choose_inputs(given.calibration, given.evaluation)
        prepared.check_batch(data)
        data, outputs = reference_outputs(data, prepared.reference.run, reporter)
        metric = choose_metric(recipe.budget, data, outputs, reporter)

        run.golden = golden.count(data.calls, outputs, prepared.least_bytes, recipe.goldens)
        run.measure_own_error(data.calls, outputs)
        proofs = golden.examples(data.first(run.golden), outputs[: run.golden], prepared.least_bytes)
        writer.add(EXAMPLES_NAME, safetensors.write_examples(proofs))
        del proofs
        if prepared.found is not None:
            for path, content in prepared.found.all_files().items():
                writer.add(path, content)
        elif given.labels is not None:
            writer.add(LABELS_NAME, read_labels(given.labels, prepared.model.outputs[0]))
        add_samples(writer, given.samples)
        run.add_reference(data, outputs)
        run.describe(writer.read(LABELS_NAME))
        judge = Judge(outputs, metric, recipe.budget, run.golden)
        files = VariantFiles(prepared, recipe, writer, ranges, data, judge, times, reporter)
        made = files.make()
        run.write_manifest([variant for variant, _ in made])  # engines load the variants by it
        variants = run.measure(made, data, outputs, metric)
        kept = [one.variant for one in variants if one.is_kept]
        revision = run.write_manifest(kept)
        if prepared.found is not None and run.add_vectors():
            revision = run.write_manifest(kept)

        result = Conversion(
            writer.path,
            prepared.name,
            revision,
            writer.size,
            tuple(variants),
            prepared.left_out.reasons,
            str(data),
            metric.name if data.is_judged or recipe.budget.metric or recipe.budget.max_loss is not None else "",
            tuple(weight.label for weight in files.mixed.guilty) if files.mixed else (),
            run.missed,
            {one.variant.id: files.layers[one.variant.id] for one in variants if one.variant.id in files.layers},
        )
        writer.write_quality(quality_json.document(result, data, ranges, files.mixed, times))
        writer.commit()
    if report is not None:
        html.save(report, html.write(result, files.mixed, data, files.compiled))
    if result.missed:
        raise AccuracyError(
            f"{result.missed}; `{result.path}` holds it",
            hint="allow a larger file, more time or memory, or more loss",
            bundle=str(result.path),
        )
    return result


def foresee(
    model: FilePath,
    recipe: Recipe,
    given: Given,
    *,
    reporter: Reporter,
    started: float,
) -> Forecast:
    """Say what `convert` would try, as `convert_run.foresee`; `started` is by `time.perf_counter`."""
    recipe.budget.check(has_evaluation=given.evaluation is not None, has_measured=given.measured is not None)
    prepared = prepare(model, recipe, given, reporter)
    data, ranges = prepared.choose_inputs(given.calibration, given.evaluation)
    prepared.check_batch(data)
    return forecast(prepared, recipe, data, ranges, started)


class _Run:
    """One conversion on its way: the prepared source, where the bundle is written, and what was found so far."""

    def __init__(
        self,
        prepared: Prepared,
        version: str,
        recipe: Recipe,
        writer: BundleWriter,
        reporter: Reporter,
        times: DeviceTimes | None,
    ) -> None:
        self.missed = ""
        self.golden = 1  # how many of the first calls are golden examples
        self._prepared = prepared
        self._version = version
        self._recipe = recipe
        self._writer = writer
        self._reporter = reporter
        self._times = times
        self._own = OwnError({}, is_half=False)

    def measure_own_error(self, calls: Sequence[Outputs], outputs: Sequence[Outputs]) -> None:
        """Measure the source against itself: no variant must be nearer to it than that."""
        model, run = self._prepared.model, self._prepared.reference.run

        def load_optimised() -> Callable[[Outputs], Outputs]:
            return model.reference(optimised=True).run

        is_half = model.halves is not None
        loads_again = is_half or (model.nbytes <= MAX_BYTES and model.is_engines_own)
        found = own_error(run, load_optimised if loads_again else None, calls, outputs, self.golden)
        self._own = OwnError(found, is_half)

    def add_reference(self, data: CalibrationSet, outputs: Sequence[Outputs]) -> None:
        """Keep what the data look like, where they are somebody's own and enough."""
        if data.is_made_up or not self._recipe.keeps_reference:
            return
        model, found = self._prepared.model, self._prepared.found
        names, categories = ({}, {}) if found is None else described(found.definition)
        labels = self._writer.read(LABELS_NAME)
        classes = json.loads(labels) if labels else ()
        runs = list(zip(data.calls, outputs, strict=True))
        try:
            reference = make_reference(runs, model.inputs, model.outputs, names, categories, classes)
        except InputError:  # fewer than 200 rows, or nothing that can be watched, such as tokens
            return
        self._writer.add(REFERENCE, reference)
        rows = read_reference(reference).rows
        self._reporter.talk(
            step("Kept", "reference:", f"{rows:,} rows of {data.origin}, {len(reference) / 1000:.1f} kB")
        )

    def describe(self, labels: bytes | None) -> None:
        """Let the TFLite files say what they are."""
        graph, name, keep_names = self._prepared.graph, self._prepared.name, self._recipe.keep_names
        if graph is not None:
            classes = json.loads(labels) if labels else ()
            self._prepared.model.describe(graph, name, self._version, classes, keep_names=keep_names)

    def measure(
        self,
        made: Sequence[tuple[Variant, int]],
        data: CalibrationSet,
        outputs: Sequence[Outputs],
        metric: Metric,
    ) -> list[ConvertedVariant]:
        """Measure the variants in the folder, and take those out again that are not good enough."""
        prepared = self._prepared
        judge = Judge(outputs, metric, self._recipe.budget, self.golden)
        definition = None if prepared.found is None else prepared.found.definition
        judge.vectors = TextVectors.of(definition, data, outputs)
        own_file = prepared.source_id if prepared.model.own_file(prepared.source_id) is not None else ""
        bench = Bench(self._writer.folder, data, judge, self._own, self._times, self._reporter)
        measured, failed = bench.run(made, own_file)
        for variant, error in failed:
            prepared.left_out.add(variant.id, error)
            self._writer.drop(variant.file, *variant.external)
        measured, self.missed = choose(measured, prepared.source_id, self._recipe, self._times)
        for one in measured:
            one.variant.parity = {name: dict(figures) for name, figures in one.quality.known.items()}
            verdict = one.quality.verdict
            if not one.is_kept:
                wanted = f"--calibration {prepared.data_wanted}; " if data.is_made_up else ""
                self._reporter.warn(f"{one.variant.id} is left out: {verdict.reason}", f"{wanted}--keep-all keeps it")
                self._writer.drop(one.variant.file, *one.variant.external)
            elif verdict.word != "ok":
                self._reporter.warn(f"{one.variant.id}: {verdict.reason}", "")
        if data.origin == RANDOM:
            measured, marked = mark_untested(measured, self._recipe, is_float=prepared.model.is_float)
            if marked:
                self._reporter.warn(f"{', '.join(marked)}: {UNTESTED}", f"--calibration {prepared.data_wanted}")
        if not any(one.is_kept for one in measured):
            raise AccuracyError(
                f"No variant of `{prepared.name}` is good enough", hint="--keep-all writes them nevertheless"
            )
        return measured

    def write_manifest(self, variants: Sequence[Variant]) -> str:
        """Write the manifest and return its sha256."""
        prepared = self._prepared
        definition = None if prepared.found is None else prepared.found.definition
        specs = (prepared.model.inputs, prepared.model.outputs)
        return self._writer.write_manifest(prepared.name, self._version, *specs, variants, definition)

    def add_vectors(self) -> bool:
        """Write the vectors that prove the pipeline; tell whether there are some.

        A pipeline that fails on every made-up input is kept without vectors.
        """
        found = self._prepared.found
        if found is None:
            return False
        try:
            data = pipeline_vectors.make(self._writer.folder, self._prepared.source_id)
        except EdgeInferError as error:
            self._reporter.warn(f"Nothing proves the pipeline: {error.message}", error.hint)
            return False
        self._writer.add(vectors.PATH, data)
        self._prepared.found = found._replace(definition=found.definition._replace(vectors=vectors.PATH))
        return True
