"""What a conversion makes: which formats and precisions, under which ids and file names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer_converters.measure.budget import Budget, parse_share, parse_size
from edge_infer_converters.sources.options import LAYOUTS, SourceOptions
from edge_infer_converters.targets import PLACES
from edge_infer_converters.writers.plan import PLANS, VariantPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from edge_infer_converters.sources.options import Shape

#: How ranges are found; `edge_infer_converters.passes.ranges` does it, which loads the engines.
CALIBRATIONS = ("minmax", "percentile", "mse", "auto")
FORMATS = ("onnx", "tflite")
#: What TFLite files of integers can have at both ends.
INTERFACES = ("float", "int8")
#: What can be asked for: `auto` stands for what suits the target and `mixed`; `int8-dynamic` takes the ranges of
#: values from each call; `int8-reduced` keeps weights within 7 bits, for x86 CPUs without VNNI; `int8x16` has values of
#: 16 bits beside weights of 8.
WORDS = ("fp32", "fp16", "int8", "int8-dynamic", "int8-reduced", "int8x16", "int4", "mixed", "auto")


# With integers in and out. Our adapter turns floats into them and back; LiteRT.js refuses such a file.
_INTEGER_INTERFACE_TARGETS = ("mcu", "pi")
_INTEGER_INTERFACE_OPTIONS = {"litert": {"interface": "float"}}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make of a model.

    Attributes:
        formats: Which formats; those that the targets read unless given.
        precisions: Which precisions, of `WORDS`; those that suit the targets unless given, and `mixed` with a budget.
        keep_all: Whether to keep a variant that is not as good as it must be.
        budget: What each variant must keep, and what `mixed` is searched for.
        targets: The kinds of place that the bundle is for, of `PLACES`.
        source: What is asked of the source: fixed dimensions, another operator set, the layout of images.
        tflite_io: `int8` for integer inputs and outputs of `tflite/int8`, or `float`; unless given, `int8` where
            microcontrollers are the only target.
        calibrate: How static int8 finds its ranges, one of `ranges.WORDS`.
        is_cached: Whether a search keeps its figures for the next, in the user's cache folder.
        keep_names: Whether tensors inside a TFLite file keep their names.
        prunes: Whether channels that are the same for every input are removed first.
    """

    formats: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    keep_all: bool = False
    budget: Budget = field(default_factory=Budget)
    targets: tuple[str, ...] = ("any",)
    source: SourceOptions = field(default_factory=SourceOptions)
    tflite_io: str = ""
    calibrate: str = "minmax"
    is_cached: bool = True
    keep_names: bool = False
    prunes: bool = False

    @classmethod
    def of(
        cls,
        *,
        target: str | Sequence[str] = "any",
        format: str | None = None,  # noqa: A002  the command's word
        precision: str | Sequence[str] | None = None,
        metric: str | None = None,
        max_loss: str | float | None = None,
        min_sqnr: float | None = None,
        max_size: str | int | None = None,
        max_latency_ratio: float | None = None,
        shape: Mapping[str, Shape] | None = None,
        opset: int | None = None,
        layout: str | None = None,
        tflite_io: str | None = None,
        keep_names: bool = False,
        calibrate: str = "minmax",
        prune_dead_channels: bool = False,
        keep_all: bool = False,
        cache: bool = True,
    ) -> Self:
        """Make one of the words that `edge-infer convert` takes; `api.convert` says what each means.

        Raises:
            InputError: A word is not known, or a share or size is none.
        """
        budget = Budget(
            parse_share(max_loss) if isinstance(max_loss, str) else max_loss,
            min_sqnr,
            parse_size(max_size) if isinstance(max_size, str) else max_size,
            metric,
            max_latency_ratio,
        )
        return cls(
            FORMATS if format == "both" else (format,) if format else (),
            _words(precision),
            keep_all,
            budget,
            _words(target) or ("any",),
            SourceOptions(shape or {}, opset, layout or "onnx"),
            tflite_io or "",
            keep_names=keep_names,
            calibrate=calibrate,
            is_cached=cache,
            prunes=prune_dead_channels,
        )

    def __post_init__(self) -> None:
        _check(self.formats, FORMATS, "Format")
        _check(self.precisions, WORDS, "Precision")
        _check((self.calibrate,), CALIBRATIONS, "Calibration")
        _check(self.targets, list(PLACES), "Target")
        _check((self.source.layout,), LAYOUTS, "Layout")
        _check((self.tflite_io,) if self.tflite_io else (), INTERFACES, "TFLite interface")
        for target in self.targets:
            if not any(self._wants(target, plan) for plan in PLANS):
                raise self._nothing_for(target)

    def plans(self, source_precision: str, source_format: str = "onnx") -> tuple[VariantPlan, ...]:
        """List the variants to make of a source, each with its targets; a quantized source is kept unchanged.

        Raises:
            InputError: The source is a TFLite file, and the recipe asks for ONNX only.
        """
        if source_format == "tflite":
            readers = [target for target in self.targets if "tflite" in PLACES[target].formats]
            if not readers or (self.formats and "tflite" not in self.formats):
                asked = "--format onnx" if readers else f"--target {' and '.join(self.targets)}"
                raise InputError(
                    f"A TFLite file stays TFLite, which {asked} leaves out",
                    hint="convert the model that it was made from, or leave the option out",
                )
        if source_precision != "fp32":
            file = f"{source_format}/model_{source_precision}.{source_format}"
            return (VariantPlan(source_format, source_precision, file, self.targets, {}),)
        chosen = []
        for plan in PLANS:
            takers = [target for target in self.targets if self._wants(target, plan)]
            if takers and (source_format == "onnx" or plan.format == source_format):
                places = dict.fromkeys((*(plan.targets if "any" in takers else ()), *takers))
                if "any" not in plan.targets:
                    places.pop("any", None)
                chosen.append(
                    self._with_interface(replace(plan, targets=("any",) if "any" in places else tuple(places)))
                )
        return tuple(chosen)

    def _with_interface(self, plan: VariantPlan) -> VariantPlan:
        """Give a plan integer inputs and outputs where they are asked for."""
        is_integer = (self.tflite_io or ("int8" if set(self.targets) == {"mcu"} else "float")) == "int8"
        if not is_integer or plan.id != "tflite/int8":
            return plan
        targets = _INTEGER_INTERFACE_TARGETS if "any" in plan.targets else plan.targets
        return replace(plan, targets=targets, options=_INTEGER_INTERFACE_OPTIONS, integer_interface=True)

    def _wants(self, target: str, plan: VariantPlan) -> bool:
        """Tell whether a variant is to be made for a target."""
        place = PLACES[target]
        words = set(self.precisions or place.precisions)
        if "auto" in words or (self.budget.is_set and not self.precisions and place.searches):
            words |= set(place.precisions) | ({"mixed"} if place.searches else set())
        formats = self.formats or place.formats
        word = plan.word or plan.precision
        return plan.format in formats and word in words and place.takes(plan.format, word)

    def _nothing_for(self, target: str) -> InputError:
        """Explain why a target would get nothing."""
        place = PLACES[target]
        allowed = [plan.id for plan in PLANS if place.takes(plan.format, plan.word or plan.precision)]
        formats, words = list(self.formats or place.formats), list(self.precisions or place.precisions)
        said = f"There is nothing to make: {listed(formats)} is not written in {listed(words)}"
        if target != "any":
            said += f" for `{target}`, which takes {listed(allowed)}"
        return InputError(said, hint=f"add --precision {allowed[0].partition('/')[2]}", allowed=allowed)


def _check(given: Sequence[str], allowed: Sequence[str], what: str) -> None:
    for word in given:
        if word not in allowed:
            raise InputError(
                f"{what} `{word}` is not known; choose from {listed(list(allowed))}",
                hint=did_you_mean(word, list(allowed)),
                allowed=list(allowed),
            )


def _words(given: str | Sequence[str] | None) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else given or ()
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
