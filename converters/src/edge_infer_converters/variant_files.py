"""The files of a conversion's variants: each is encoded as its plan says, or searched within the budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edge_infer.bundle.variant import State, Variant
from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer.formats.program import read_compiled
from edge_infer.formats.tflite_tables import hidden_state
from edge_infer_converters.compilation import encode_compiled, encode_table
from edge_infer_converters.report.reporter import step
from edge_infer_converters.search.dynamic import DynamicSearch
from edge_infer_converters.search.mixed_onnx import MixedModel, MixedSearch, said_of
from edge_infer_converters.search.mixed_tflite import TFLiteSearch
from edge_infer_converters.search.pruning import prune_within
from edge_infer_converters.search.static_layers import static_layers
from edge_infer_converters.sources.state_pairs import find_pairs
from edge_infer_converters.writers.compiled.writer import check_size
from edge_infer_converters.writers.encode import Encoded, apart_of, encode, encode_tflite, needs_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.bundle_writer import BundleWriter
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.judge import Judge
    from edge_infer_converters.measure.speed import DeviceTimes
    from edge_infer_converters.prepared import Prepared
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.search.layers import Layer
    from edge_infer_converters.writers.compiled.writer import Compiled
    from edge_infer_converters.writers.plan import VariantPlan
    from edge_infer_converters.writers.tflite import FloatGraph

    Specs = tuple[TensorSpec, ...]

#: The variants that compute in int8 with ranges from calibration data.
_STATIC = ("onnx/int8", "tflite/int8")


class VariantFiles:
    """Writes the file of each variant into a bundle.

    Args:
        prepared: The source, and what to make of it.
        recipe: How to make it.
        writer: The bundle.
        ranges: The inputs that give int8 its ranges.
        data: The inputs that each trial of a search runs on.
        judge: Compares their outputs with the source's, within the budget.
        times: Times of the device, or None.
        reporter: The receiver of progress and warnings.

    Attributes:
        mixed: What the search of `onnx/mixed` ended with, or None.
        layers: Of what was searched the layers, by the variant's id.
        compiled: What is reported of compiled variants, by their ids.
    """

    def __init__(
        self,
        prepared: Prepared,
        recipe: Recipe,
        writer: BundleWriter,
        ranges: CalibrationSet,
        data: CalibrationSet,
        judge: Judge,
        times: DeviceTimes | None,
        reporter: Reporter,
    ) -> None:
        self.mixed: MixedModel | None = None
        self.layers: dict[str, tuple[Layer, ...]] = {}
        self.compiled: dict[str, Compiled] = {}
        self._prepared = prepared
        self._recipe = recipe
        self._writer = writer
        self._ranges = ranges
        self._judges = (data, judge, reporter)
        self._times = times
        self._reporter = reporter
        # The TFLite files that compiled variants are made of.
        self._wanted_again = {f"tflite/{plan.precision}" for plan in prepared.plans if plan.format == "compiled"}
        self._tflite_files: dict[str, Encoded] = {}
        self._ranges_by: dict[str, str] = {}  # of static int8

    def make(self) -> list[tuple[Variant, int]]:
        """Write the file of each variant; return what was made, with its size.

        Raises:
            ConversionError: Nothing can be made, or not the source itself.
        """
        prepared = self._prepared
        cleaned = prepared.release()
        pairs = [State(output, given) for output, given in find_pairs(cleaned).items()]
        if pairs:
            named = ", ".join(f"{pair.output} -> {pair.input}" for pair in pairs)
            self._reporter.talk(step("Found", "state:", f"{named}; stream() feeds it back"))
        if not prepared.model.is_float:
            self._reporter.talk(step("Kept", "unchanged:", f"the weights are {prepared.model.precision} already"))
        made: list[tuple[Variant, int]] = []
        # TFLite first: its graph is another copy of the weights, which the search for ONNX does without.
        for plan in sorted(prepared.plans, key=lambda plan: plan.format == "onnx"):
            if plan.id in prepared.left_out:
                continue
            try:
                encoded = self._encoded(plan, cleaned)
            except (ConversionError, UnsupportedModel) as error:
                if plan.id == prepared.source_id:
                    raise
                prepared.left_out.add(plan.id, error)
                continue
            if plan.id in self._wanted_again and not plan.integer_interface:
                self._tflite_files[plan.id] = encoded
            if plan.id in _STATIC:
                self._ranges_by[plan.id] = encoded.ranges_by
            self._writer.add(plan.file, encoded.data)
            variant, nbytes = self._variant(plan, encoded, pairs), len(encoded.data)
            if encoded.write_apart is not None:
                (path,) = variant.external
                encoded.write_apart(self._writer.folder / path)
                nbytes += self._writer.adopt(path)
                self._keep_from_pages(variant)
            made.append((variant, nbytes))
            if encoded.compiled is not None:
                self.compiled[plan.id] = encoded.compiled
            note = f", {encoded.note}" if encoded.note else ""
            self._reporter.talk(step("Converted", f"{plan.id:<13}", f"{nbytes / 1000:.1f} kB{note}"))
            del encoded  # the next variant needs the memory
        if self._recipe.measures_layers:
            self._measure_layers(cleaned, [variant.id for variant, _ in made])
        order = [plan.id for plan in prepared.plans]
        made.sort(key=lambda one: order.index(one[0].id))
        if not made:
            raise ConversionError(
                f"No variant of `{prepared.name}` can be made: {'; '.join(prepared.left_out.reasons.values())}",
                hint="leave --precision, --format and --target out, to see what can be made",
            )
        return made

    def _measure_layers(self, cleaned: onnx.ModelProto, made: Sequence[str]) -> None:
        """Measure the layers of static int8, once for formats with the same ranges: their scales are of one kind."""
        model = self._prepared.model
        static = [id_ for id_ in made if id_ in _STATIC]
        if not static or not model.is_float or model.format != "onnx" or model.in_files is not None:
            hint = "--precision int8, of a float model in ONNX that fits into memory"
            self._reporter.warn("No static int8 was made whose layers --layers could measure", hint)
            return
        for method in dict.fromkeys(self._ranges_by[id_] for id_ in static):
            layers = static_layers(cleaned, self._ranges.calls, self._reporter, method)
            self.layers |= {id_: layers for id_ in static if self._ranges_by[id_] == method}

    def _encoded(self, plan: VariantPlan, cleaned: onnx.ModelProto) -> Encoded:
        """Make the file of one plan."""
        prepared, recipe = self._prepared, self._recipe
        own = prepared.model.own_file(plan.id)
        if own is not None:
            return Encoded(own, f"{prepared.model.count}, as it came")
        if plan.format == "tflite" and plan.precision == "mixed":
            tflite_search = TFLiteSearch(self._graph(), *self._judges)
            encoded = tflite_search.run(self._ranges)
            self.layers[plan.id] = tflite_search.layers
            return encoded
        if plan.format == "tflite":
            with self._reporter.progress(f"Converting {plan.id}", None):
                data = (self._graph(), self._specs, self._ranges, recipe.calibrate)
                return encode_tflite(plan, *data)
        is_asked_for = prepared.left_out.is_compiled_asked_for
        if plan.format == "compiled" and prepared.is_table:
            return encode_table(plan, cleaned, is_asked_for=is_asked_for)
        if plan.format == "compiled":
            return encode_compiled(plan, self._tflite_file(plan), self._specs, is_asked_for=is_asked_for)
        in_files = prepared.model.in_files
        if plan.precision == "mixed" and in_files is not None:
            raise needs_memory("mixed")
        if plan.precision == "mixed":
            prepared.graph = None
            return self._search(cleaned)
        if plan.id == "onnx/int8-dynamic" and recipe.budget.is_set and in_files is None:
            found = DynamicSearch(cleaned, *self._judges).run()
            # Pages compute blocks in float, and slowly.
            return Encoded(found.data, found.note if found.blocked else "", targets=("pi",) if found.blocked else None)
        settings = (recipe.calibrate, in_files)
        source_precision = "fp32" if prepared.model.is_float else prepared.model.precision
        with self._reporter.progress(f"Converting {plan.id}", None):
            if plan.id == prepared.source_id and prepared.model.halves is not None:
                kept = encode(plan, plan.precision, prepared.model.halves, self._ranges)
                return kept._replace(note=f"{prepared.model.count}, as it came")
            return encode(
                plan,
                source_precision,
                cleaned,
                self._ranges,
                *settings,
                fits=prepared.is_calibrated,
            )

    def _search(self, cleaned: onnx.ModelProto) -> Encoded:
        """Search the smallest file within the budget, and name what had to stay float."""
        found = self._mixed(cleaned)
        share = self._recipe.prunes_weak
        pruned = prune_within(cleaned, self._ranges, share, *self._judges) if share else None
        if pruned is not None:
            try:
                smaller = self._mixed(pruned)
            except ConversionError as error:
                self._reporter.talk(step("Gave up", "pruning:", error.message))
            else:
                found = min(found, smaller, key=lambda one: one.trial.nbytes)
                word = "kept" if found is smaller else f"not kept: {smaller.trial.nbytes / 1000:.1f} kB are no gain"
                self._reporter.talk(step("Pruned", "onnx/mixed  ", word))
        self.mixed = found
        self.layers["onnx/mixed"] = found.layers
        said, guilty = said_of(found)
        self._reporter.talk(said)
        if guilty:
            self._reporter.talk(step("Kept", "in float:", guilty))
        return Encoded(found.data, options=found.options)

    def _mixed(self, model: onnx.ModelProto) -> MixedModel:
        is_cached, palettes = self._recipe.is_cached, self._recipe.transport == "palette"
        fits = self._prepared.is_calibrated
        search = MixedSearch(model, *self._judges, is_cached=is_cached, times=self._times, palettes=palettes, fits=fits)
        return search.run(self._ranges)

    def _variant(self, plan: VariantPlan, encoded: Encoded, pairs: list[State]) -> Variant:
        return Variant(
            plan.id,
            plan.format,
            plan.precision,
            plan.file,
            external=() if encoded.write_apart is None else (apart_of(plan.file),),
            targets=encoded.targets or plan.targets,
            options=encoded.options or plan.options,
            inputs=encoded.inputs,
            outputs=encoded.outputs,
            state=[State()] if self._is_stateful(plan, encoded) else pairs,
        )

    def _keep_from_pages(self, variant: Variant) -> None:
        """Offer a variant with weights beside it to no page, whose engine reads one file."""
        others = tuple(target for target in variant.targets if target != "web")
        if others:
            variant.targets = others
        else:
            self._reporter.warn(
                f"{variant.id}: no page can read it, as its weights are in a file beside it", "--target pi"
            )

    def _tflite_file(self, plan: VariantPlan) -> Encoded:
        """Return the TFLite file that a compiled variant is made of, written now unless it was before."""
        id_ = f"tflite/{plan.precision}"
        if id_ in self._tflite_files:
            return self._tflite_files.pop(id_)
        own = self._prepared.model.own_file(id_)
        if own is not None:
            return Encoded(own)
        graph = self._graph()
        check_size(graph.graph)
        source = replace(plan, format="tflite", targets=("any",))
        data = (graph, self._specs, self._ranges, self._recipe.calibrate)
        return encode_tflite(source, *data)

    def _is_stateful(self, plan: VariantPlan, encoded: Encoded) -> bool:
        """Tell whether a variant keeps values of its own: what the source does, not an operator that starts anew."""
        if self._prepared.model.format != "tflite" or plan.format == "onnx":
            return False
        if plan.format == "compiled":
            return bool(read_compiled(encoded.data, plan.id).program.state)
        return hidden_state(encoded.data) != ""

    @property
    def _specs(self) -> tuple[Specs, Specs]:
        return self._prepared.model.inputs, self._prepared.model.outputs

    def _graph(self) -> FloatGraph:
        if self._prepared.graph is None:
            raise AssertionError("what keeps TFLite from being written has left its variants out")
        return self._prepared.graph
