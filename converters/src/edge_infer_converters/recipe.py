"""The recipe of a conversion: formats, precisions, targets, budget and source options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer_converters.measure.budget import Budget, parse_latency, parse_share, parse_size
from edge_infer_converters.option_values import taken
from edge_infer_converters.options import CALIBRATIONS, FORMATS, INTERFACES, LAYOUTS, RECIPE_DEFAULTS, TRANSPORTS
from edge_infer_converters.sources.options import SourceOptions, parse_dynamic
from edge_infer_converters.targets import TARGETS
from edge_infer_converters.writers.plan import PLANS, VariantPlan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


_BOTH = {"both": ("onnx", "tflite")}
#: The values of `--precision`; `auto` stands for the target's usual ones and `mixed`.
WORDS = (*dict.fromkeys(plan.word or plan.precision for plan in PLANS), "auto")
# With integers in and out. Our adapter turns floats into them and back; LiteRT.js refuses such a file.
_INTEGER_INTERFACE_TARGETS = ("mcu", "pi")
_INTEGER_INTERFACE_OPTIONS = {"litert": {"interface": "float"}}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The variants to make of a model, with their budget and options.

    Attributes:
        formats: Which formats; those that the targets read unless given.
        precisions: Which precisions, of `WORDS`; those that suit the targets unless given, and `mixed` with a budget.
        keep_all: Whether to keep a variant that is not as good as it must be.
        budget: What each variant must keep, and what `mixed` is searched for.
        targets: The targets of the bundle, of `TARGETS`.
        source: The options of the source: fixed and free dimensions, operator set, layout of images, bound inputs.
        tflite_io: `int8` for integer inputs and outputs of `tflite/int8`, or `float`; unless given, `int8` where
            microcontrollers are the only target.
        calibrate: How static int8 finds its ranges, one of `ranges.WORDS`.
        is_cached: Whether a search keeps its figures for the next, in the user's cache folder.
        keep_names: Whether tensors inside a TFLite file keep their names.
        prunes: Whether channels that are the same for every input are removed first.
        measures_layers: Whether the layers of static int8 are measured, each alone.
        prunes_weak: Up to which share of each layer's channels `onnx/mixed` may lack; 0 for none.
        transport: What `onnx/mixed` is made small for: `palette` for the wire, or empty for the file.
        keeps_reference: Whether the bundle keeps what its data look like, to find drift.
        goldens: How many golden examples the bundle has; 0 for up to 32 that are small beside the model.
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
    measures_layers: bool = False
    prunes_weak: float = 0.0
    transport: str = ""
    keeps_reference: bool = True
    goldens: int = 0

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Make a recipe from the options of `convert` that belong to it, by their keywords (`options.OPTIONS`).

        Raises:
            InputError: A value is unknown or of another type, or a share or size cannot be read.
        """
        unknown = given.keys() - RECIPE_DEFAULTS.keys()
        if unknown:
            raise TypeError(f"{', '.join(sorted(unknown))}: not an option of a recipe")
        one = SimpleNamespace(**(RECIPE_DEFAULTS | taken(given)))
        budget = Budget(
            parse_share(one.max_loss) if isinstance(one.max_loss, str) else one.max_loss,
            one.min_sqnr,
            parse_size(one.max_size) if isinstance(one.max_size, str) else one.max_size,
            one.metric,
            one.max_latency_ratio,
            parse_latency(one.max_latency, TARGETS) if one.max_latency else None,
            parse_size(one.max_ram) if isinstance(one.max_ram, str) else one.max_ram,
        )
        return cls(
            tuple(dict.fromkeys(name for word in _words(one.format) for name in _BOTH.get(word, (word,)))),
            _words(one.precision),
            one.keep_all,
            budget,
            _words(one.target) or ("any",),
            SourceOptions(
                one.shape or {},
                one.opset,
                one.layout or "onnx",
                one.bind or {},
                one.allow_baked,
                parse_dynamic(one.dynamic),
            ),
            one.tflite_io or "",
            keep_names=one.keep_names,
            calibrate=one.calibrate,
            is_cached=one.cache,
            prunes=one.prune_dead_channels,
            measures_layers=one.layers,
            prunes_weak=(parse_share(one.prune, "--prune") if isinstance(one.prune, str) else one.prune) or 0.0,
            transport=one.transport or "",
            keeps_reference=one.drift,
            goldens=one.goldens or 0,
        )

    def __post_init__(self) -> None:
        _check(self.formats, FORMATS, "Format")
        _check(self.precisions, WORDS, "Precision")
        _check((self.calibrate,), CALIBRATIONS, "Calibration")
        _check(self.targets, list(TARGETS), "Target")
        _check((self.source.layout,), LAYOUTS, "Layout")
        _check((self.tflite_io,) if self.tflite_io else (), INTERFACES, "TFLite interface")
        _check((self.transport,) if self.transport else (), TRANSPORTS, "Transport")
        if not 0 <= self.prunes_weak < 1:
            raise InputError(
                f"{self.prunes_weak:g} is no share of the channels, expected 0 to 99 %", hint="--prune 30%"
            )
        if self.goldens < 0:
            raise InputError(f"{self.goldens} golden examples cannot be kept, expected 1 or more", hint="--goldens 8")
        for target in self.targets:
            if not any(self._wants(target, plan) for plan in PLANS):
                raise self._nothing_for(target)
        if self._asks_mixed and not any(
            plan.id == "onnx/mixed" and self._wants(target, plan) for plan in PLANS for target in self.targets
        ):
            raise _no_mixed("--format onnx --precision mixed")

    @property
    def _asks_mixed(self) -> bool:
        return bool(self.prunes_weak or self.transport)

    def plans(
        self, source_precision: str, source_format: str = "onnx", *, is_float: bool | None = None
    ) -> tuple[VariantPlan, ...]:
        """List the variants to make of a source, each with its targets; a quantized source is kept unchanged.

        One in ONNX is also written as TFLite in int8, with the scales that it carries, and one in TFLite as ONNX where
        that is asked for. A float source is kept where a target takes it, unless precisions are asked for. TFLite
        computes in float32 with halves for weights: such a source is not widened in TFLite unless that is asked for.

        Args:
            source_precision: The precision of its weights.
            source_format: `onnx` or `tflite`.
            is_float: Whether it computes in float32, or can; None for what its weights say.
        """
        is_float = source_precision == "fp32" if is_float is None else is_float
        own = "" if self.precisions else f"{source_format}/{source_precision}"
        plans = self._plans_of_floats(own) if is_float else self._plans_of_quantized(source_precision, source_format)
        if is_float and own == "tflite/fp16":
            plans = tuple(plan for plan in plans if plan.id != "tflite/fp32")
        if source_format == "tflite":
            plans = tuple(plan for plan in plans if plan.format != "onnx" or self._wants_onnx)
        if self._asks_mixed and not any(plan.id == "onnx/mixed" for plan in plans):
            raise _no_mixed(
                "--format both" if is_float else f"leave them out: the weights are {source_precision} already"
            )
        return plans

    @property
    def _wants_onnx(self) -> bool:
        """Whether a TFLite file becomes ONNX too: where it is asked for, or a target reads nothing else."""
        return "onnx" in self.formats or any("tflite" not in TARGETS[target].formats for target in self.targets)

    def _plans_of_floats(self, own: str) -> tuple[VariantPlan, ...]:
        """List what is made of floats, and the variant of the source itself, where a target takes it."""
        chosen = []
        for plan in PLANS:
            takers = [target for target in self.targets if self._wants(target, plan, own)]
            if takers:
                chosen.append(self._with_interface(_for_targets(plan, takers)))
        return tuple(chosen)

    def _plans_of_quantized(self, precision: str, format_: str) -> tuple[VariantPlan, ...]:
        """List the file itself, and what is written with the scales that it carries."""
        file = f"{format_}/model_{precision}.{format_}"
        kept = VariantPlan(format_, precision, file, self.targets, {})
        made = self._compiled(precision)
        if format_ == "onnx":
            return (kept, *self._with_own_scales(precision), *made)
        as_onnx = self._as_onnx(precision)
        is_kept = not self.formats or "tflite" in self.formats or not (made or as_onnx)
        return (*as_onnx, *((kept,) if is_kept else ()), *made)

    def _as_onnx(self, precision: str) -> tuple[VariantPlan, ...]:
        """List the ONNX variant of a quantized TFLite file: its own integers with DequantizeLinear around them."""
        takers = [target for target in self.targets if "onnx" in (self.formats or TARGETS[target].formats)]
        plans = [plan for plan in PLANS if plan.id == f"onnx/{precision}"]
        return tuple(_for_targets(plan, takers) for plan in plans if takers)

    def _with_own_scales(self, precision: str) -> tuple[VariantPlan, ...]:
        """List the TFLite variants of a quantized ONNX file: none but of int8."""
        takers = [
            target
            for target in self.targets
            if "tflite" in (self.formats or TARGETS[target].formats) and TARGETS[target].takes("tflite", "int8")
        ]
        plans = [plan for plan in PLANS if plan.id == "tflite/int8" and plan.precision == precision]
        return tuple(self._with_interface(_for_targets(plan, takers)) for plan in plans if takers)

    def _compiled(self, precision: str) -> tuple[VariantPlan, ...]:
        """List the compiled variants of a quantized file: none but of int8."""
        takers = [
            target
            for target in self.targets
            if "compiled" in (self.formats or TARGETS[target].formats) and "compiled" in TARGETS[target].formats
        ]
        plans = [plan for plan in PLANS if (plan.format, plan.precision) == ("compiled", precision)]
        return tuple(_for_targets(plan, takers) for plan in plans if takers)

    def _with_interface(self, plan: VariantPlan) -> VariantPlan:
        """Give a plan integer inputs and outputs where they are asked for."""
        is_integer = (self.tflite_io or ("int8" if set(self.targets) == {"mcu"} else "float")) == "int8"
        if not is_integer or plan.id != "tflite/int8":
            return plan
        targets = _INTEGER_INTERFACE_TARGETS if "any" in plan.targets else plan.targets
        return replace(plan, targets=targets, options=_INTEGER_INTERFACE_OPTIONS, integer_interface=True)

    def _wants(self, target: str, plan: VariantPlan, own: str = "") -> bool:
        """Tell whether a variant is to be made for a target; `own` names the one that is the source itself."""
        taken = TARGETS[target]
        words = {*(self.precisions or taken.precisions), *((plan.precision,) if plan.id == own else ())}
        if "auto" in words or ((self.budget.is_set or self._asks_mixed) and not self.precisions and taken.searches):
            words |= set(taken.precisions) | ({"mixed"} if taken.searches else set())
        formats = self.formats or taken.formats
        word = plan.word or plan.precision
        return plan.format in formats and word in words and taken.takes(plan.format, word)

    def _nothing_for(self, target: str) -> InputError:
        """Explain why a target would get nothing."""
        taken = TARGETS[target]
        allowed = [plan.id for plan in PLANS if taken.takes(plan.format, plan.word or plan.precision)]
        formats, words = list(self.formats or taken.formats), list(self.precisions or taken.precisions)
        said = f"There is nothing to make: {listed(formats)} is not written in {listed(words)}"
        if target != "any":
            said += f" for `{target}`, which takes {listed(allowed)}"
        return InputError(said, hint=f"add --precision {allowed[0].partition('/')[2]}", allowed=allowed)


def _for_targets(plan: VariantPlan, takers: Sequence[str]) -> VariantPlan:
    """Return a plan with the targets that it is made for."""
    places = dict.fromkeys((*(plan.targets if "any" in takers else ()), *takers))
    if "any" not in plan.targets:
        places.pop("any", None)
    return replace(plan, targets=("any",) if "any" in places else tuple(places))


def _no_mixed(hint: str) -> InputError:
    return InputError("--prune and --transport shape onnx/mixed, which is not to be made", hint=hint)


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
