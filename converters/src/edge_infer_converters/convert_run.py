"""Run one conversion: read the source, make the variants, measure them, write the bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.bundle.manifest import State, Variant
from edge_infer.errors import (
    AccuracyError,
    ConversionError,
    EdgeInferError,
    InputError,
    UnsupportedModel,
    listed,
)
from edge_infer.formats import safetensors
from edge_infer.formats.program import read_compiled
from edge_infer.formats.tflite_tables import hidden_state
from edge_infer.monitor.making import described, make_reference
from edge_infer.monitor.reference import PATH as REFERENCE
from edge_infer.monitor.reference import read_reference
from edge_infer.tasks import vectors
from edge_infer.tasks.registry import get_task
from edge_infer_converters import decoder_run, encoder_decoder_run, support
from edge_infer_converters.bundle_writer import EXAMPLES_NAME, LABELS_NAME, BundleWriter, checked_name, checked_version
from edge_infer_converters.compilation import encode_compiled, encode_table
from edge_infer_converters.conversion import Conversion
from edge_infer_converters.data import golden, raw
from edge_infer_converters.data.calibration import RANDOM, CalibrationSet, random_set_that_runs, read_set, rows_of
from edge_infer_converters.data.labels import read_labels
from edge_infer_converters.data.raw_samples import add_samples
from edge_infer_converters.data.reference_outputs import reference_outputs
from edge_infer_converters.measure import pipeline_vectors
from edge_infer_converters.measure.batch_check import is_right_for_two
from edge_infer_converters.measure.judge import Judge
from edge_infer_converters.measure.metrics import choose_metric
from edge_infer_converters.measure.own_error import MAX_BYTES, own_error
from edge_infer_converters.measure.speed import read_device_times
from edge_infer_converters.measure.text_vectors import TextVectors
from edge_infer_converters.measure.variants import Bench
from edge_infer_converters.report import html, quality_json
from edge_infer_converters.report.reporter import LogReporter, Reporter, step
from edge_infer_converters.search.dynamic import DynamicSearch
from edge_infer_converters.search.mixed_onnx import MixedModel, MixedSearch, said_of
from edge_infer_converters.search.mixed_tflite import TFLiteSearch
from edge_infer_converters.search.selection import UNTESTED, choose, mark_untested
from edge_infer_converters.sources import hub, pipelines
from edge_infer_converters.sources.decoder.find import find_folder
from edge_infer_converters.sources.encoder_decoder.find import find_pair
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.onnx import SourceModel
from edge_infer_converters.sources.state_pairs import find_pairs
from edge_infer_converters.writers.compiled.writer import check_size
from edge_infer_converters.writers.encode import Encoded, encode, encode_tflite

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from edge_infer.parity.comparison import Parity
    from edge_infer.tasks.sources.found import Found
    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.measure.metrics import Metric
    from edge_infer_converters.measure.speed import DeviceTimes
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.search.layers import Layer
    from edge_infer_converters.sources.source import Source
    from edge_infer_converters.writers.plan import VariantPlan
    from edge_infer_converters.writers.tflite import FloatGraph

    FilePath = str | os.PathLike[str]
    Specs = tuple[TensorSpec, ...]

#: More calibration data than this change no range and take time.
MAX_CALIBRATION_CALLS = 512


# A bundle is a folder: an output of these names is meant as one file, which `convert` does not write.
_MODEL_SUFFIXES = (".onnx", ".ort", ".tflite", ".pt", ".pt2", ".h5", ".keras")


def convert(
    model: FilePath,
    output: FilePath,
    recipe: Recipe,
    *,
    name: str | None = None,
    version: str = "1",
    calibration: FilePath | None = None,
    evaluation: FilePath | None = None,
    labels: FilePath | None = None,
    task: str | None = None,
    preprocess: str | None = None,
    license: str | None = None,  # noqa: A002  the manifest's word
    samples: Sequence[FilePath] = (),
    measured: FilePath | None = None,
    force: bool = False,
    report: FilePath | None = None,
    reporter: Reporter | None = None,
) -> Conversion:
    """Run a recipe; `api.convert` documents the arguments and errors."""
    reporter = reporter or LogReporter()
    version = checked_version(version)
    times = read_device_times(measured) if measured is not None else None
    if Path(output).suffix.lower() in _MODEL_SUFFIXES:
        folder = Path(output).with_suffix(".bundle")
        raise InputError(f"`{output}` is the name of a model file, expected a bundle's folder", hint=f"-o {folder}")
    found = hub.bring(model)
    if found is not None:
        model = found.file or found.folder
        file = Path(found.file)
        name = name or checked_name(None, file.stem if file.suffix == ".gguf" else found.name.rpartition("/")[2])
        reporter.talk(step("Fetched", found.name, f"commit {found.commit}"))
    source = None if found is None else found.source
    pair = find_pair(model)
    decoder = None if pair is not None else find_folder(model)
    if pair is not None or decoder is not None:
        given: dict[str, object] = {
            "--calibration": calibration,
            "--eval": evaluation,
            "--labels": labels,
            "--task": task,
        }
        given |= {
            "--task": task,
            "--sample": samples or None,
            "--preprocess": preprocess,
            "--measured": measured,
            "--report": report,
        }
        convert_it = decoder_run.convert if pair is None else encoder_decoder_run.convert
        return convert_it(
            pair or Path(decoder or ""),
            output,
            recipe,
            name=name,
            version=version,
            given=given,
            force=force,
            reporter=reporter,
            source=source,
            license=license,
        )
    recipe.budget.check(has_evaluation=evaluation is not None, has_measured=measured is not None)
    model, folder_name = pipelines.opened(model)
    with BundleWriter(output, force=force, source=source, license=license) as writer:
        origin = open_source(model, recipe.source)
        reporter.talk(step("Read", Path(model).name, f"{origin.nbytes / 1000:.1f} kB, {origin.count}"))
        for note in origin.notes:
            reporter.warn(note, "")
        if broken := origin.nan_weights():
            reporter.warn(f"Weights hold NaN: {listed(broken)}; what depends on them is NaN too", "train it again")
        run = _Run(origin, checked_name(name, folder_name or origin.name), version, recipe, writer, reporter, times)
        run.found = pipelines.find_definition(model, origin, pipelines.Asked(task, preprocess, labels), reporter)
        del origin  # a copy of the weights
        run.check_support()
        data, ranges = run.choose_inputs(calibration, evaluation)
        run.check_batch(data)
        data, outputs = reference_outputs(data, run.reference.run, reporter)
        metric = choose_metric(recipe.budget, data, outputs, reporter)

        run.golden = golden.count(data.calls, outputs, run.least_bytes, recipe.goldens)
        run.measure_own_error(data.calls, outputs)
        proofs = golden.examples(data.first(run.golden), outputs[: run.golden], run.least_bytes)
        writer.add(EXAMPLES_NAME, safetensors.write_examples(proofs))
        del proofs
        if run.found is not None:
            for path, content in run.found.all_files().items():
                writer.add(path, content)
        elif labels is not None:
            writer.add(LABELS_NAME, read_labels(labels, run.model.outputs[0]))
        add_samples(writer, samples)
        run.add_reference(data, outputs)
        run.describe(writer.read(LABELS_NAME))
        made = run.make(ranges, data, outputs, metric)
        run.write_manifest([variant for variant, _ in made])  # engines load the variants by it
        variants = run.measure(made, data, outputs, metric)
        kept = [one.variant for one in variants if one.is_kept]
        revision = run.write_manifest(kept)
        if run.found is not None and run.add_vectors():
            revision = run.write_manifest(kept)

        result = Conversion(
            writer.path,
            run.name,
            revision,
            writer.size,
            tuple(variants),
            run.not_made,
            str(data),
            metric.name if data.is_judged or recipe.budget.metric or recipe.budget.max_loss is not None else "",
            tuple(weight.label for weight in run.mixed.guilty) if run.mixed else (),
            run.missed,
            {one.id: run.layers[one.id] for one in kept if one.id in run.layers},
        )
        writer.write_quality(quality_json.document(result, data, ranges, run.mixed, times))
        writer.commit()
    if report is not None:
        html.save(report, html.write(result, run.mixed, data))
    if result.missed:
        raise AccuracyError(
            f"{result.missed}; `{result.path}` holds it",
            hint="allow a larger file, more time or memory, or more loss",
            bundle=str(result.path),
        )
    return result


class _Run:
    """One conversion on its way: the model, where the bundle is written, and what could not be made so far."""

    def __init__(
        self,
        model: Source,
        name: str,
        version: str,
        recipe: Recipe,
        writer: BundleWriter,
        reporter: Reporter,
        times: DeviceTimes | None,
    ) -> None:
        self.model = model
        self.name = name
        self.reference = model.reference()
        self._plans = recipe.plans(model.precision, model.format)
        self.not_made: dict[str, str] = {}
        self.mixed: MixedModel | None = None
        self.layers: dict[str, tuple[Layer, ...]] = {}  # of what was searched, by the variant's id
        self.missed = ""
        self.found: Found | None = None  # what stands before and after the model
        self._version = version
        self._recipe = recipe
        self._writer = writer
        self._reporter = reporter
        self._times = times
        # The source itself: without it there is nothing to compare with, so it is always kept.
        self._source_id = f"{model.format}/{model.precision}"
        self._graph: FloatGraph | None = None
        self.golden = 1  # how many of the first calls are golden examples
        self._own: dict[str, Parity] = {}  # the source's own error, by output
        # The TFLite files that compiled variants are made of.
        self._wanted_again = {f"tflite/{plan.precision}" for plan in self._plans if plan.format == "compiled"}
        self._tflite_files: dict[str, Encoded] = {}

    @property
    def least_bytes(self) -> float:
        """How many bytes the variants will have at least."""
        precisions = [plan.precision for plan in self._plans if plan.id not in self.not_made]
        return golden.least_bytes(self.model.nbytes, self.model.precision, precisions)

    def choose_inputs(
        self, calibration: FilePath | None, evaluation: FilePath | None
    ) -> tuple[CalibrationSet, CalibrationSet]:
        """Return the inputs to measure on, and those that give int8 its ranges."""
        wants_ranges = self.model.precision == "fp32" and any(
            plan.word != "int8-dynamic" and plan.precision == "int8" for plan in self._plans
        )
        ranges = None if calibration is None else self._read(calibration)
        data = None if evaluation is None else self._read(evaluation)
        if ranges is None and data is None:
            ranges = self._made_up()
            source = "random inputs" if ranges.origin == RANDOM else ranges.origin
            self._reporter.warn(
                f"There are no calibration data: the ranges of int8, and all figures, come from {source} and say "
                "little about real ones"
                if wants_ranges
                else f"There are no evaluation data: all figures come from {source}",
                f"{'--calibration' if wants_ranges else '--eval'} {self._data_wanted()}",
            )
        elif ranges is None and wants_ranges:
            self._reporter.warn(
                "The ranges of int8 come from the evaluation data: its figures look a little better than they are",
                "--calibration FILE.npz, with other data",
            )
        chosen = ranges or data
        if chosen is None:
            raise AssertionError("one of both is there by now")
        return data or chosen, chosen.first(MAX_CALIBRATION_CALLS)

    def _data_wanted(self) -> str:
        """Say which files hold data for this model."""
        if self.found is not None and get_task(self.found.definition.task).takes == "text":
            return 'TEXTS.jsonl, with {"text": "..."} on each line'
        return "FILE.npz, with an array for each of " + ", ".join(str(spec) for spec in self.model.inputs)

    def _made_up(self) -> CalibrationSet:
        """Make inputs: of sentences for a model with a tokenizer, of the categories of a table, else at random."""
        framework = self.model.framework if isinstance(self.model, SourceModel) else None
        if framework is not None and framework.draws:
            return rows_of(framework.examples)
        found = None if self.found is None else raw.made_up(self.found, self.model.inputs, self.model.outputs)
        if found is not None:
            try:
                for call in found.calls:
                    self.reference.run(call)
            except ConversionError:  # such as a vocabulary larger than the model's
                found = None
        return found or random_set_that_runs(self.model.inputs, self.reference.run)

    def _read(self, path: FilePath) -> CalibrationSet:
        """Read samples: raw data go through the pipeline's own steps."""
        if self.found is not None and raw.is_raw(path, self.found):
            return raw.read_raw(path, self.found, self.model.inputs, self.model.outputs)
        return read_set(path, self.model.inputs)

    def check_support(self) -> None:
        """Clean the model up and say what is not supported where, before any work."""
        self.model, removed = self.model.cleaned(self._recipe.source.opset, prunes=self._recipe.prunes)
        if removed is not None:
            said = ", ".join(f"{count} of {name}" for name, count in removed.items()) or "none is constant"
            self._reporter.talk(step("Pruned", "channels:   ", said))
        found = self.model.support(self._recipe.targets, [plan.format for plan in self._plans])
        self._graph, self._is_table = found.graph, found.is_table
        for line in support.table(found.lacks) if found.lacks else ():
            self._reporter.talk(line)
        if any(support.PAGE in lack.where for lack in found.lacks):
            self._reporter.warn("The page's engine cannot run this model", "--target pi")
        for plan in self._plans:
            own_id = f"tflite/{plan.precision}" if plan.format == "compiled" else plan.id
            is_made_of_graph = plan.format != "onnx" and self.model.own_file(own_id) is None
            if plan.format == "compiled" and plan.precision == "fp32" and found.is_table:
                continue
            if is_made_of_graph and found.tflite is not None:
                self._leave_out(plan.id, found.tflite)
            if plan.format == "onnx" and found.onnx is not None:
                self._leave_out(plan.id, found.onnx)
        if found.onnx is not None and {*self.not_made} == {plan.id for plan in self._plans}:
            raise found.onnx

    def check_batch(self, data: CalibrationSet) -> None:
        """Fix the batch of the TFLite files where two samples at once would give other numbers than the model does."""
        if self._graph is None or self.model.own_file(self._source_id) is not None:
            return
        if not is_right_for_two(self._graph, data.calls, self.reference.run):
            self._reporter.warn("TFLite is right for one sample at a time only: its batch is fixed to 1", "")
            self._graph = self.model.graph_for_one(self._recipe.targets)

    def measure_own_error(
        self, calls: Sequence[Mapping[str, np.ndarray]], outputs: Sequence[Mapping[str, np.ndarray]]
    ) -> None:
        """Measure the source against itself: no variant must be nearer to it than that."""

        def load_optimised() -> Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]:
            return self.model.reference(optimised=True).run

        loads_again = self.model.nbytes <= MAX_BYTES and self.model.is_engines_own
        self._own = own_error(self.reference.run, load_optimised if loads_again else None, calls, outputs, self.golden)

    def add_reference(self, data: CalibrationSet, outputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Keep what the data look like, where they are somebody's own and enough."""
        if data.is_made_up or not self._recipe.keeps_reference:
            return
        names, categories = ({}, {}) if self.found is None else described(self.found.definition)
        labels = self._writer.read(LABELS_NAME)
        classes = json.loads(labels) if labels else ()
        runs = list(zip(data.calls, outputs, strict=True))
        try:
            reference = make_reference(runs, self.model.inputs, self.model.outputs, names, categories, classes)
        except InputError:  # fewer than 200 rows, or nothing that can be watched, such as tokens
            return
        self._writer.add(REFERENCE, reference)
        rows = read_reference(reference).rows
        self._reporter.talk(
            step("Kept", "reference:", f"{rows:,} rows of {data.origin}, {len(reference) / 1000:.1f} kB")
        )

    def describe(self, labels: bytes | None) -> None:
        """Let the TFLite files say what they are."""
        if self._graph is not None:
            classes = json.loads(labels) if labels else ()
            self.model.describe(self._graph, self.name, self._version, classes, keep_names=self._recipe.keep_names)

    def make(
        self,
        ranges: CalibrationSet,
        data: CalibrationSet,
        outputs: Sequence[Mapping[str, np.ndarray]],
        metric: Metric,
    ) -> list[tuple[Variant, int]]:
        """Write the file of each variant; return what was made, with its size."""
        left = [plan.format for plan in self._plans if plan.id not in self.not_made]
        self.model, cleaned = self.model.release(left)
        del self.reference  # its session holds another copy of the weights
        pairs = [State(output, given) for output, given in find_pairs(cleaned).items()]
        if pairs:
            named = ", ".join(f"{pair.output} -> {pair.input}" for pair in pairs)
            self._reporter.talk(step("Found", "state:", f"{named}; stream() feeds it back"))
        made: list[tuple[Variant, int]] = []
        if self.model.precision != "fp32":
            self._reporter.talk(step("Kept", "unchanged:", f"the weights are {self.model.precision} already"))
        judges = (data, self._judge(outputs, metric), self._reporter)
        # TFLite first: its graph is another copy of the weights, which the search for ONNX does without.
        for plan in sorted(self._plans, key=lambda plan: plan.format == "onnx"):
            if plan.id in self.not_made:
                continue
            try:
                own = self.model.own_file(plan.id)
                if own is not None:
                    encoded = Encoded(own, f"{self.model.count}, as it came")
                elif plan.format == "tflite" and plan.precision == "mixed":
                    tflite_search = TFLiteSearch(self._tflite_graph(), *judges)
                    encoded = tflite_search.run(ranges)
                    self.layers[plan.id] = tflite_search.layers
                elif plan.format == "tflite":
                    specs = (self.model.inputs, self.model.outputs)
                    encoded = encode_tflite(plan, self._tflite_graph(), specs, ranges)
                elif plan.format == "compiled" and self._is_table:
                    encoded = encode_table(plan, cleaned, is_asked_for=self._is_compiled_asked_for)
                elif plan.format == "compiled":
                    specs = (self.model.inputs, self.model.outputs)
                    encoded = encode_compiled(
                        plan, self._tflite_file(plan, specs, ranges), specs, is_asked_for=self._is_compiled_asked_for
                    )
                elif plan.precision == "mixed":
                    self._graph = None
                    job = MixedSearch(cleaned, *judges, is_cached=self._recipe.is_cached, times=self._times)
                    encoded = self._search(job, ranges)
                elif plan.id == "onnx/int8-dynamic" and self._recipe.budget.is_set:
                    encoded = self._search_dynamic(DynamicSearch(cleaned, *judges))
                else:
                    encoded = encode(plan, self.model.precision, cleaned, ranges, self._recipe.calibrate)
            except (ConversionError, UnsupportedModel) as error:
                if plan.id == self._source_id:
                    raise
                self._leave_out(plan.id, error)
                continue
            if plan.id in self._wanted_again and not plan.integer_interface:
                self._tflite_files[plan.id] = encoded
            self._writer.add(plan.file, encoded.data)
            variant = Variant(
                plan.id,
                plan.format,
                plan.precision,
                plan.file,
                targets=encoded.targets or plan.targets,
                options=encoded.options or plan.options,
                inputs=encoded.inputs,
                outputs=encoded.outputs,
                state=[State()] if self._is_stateful(plan, encoded) else pairs,
            )
            made.append((variant, len(encoded.data)))
            note = f", {encoded.note}" if encoded.note else ""
            self._reporter.talk(step("Converted", f"{plan.id:<12}", f"{len(encoded.data) / 1000:.1f} kB{note}"))
            del encoded  # the next variant needs the memory
        order = [plan.id for plan in self._plans]
        made.sort(key=lambda one: order.index(one[0].id))
        if not made:
            raise ConversionError(
                f"No variant of `{self.name}` can be made: {'; '.join(self.not_made.values())}",
                hint="leave --precision, --format and --target out, to see what can be made",
            )
        return made

    def measure(
        self,
        made: Sequence[tuple[Variant, int]],
        data: CalibrationSet,
        outputs: Sequence[Mapping[str, np.ndarray]],
        metric: Metric,
    ) -> list[ConvertedVariant]:
        """Measure the variants in the folder, and take those out again that are not good enough."""
        judge = self._judge(outputs, metric)
        definition = None if self.found is None else self.found.definition
        judge.vectors = TextVectors.of(definition, data, outputs)
        own_file = self._source_id if self.model.own_file(self._source_id) is not None else ""
        bench = Bench(self._writer.folder, data, judge, self._own, self._times, self._reporter)
        measured, failed = bench.run(made, own_file)
        for variant, error in failed:
            self._leave_out(variant.id, error)
            self._writer.drop(variant.file)
        measured, self.missed = choose(measured, self._source_id, self._recipe, self._times)
        for one in measured:
            one.variant.parity = {name: dict(figures) for name, figures in one.quality.known.items()}
            verdict = one.quality.verdict
            if not one.is_kept:
                hint = "calibrate on real data, or keep it by --keep-all" if data.is_made_up else "--keep-all keeps it"
                self._reporter.warn(f"{one.variant.id} is left out: {verdict.reason}", hint)
                self._writer.drop(one.variant.file)
            elif verdict.word != "ok":
                self._reporter.warn(f"{one.variant.id}: {verdict.reason}", "")
        if data.origin == RANDOM:
            measured, marked = mark_untested(measured, self.model.precision, self._recipe)
            if marked:
                self._reporter.warn(f"{', '.join(marked)}: {UNTESTED}", f"--calibration {self._data_wanted()}")
        if not any(one.is_kept for one in measured):
            raise AccuracyError(
                f"No variant of `{self.name}` is good enough", hint="--keep-all writes them nevertheless"
            )
        return measured

    def write_manifest(self, variants: Sequence[Variant]) -> str:
        """Write the manifest and return its sha256."""
        definition = None if self.found is None else self.found.definition
        specs = (self.model.inputs, self.model.outputs)
        return self._writer.write_manifest(self.name, self._version, *specs, variants, definition)

    def add_vectors(self) -> bool:
        """Write the vectors that prove the pipeline; tell whether there are some.

        A pipeline that fails on every made-up input is kept without vectors.
        """
        if self.found is None:
            return False
        definition = self.found.definition
        try:
            data = pipeline_vectors.make(self._writer.folder, self._source_id)
        except EdgeInferError as error:
            self._reporter.warn(f"Nothing proves the pipeline: {error.message}", error.hint)
            return False
        self._writer.add(vectors.PATH, data)
        self.found = self.found._replace(definition=definition._replace(vectors=vectors.PATH))
        return True

    def _tflite_file(self, plan: VariantPlan, specs: tuple[Specs, Specs], ranges: CalibrationSet) -> Encoded:
        """Return the TFLite file that a compiled variant is made of, written now unless it was before."""
        id_ = f"tflite/{plan.precision}"
        if id_ in self._tflite_files:
            return self._tflite_files.pop(id_)
        own = self.model.own_file(id_)
        if own is not None:
            return Encoded(own)
        graph = self._tflite_graph()
        check_size(graph.graph)
        source = replace(plan, format="tflite", targets=("any",))
        return encode_tflite(source, graph, specs, ranges)

    def _is_stateful(self, plan: VariantPlan, encoded: Encoded) -> bool:
        """Tell whether a variant keeps values of its own: what the source does, not an operator that starts anew."""
        if self.model.format != "tflite" or plan.format == "onnx":
            return False
        if plan.format == "compiled":
            return bool(read_compiled(encoded.data, plan.id).program.state)
        return hidden_state(encoded.data) != ""

    @property
    def _is_compiled_asked_for(self) -> bool:
        return "compiled" in self._recipe.formats

    def _tflite_graph(self) -> FloatGraph:
        if self._graph is None:
            raise AssertionError("what keeps TFLite from being written has left its variants out")
        return self._graph

    def _search(self, job: MixedSearch, ranking: CalibrationSet) -> Encoded:
        """Search the smallest file within the budget, and name what had to stay float."""
        self.mixed = job.run(ranking)
        self.layers["onnx/mixed"] = self.mixed.layers
        said, guilty = said_of(self.mixed)
        self._reporter.talk(said)
        if guilty:
            self._reporter.talk(step("Kept", "in float:", guilty))
        return Encoded(self.mixed.data, options=self.mixed.options)

    def _search_dynamic(self, job: DynamicSearch) -> Encoded:
        """Search the fastest dynamic int8 within the budget."""
        found = job.run()
        # Pages compute blocks in float, and slowly.
        return Encoded(found.data, found.note if found.blocked else "", targets=("pi",) if found.blocked else None)

    def _judge(self, outputs: Sequence[Mapping[str, np.ndarray]], metric: Metric) -> Judge:
        return Judge(outputs, metric, self._recipe.budget, self.golden)

    def _leave_out(self, id_: str, error: EdgeInferError) -> None:
        is_said = error.message in self.not_made.values()
        self.not_made[id_] = error.message
        if is_said:  # what keeps a format from being written keeps all its precisions
            return
        if id_.startswith("compiled/") and not self._is_compiled_asked_for:  # most models are no small networks
            self._reporter.talk(step("Passed", "over:", f"{id_}: {error.message}"))
            return
        self._reporter.warn(f"{id_} is left out: {error.message}", error.hint)
