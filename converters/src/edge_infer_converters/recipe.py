"""What a conversion makes: which formats and precisions, under which ids and file names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer_converters.budget import Budget
from edge_infer_converters.steps.int8_static import ENGINE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How ranges are found; `edge_infer_converters.ranges` does it, which loads the engines.
CALIBRATIONS = ("minmax", "percentile", "mse", "auto")
FORMATS = ("onnx", "tflite")
PRECISIONS = ("fp32", "fp16", "int8")
#: What can be asked for: `auto` stands for `AUTO`, `int8-dynamic` takes the ranges of values from each call.
#: `int8-reduced` keeps weights within 7 bits, for x86 CPUs without VNNI.
WORDS = (*PRECISIONS, "int8-dynamic", "int8-reduced", "int4", "mixed", "auto")
AUTO = ("fp32", "fp16", "int8", "mixed")


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """One variant to make.

    Attributes:
        format: `onnx` or `tflite`.
        precision: What its weights are stored in.
        file: Its path in the bundle; ONNX files are named as transformers.js names them.
        targets: The kinds of place that it is for.
        options: Per backend, the engine settings that parity needs.
        word: What it is asked for as, where that is not its precision.
    """

    format: str
    precision: str
    file: str
    targets: tuple[str, ...]
    options: Mapping[str, Mapping[str, str]]
    word: str = ""

    @property
    def id(self) -> str:
        """Its name in the bundle: `onnx/int8`."""
        return f"{self.format}/{self.word or self.precision}"


_ALL = (
    VariantPlan("onnx", "fp32", "onnx/model.onnx", ("any",), {}),
    # CPUs convert half precision back and forth: it saves bytes there, not time.
    VariantPlan("onnx", "fp16", "onnx/model_fp16.onnx", ("cuda", "web"), {}),
    VariantPlan("onnx", "int8", "onnx/model_int8.onnx", ("any",), ENGINE_OPTIONS),
    VariantPlan("onnx", "int8", "onnx/model_quantized.onnx", ("any",), ENGINE_OPTIONS, "int8-dynamic"),
    # Pages, ARM and x86 with VNNI lose 1 to 5 dB by it and gain nothing: taken by name only.
    VariantPlan("onnx", "int8", "onnx/model_int8_reduced.onnx", (), {}, "int8-reduced"),
    VariantPlan("onnx", "int4", "onnx/model_q4.onnx", ("any",), {}),
    VariantPlan("onnx", "mixed", "onnx/model_mixed.onnx", ("any",), {}),
    VariantPlan("tflite", "fp32", "tflite/model.tflite", ("any",), {}),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make of a model.

    Attributes:
        formats: Which formats.
        precisions: Which precisions, of `WORDS`.
        keep_all: Whether to keep a variant that is not as good as it must be.
        budget: What each variant must keep, and what `mixed` is searched for.
        calibrate: How static int8 finds its ranges, one of `ranges.WORDS`.
        is_cached: Whether a search keeps its figures for the next, in the user's cache folder.
    """

    formats: tuple[str, ...] = FORMATS
    precisions: tuple[str, ...] = PRECISIONS
    keep_all: bool = False
    budget: Budget = field(default_factory=Budget)
    calibrate: str = "minmax"
    is_cached: bool = True

    def __post_init__(self) -> None:
        _check(self.formats, FORMATS, "Format")
        _check(self.precisions, WORDS, "Precision")
        _check((self.calibrate,), CALIBRATIONS, "Calibration")
        if not self.plans("fp32"):
            raise InputError(
                f"There is nothing to make: {listed(list(self.formats))} is not written in "
                f"{listed(list(self.precisions))}",
                hint="add --precision fp32",
                allowed=[plan.id for plan in _ALL],
            )

    def plans(self, source_precision: str) -> tuple[VariantPlan, ...]:
        """List the variants to make of a model whose weights come in this precision.

        A model that is quantized already is kept as it is.
        """
        if source_precision != "fp32":
            file = f"onnx/model_{source_precision}.onnx"
            return (VariantPlan("onnx", source_precision, file, ("any",), {}),)
        words = set(self.precisions) | (set(AUTO) if "auto" in self.precisions else set())
        return tuple(plan for plan in _ALL if plan.format in self.formats and (plan.word or plan.precision) in words)


def _check(given: Sequence[str], allowed: Sequence[str], what: str) -> None:
    for word in given:
        if word not in allowed:
            raise InputError(
                f"{what} `{word}` is not known; choose from {listed(list(allowed))}",
                hint=did_you_mean(word, list(allowed)),
                allowed=list(allowed),
            )
