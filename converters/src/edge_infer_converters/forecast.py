"""Say what a conversion would try, how large the files would be and how long it would take, and write nothing.

The source is read, cleaned up and checked as a conversion does it. One call is timed; the time of a variant is that of
all its calls at most, and calls of other shapes count by the operations that they need.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil, log2
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer_converters.measure import latency
from edge_infer_converters.measure.cost_model import multiplies_of
from edge_infer_converters.passes import weight_only
from edge_infer_converters.passes.graphs import nbytes_of
from edge_infer_converters.passes.palette import with_palettes
from edge_infer_converters.passes.ranges import METHODS
from edge_infer_converters.passes.weight import PALETTES
from edge_infer_converters.search import bit_allocation, dynamic, mixed_onnx, pruning
from edge_infer_converters.search.static_layers import CALLS as STATIC_CALLS
from edge_infer_converters.writers import onnx as onnx_writer
from edge_infer_converters.writers.encode import AUTO_CALLS, is_made_apart, needs_memory
from edge_infer_converters.writers.fitted_blocks import JUDGING, MIN_CALLS
from edge_infer_converters.writers.tflite.quantize import weights as tflite_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.prepared import Prepared
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.writers.plan import VariantPlan
    from edge_infer_converters.writers.tflite import FloatGraph

#: A probe ends after so many calls, or so long.
_PROBE_CALLS, _PROBE_S = 5, 1.0
#: Over how many shapes of calls the operations are counted, and up to which size of a model.
_MOST_SHAPES, _MAX_COUNTED = 4, 512_000_000
#: What a byte of a file takes to be made and loaded, and a variant however small; a process of its own runs each once.
_SECONDS_PER_BYTE, _VARIANT_S, _START_S = 1e-7, 0.3, 1.5
#: What kernels add to a compiled file, at most.
_KERNELS = 60_000


class VariantForecast(NamedTuple):
    """What would become of one variant.

    Attributes:
        id: Its id.
        file: Its path in the bundle.
        nbytes: The size of its file, at least and at most; None where nothing tells before it is made.
        how: What it would be made from.
        calls: How often the model would run for it, at most.
        seconds: How long it would take, at most.
    """

    id: str
    file: str
    nbytes: tuple[int, int] | None
    how: str
    calls: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Describe this for `--json`."""
        return {
            **self._asdict(),
            "nbytes": None if self.nbytes is None else list(self.nbytes),
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a conversion would try.

    Attributes:
        name: The model's name.
        source: The variant that holds the source itself.
        nbytes: The size of the source.
        count: Its operators, in words.
        data: The inputs that it would be measured on.
        ranges: Those that would give int8 its ranges.
        calibrate: By which method.
        budget: The limits of each variant, by name.
        call_ms: What one call of the source took here.
        multiplies: The multiply-adds of that call, or None where they were not counted.
        variants: What would be made, in the order of the manifest.
        left_out: Why a variant cannot be made, by its id.
        seconds: How long all of it would take, at most.
    """

    name: str
    source: str
    nbytes: int
    count: str
    data: str
    ranges: str
    calibrate: str
    budget: Mapping[str, Any]
    call_ms: float
    multiplies: int | None
    variants: tuple[VariantForecast, ...]
    left_out: Mapping[str, str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Describe this for `--json`."""
        names = ("name", "source", "nbytes", "count", "data", "ranges", "calibrate", "multiplies")
        return {
            **{name: getattr(self, name) for name in names},
            "budget": dict(self.budget),
            "call_ms": round(self.call_ms, 4),
            "variants": [one.to_json() for one in self.variants],
            "left_out": dict(self.left_out),
            "seconds": round(self.seconds, 2),
        }


def forecast(
    prepared: Prepared, recipe: Recipe, data: CalibrationSet, ranges: CalibrationSet, started: float
) -> Forecast:
    """Foresee a conversion.

    Args:
        prepared: The source; its engine lets the weights go.
        recipe: What to make of it.
        data: The inputs to measure on.
        ranges: Those that give int8 its ranges.
        started: When the work began, by `time.perf_counter`: what was done so far is done by a conversion too.
    """
    call_s = _probe(prepared, data)
    own = prepared.model.own_file(prepared.source_id)
    cleaned = prepared.release()
    model = own if own is not None and prepared.model.format == "tflite" else onnx_writer.write(cleaned)
    multiplies, scale = _operations(model, prepared.model.format, data, in_files=prepared.model.in_files is not None)
    so_far = time.perf_counter() - started
    job = _Job(prepared, recipe, cleaned, len(data.calls), len(ranges.calls), call_s * scale)
    left_out = prepared.left_out.reasons | job.without_weights() | job.without_memory()
    variants = tuple(job.variant(plan) for plan in prepared.left if plan.id not in left_out)
    # The source's outputs, and its own error.
    before = call_s * scale * (len(data.calls) + 2 * min(len(data.calls), 32))
    return Forecast(
        prepared.name,
        prepared.source_id,
        prepared.model.nbytes,
        prepared.model.count,
        str(data),
        str(ranges),
        recipe.calibrate,
        recipe.budget.limits,
        call_s * 1000,
        multiplies,
        variants,
        left_out,
        so_far + before + _START_S + sum(one.seconds for one in variants),
    )


def _probe(prepared: Prepared, data: CalibrationSet) -> float:
    """Time one call of the source; the first, which engines prepare in, is not counted."""
    prepared.reference.run(data.calls[0])
    times: list[float] = []
    while len(times) < _PROBE_CALLS and sum(times) < _PROBE_S:
        start = time.perf_counter()
        prepared.reference.run(data.calls[0])
        times.append(time.perf_counter() - start)
    return min(times)


def _operations(model: bytes, format_: str, data: CalibrationSet, *, in_files: bool) -> tuple[int | None, float]:
    """Return the multiply-adds of the first call, and those of the mean call as a multiple of them."""
    if in_files or len(model) > _MAX_COUNTED:
        return None, 1.0
    shapes = [{name: array.shape for name, array in call.items()} for call in data.calls]
    step = max(1, len(shapes) // _MOST_SHAPES)
    counted = {str(one): multiplies_of(model, format_, one) for one in (shapes[0], *shapes[::step])}
    first = counted[str(shapes[0])]
    return first, mean(counted[str(one)] for one in shapes[::step]) / first if first else 1.0


class _Job:
    """The work and the bytes of each variant."""

    def __init__(
        self, prepared: Prepared, recipe: Recipe, cleaned: onnx.ModelProto, data: int, ranges: int, call_s: float
    ) -> None:
        self._prepared = prepared
        self._recipe = recipe
        self._data = data
        self._ranges = ranges
        self._call_s = call_s
        is_large = prepared.model.in_files is not None  # the model lacks the values of its weights
        self._base = prepared.model.nbytes if is_large else nbytes_of(cleaned)
        is_float = prepared.model.is_float and not is_large
        self._weights = weight_only.weights_of(weight_only.prepare(cleaned)) if is_float and self._base else ()

    def without_weights(self) -> dict[str, str]:
        """Say which variants in fewer bits cannot be made: those of a float model without weights."""
        model = self._prepared.model
        if self._weights or not model.is_float or model.in_files is not None:
            return {}
        smaller = [plan.id for plan in self._prepared.left if plan.format == "onnx" and plan.precision != "fp32"]
        return dict.fromkeys(smaller, "The model has no float32 weights to make smaller")

    def without_memory(self) -> dict[str, str]:
        """Say which variants would need all weights of a model in memory whose weights stay in files."""
        model = self._prepared.model
        if model.in_files is None:
            return {}
        lost = [plan for plan in self._prepared.left if not is_made_apart(plan, model.precision)]
        return {plan.id: needs_memory(plan.word or plan.precision).message for plan in lost}

    def variant(self, plan: VariantPlan) -> VariantForecast:
        """Foresee one variant."""
        how, calls, files = self._work(plan)
        sizes = self._bytes(plan)
        measured = calls + self._data
        bytes_made = files * (sizes or (0, self._prepared.model.nbytes))[1]
        seconds = measured * self._call_s + bytes_made * _SECONDS_PER_BYTE + _VARIANT_S + self._timing_s(plan)
        return VariantForecast(plan.id, plan.file, sizes, how, measured, seconds)

    def _work(self, plan: VariantPlan) -> tuple[str, int, int]:
        """Return how a variant is made, the calls that this takes, and how many files are written."""
        if self._prepared.model.own_file(plan.id) is not None:
            return "the source's file, unchanged", 0, 1
        word = plan.word or plan.precision
        if plan.precision == "mixed":
            how, calls, files = self._searched(plan.format)
            return how, calls + self._fitting(plan), files
        if plan.id == "onnx/int8-dynamic" and self._recipe.budget.is_set:
            count = sum(one.kind == "matrix" for one in self._weights)
            trials = 2 + ceil(log2(count + 1))
            calls = count * min(self._data, dynamic.RANKING_CALLS) + trials * self._data
            return f"searched: {count} matrices, up to {trials} trials", calls, trials
        if self._prepared.model.is_float and word in ("int8", "int8-reduced", "int8x16"):
            tries = len(METHODS) if self._recipe.calibrate == "auto" else 1
            extra = (tries + 1) * min(self._ranges, AUTO_CALLS) if tries > 1 else 0
            extra += len(self._weights) * STATIC_CALLS if self._recipe.measures_layers else 0
            return (
                f"ranges from {self._ranges} samples by {self._recipe.calibrate}",
                tries * self._ranges + extra,
                tries,
            )
        if word == "int4" and self._fitting(plan):
            return f"weights alone, matrices fitted to {self._ranges} samples", self._fitting(plan), 1
        return "as the source says" if word == self._prepared.model.precision else "weights alone", 0, 1

    def _fitting(self, plan: VariantPlan) -> int:
        """Return the calls that fit matrices in int4: each is learnt from, or judges three models."""
        has_matrices = any(one.kind == "matrix" and "int4" in one.encodings for one in self._weights)
        if plan.format != "onnx" or not self._prepared.is_calibrated or not has_matrices or self._ranges < MIN_CALLS:
            return 0
        return self._ranges + 2 * (self._ranges // JUDGING)

    def _searched(self, format_: str) -> tuple[str, int, int]:
        integers = self._integers(format_)
        moves = sum(integers)
        few = moves <= bit_allocation.MAX_EXHAUSTIVE
        steps = moves if few else ceil(log2(moves))
        trials = 2 + steps + min(moves, bit_allocation.MAX_SINGLE_TRIALS) * (not few)
        ranked = (moves + 1) * min(self._ranges, mixed_onnx.RANKING_CALLS)
        calls = ranked + (trials + 1) * self._data
        if format_ == "onnx" and self._recipe.prunes_weak:
            calls = 2 * calls + self._ranges + len(pruning.PARTS) * self._data
        said = f"searched: {len(integers)} weights, up to {trials} trials"
        # In TFLite each is a file.
        return said, calls, 1 if format_ == "onnx" else moves + trials

    def _integers(self, format_: str) -> list[int]:
        """Count the integer encodings of each weight."""
        is_palette = self._recipe.transport == "palette"
        each = (
            [one.encodings for one in (with_palettes(self._weights) if is_palette else self._weights)]
            if format_ == "onnx"
            else [encodings for *_, encodings in tflite_weights.weights_of(_graph_of(self._prepared).graph)]
        )
        return [sum(one in ("int8", "int4", *PALETTES) for one in encodings) for encodings in each]

    def _bytes(self, plan: VariantPlan) -> tuple[int, int] | None:
        own = self._prepared.model.own_file(plan.id)
        if own is not None:
            return len(own), len(own)
        if plan.format == "compiled":
            if self._prepared.is_table or self._prepared.graph is None:
                return None
            low, high = self._tflite_bytes(self._prepared.graph, plan.precision)
            return low * 3 // 4, high + _KERNELS
        if not self._prepared.model.is_float:
            return None if plan.precision != self._prepared.model.precision else (self._base, self._base)
        if plan.format == "tflite":
            return self._tflite_bytes(_graph_of(self._prepared), plan.precision)
        return self._onnx_bytes(plan)

    def _onnx_bytes(self, plan: VariantPlan) -> tuple[int, int] | None:
        if self._prepared.model.in_files is not None:
            shares = {"fp32": 1.0, "fp16": 0.5, "int8": 0.25}
            return (round(self._base * shares[plan.precision]),) * 2 if plan.precision in shares else None

        def least(weight: Any, allowed: Sequence[str]) -> int:
            return min(int(weight.nbytes(one)) for one in weight.encodings if one in ("fp32", *allowed))

        rest = self._base - sum(one.nbytes("fp32") for one in self._weights)
        most = rest + sum(least(one, ("fp16",)) for one in self._weights)
        smallest = rest + sum(least(one, ("fp16", "int8", "int4")) for one in self._weights)
        if plan.precision == "mixed":
            return smallest, most
        if plan.precision == "int4":
            return smallest, smallest
        if plan.precision == "fp16":
            return most, most
        if plan.precision == "fp32":
            return self._base, self._base
        # What no product reads stays float; whether tables do depends on the method.
        integer = sum(int(one.nbytes("int8" if one.kind != "table" else "fp32")) for one in self._weights)
        tables = sum(int(one.nbytes("fp32")) - int(one.nbytes("int8")) for one in self._weights if one.kind == "table")
        return rest + integer - tables, rest + integer

    def _tflite_bytes(self, graph: FloatGraph, precision: str) -> tuple[int, int]:
        shares = {"fp32": 1.0, "fp16": 0.5, "int8": 0.25, "int4": 0.125}
        found = [
            (tensor.data.nbytes, encodings)
            for tensor, _, encodings in tflite_weights.weights_of(graph.graph)
            if tensor.data is not None
        ]
        rest = graph.nbytes - sum(nbytes for nbytes, _ in found)

        def stored(word: str) -> int:
            return rest + round(
                sum(nbytes * shares[word if word in encodings else encodings[-1]] for nbytes, encodings in found)
                if word != "fp32"
                else sum(nbytes for nbytes, _ in found)
            )

        return (stored("int4"), stored("fp16")) if precision == "mixed" else (stored(precision),) * 2

    def _timing_s(self, plan: VariantPlan) -> float:
        """Return how long its latency is compared with that of fp32."""
        if plan.precision == "fp32":
            return 0.0
        return latency.longest_s(self._call_s)


def _graph_of(prepared: Prepared) -> FloatGraph:
    if prepared.graph is None:
        raise AssertionError("what keeps TFLite from being written has left its variants out")
    return prepared.graph
