"""Measure all variants of a bundle: quality, latency and saturation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BackendError, ConversionError, ExecutionError
from edge_infer.platform.cpu import read_processor
from edge_infer.runtime.selection import exact_engine
from edge_infer_converters.measure import latency, saturation
from edge_infer_converters.measure.crash_test import crashing
from edge_infer_converters.measure.speed import COST_MODEL, speeds
from edge_infer_converters.measure.variant_quality import measure_quality
from edge_infer_converters.report.reporter import decibels, step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edge_infer.bundle.variant import Variant
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.judge import Judge
    from edge_infer_converters.measure.latency import Latency
    from edge_infer_converters.measure.own_error import OwnError
    from edge_infer_converters.measure.speed import DeviceTimes, Speed
    from edge_infer_converters.measure.variant_quality import Quality
    from edge_infer_converters.report.reporter import Reporter


@dataclass(frozen=True, slots=True)
class ConvertedVariant:
    """A variant that was made and measured.

    Attributes:
        variant: What the manifest says of it.
        nbytes: The size of its file.
        quality: How good it is.
        is_kept: Whether it is in the bundle; one that is not good enough is left out.
        speed: What decides whether it is too slow, or None where nothing tells.
        latency: How long it took here against the fp32 variant, or None where there is none to compare with.
        saturation: What int8 loses on CPUs without VNNI, or None where it does not compute in int8.
    """

    variant: Variant
    nbytes: int
    quality: Quality
    is_kept: bool
    speed: Speed | None = None
    latency: Latency | None = None
    saturation: saturation.Saturation | None = None

    def to_json(self) -> dict[str, Any]:
        """Describe this as `quality.json` does."""
        return {
            "size": self.nbytes,
            **self.quality.to_json(),
            "speed": self.speed.to_json() if self.speed else None,
            "latency": self.latency.to_json() if self.latency else None,
            "saturation": self.saturation.to_json() if self.saturation else None,
        }


class Bench:
    """Runs the variants of a bundle that is being written.

    Args:
        folder: The bundle's folder, its manifest written.
        data: The inputs to measure on.
        judge: The source's outputs, the metric and the budget.
        own: The source's own error.
        times: Times of the device, or None.
        reporter: The receiver of progress and warnings.
    """

    def __init__(
        self,
        folder: Path,
        data: CalibrationSet,
        judge: Judge,
        own: OwnError,
        times: DeviceTimes | None,
        reporter: Reporter,
    ) -> None:
        self._folder = folder
        self._data = data
        self._judge = judge
        self._golden = judge.golden
        self._own = own
        self._times = times
        self._reporter = reporter

    def run(
        self, made: Sequence[tuple[Variant, int]], own_file: str = ""
    ) -> tuple[list[ConvertedVariant], list[tuple[Variant, BackendError]]]:
        """Measure each variant.

        Args:
            made: The variants with the sizes of their files.
            own_file: The id of the one that is the source's own file, where one is.

        Returns:
            Those that run, with their figures, and those that do not, with the reason.
        """
        judge = self._judge
        measured: list[ConvertedVariant] = []
        failed: list[tuple[Variant, BackendError]] = []
        fatal = crashing(self._folder, [variant.id for variant, _ in made])
        for variant, nbytes in made:
            try:
                if variant.id in fatal:
                    raise ExecutionError(f"{exact_engine(variant.format)} crashes on it")
                with self._reporter.progress(f"Measuring {variant.id} on {self._data}", None):
                    quality = measure_quality(
                        *(self._folder, variant, self._data, judge.references),
                        *(judge.metric, judge.budget, self._own),
                        is_source=variant.id == own_file,
                        vectors=judge.vectors,
                    )
            except BackendError as error:
                failed.append((variant, error))
                continue
            figures = f"{decibels(quality.parity.sqnr_db)} on {quality.engine}"
            if quality.vectors is not None:
                figures += f"; {quality.vectors}"
            self._reporter.talk(step("Measured", f"{variant.id:<13}", figures))
            measured.append(ConvertedVariant(variant, nbytes, quality, True))
        return self._timed(measured), failed

    def _timed(self, measured: Sequence[ConvertedVariant]) -> list[ConvertedVariant]:
        variants, call = [one.variant for one in measured], self._data.calls[0]
        with self._reporter.progress("Timing each variant against fp32", None):
            times = latency.measure(self._folder, variants, call)
        shapes = {name: array.shape for name, array in call.items()}
        known = speeds(self._folder, variants, shapes, self._times)
        if self._times is not None and not any(one.origin != COST_MODEL for one in known.values()):
            self._reporter.warn(
                f"`{self._times.name}` has times of none of these variants against fp32: the cost model decides",
                "edge-infer tune, with a bundle of this model made by --keep-all",
            )
        for id_, taken in times.items():
            if taken.is_slow and not (id_ in known and known[id_].is_slow):
                self._reporter.warn(f"{id_} is slower than float here: {taken}", "--measured, with times of the device")
        return [
            replace(
                one,
                speed=known.get(one.variant.id),
                latency=times.get(one.variant.id),
                saturation=self._saturation(one.variant),
            )
            for one in measured
        ]

    def _saturation(self, variant: Variant) -> saturation.Saturation | None:
        """Run an int8 file on plain kernels and in precise mode, and warn where they differ."""
        if variant.format != "onnx" or variant.precision != "int8":
            return None
        calls, references = self._data.calls[: self._golden], self._judge.references[: self._golden]
        try:
            found = saturation.measure(self._folder / variant.file, calls, references, read_processor())
        except ConversionError as error:
            self._reporter.warn(f"{variant.id}: its loss by saturation was not measured: {error.message}", "")
            return None
        if found.gap_db >= saturation.MIN_GAP_DB:
            self._reporter.warn(
                f"{variant.id} loses {found.gap_db:.1f} dB by saturation on x86 CPUs without VNNI, such as this one, "
                "where an engine does not run it in precise mode",
                "--precision int8-reduced keeps its numbers there",
            )
        return found
