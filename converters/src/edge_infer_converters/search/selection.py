"""Select the measured variants that go into the bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.parity.comparison import Verdict
from edge_infer_converters.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.measure.speed import DeviceTimes
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.recipe import Recipe

#: Said of a variant whose ranges come from random inputs.
UNTESTED = "taken by its id only: random inputs do not show whether its ranges are right"


def choose(
    measured: Sequence[ConvertedVariant], source_id: str, recipe: Recipe, times: DeviceTimes | None = None
) -> tuple[list[ConvertedVariant], str]:
    """Mark what is kept: what is good enough, not slower for nothing and, where there is a largest size, no larger.

    The source itself is always kept: without it there is nothing to compare with. Where all good variants
    are too large, the smallest of them stays.

    Args:
        measured: The variants in the order of the manifest.
        source_id: The variant id of the source.
        recipe: What was asked for.
        times: What was measured on the device.

    Returns:
        The variants, and what of the budget nothing meets, empty where all is met.
    """
    if recipe.keep_all:
        return list(measured), ""
    measured, missed = _on_device(measured, recipe, times) if times is not None else (measured, "")
    good = [one for one in measured if _with_speed(one, recipe).quality.verdict.word != "fail"]
    limit = recipe.budget.max_size
    if limit is not None and good and all(one.nbytes > limit for one in good):
        best = min(good, key=lambda one: one.nbytes)
        missed = (
            f"Nothing that is good enough has at most {limit / 1000:.1f} kB: the best found is {best.variant.id} with "
            f"{best.nbytes / 1000:.1f} kB"
        )
        limit = best.nbytes
    chosen: list[ConvertedVariant] = []
    for found in measured:
        one = found if found.variant.id == source_id else _with_speed(found, recipe)
        kept = one
        if one.variant.id != source_id and one.quality.verdict.word == "fail":
            kept = replace(one, is_kept=False)
        elif one.variant.id != source_id and limit is not None and one.nbytes > limit:
            asked = (recipe.budget.max_size or 0) / 1000
            beside = f"; the best found has {limit / 1000:.1f} kB" if missed else ""
            reason = f"it has {one.nbytes / 1000:.1f} kB, at most {asked:.1f} kB are asked for{beside}"
            kept = replace(one, is_kept=False, quality=replace(one.quality, verdict=Verdict("fail", reason)))
        chosen.append(kept)
    return chosen, missed


def _on_device(
    measured: Sequence[ConvertedVariant], recipe: Recipe, times: DeviceTimes
) -> tuple[list[ConvertedVariant], str]:
    """Refuse what takes longer, or more memory, than is asked for; say what nothing keeps, and what is nearest."""
    latency, ram = recipe.budget.max_latency, recipe.budget.max_ram
    limits: list[tuple[str, float, dict[str, float | None]]] = []
    if latency is not None:
        asked = [one.variant for one in measured if latency.target in ("", *_places(one.variant.targets))]
        limits.append(("ms", latency.ms, {one.id: times.ms(one.id) for one in asked}))
    if ram is not None:
        limits.append(("MB", ram / 1e6, {one.variant.id: _megabytes(times.ram(one.variant.id)) for one in measured}))
    found, missed = list(measured), ""
    for unit, limit, figures in limits:
        for place, one in enumerate(found):
            figure, verdict = figures.get(one.variant.id), one.quality.verdict
            if verdict.word == "fail" or one.variant.id not in figures or (figure is not None and figure <= limit):
                continue
            if figure is None:
                word, said = (
                    "warn",
                    f"{times.name} does not say its {unit}, at most {limit:g} are asked for",
                )
            else:
                word, said = "fail", f"it takes {figure:.3g} {unit} by {times.name}, at most {limit:g} are asked for"
            found[place] = replace(one, quality=replace(one.quality, verdict=Verdict(word, said)))
        bad = {one.variant.id for one in measured if one.quality.verdict.word == "fail"}
        known = {id_: figure for id_, figure in figures.items() if figure is not None and id_ not in bad}
        if not known:
            raise InputError(
                f"{times.name} does not say how many {unit} any of the variants takes",
                hint="edge-infer bench OLD.bundle --host pi@address --json, of a bundle that was made by --keep-all",
            )
        if min(known.values()) > limit and not missed:
            best = min(known, key=lambda id_: known[id_])
            missed = f"Nothing takes at most {limit:g} {unit}: the best is {best} with {known[best]:.3g} {unit}"
    if limits and not missed and all(one.quality.verdict.word == "fail" for one in found):
        asked_for = " and ".join(f"{limit:g} {unit}" for unit, limit, _ in limits)
        missed = f"Nothing that is good enough takes at most {asked_for}"
    return found, missed


def _places(targets: Sequence[str]) -> Sequence[str]:
    """Return the targets that a variant is for."""
    return tuple(TARGETS) if "any" in targets else targets


def _megabytes(nbytes: int | None) -> float | None:
    return None if nbytes is None else nbytes / 1e6


def mark_untested(
    measured: Sequence[ConvertedVariant], recipe: Recipe, *, is_float: bool
) -> tuple[list[ConvertedVariant], list[str]]:
    """Mark the variants whose ranges no real data has tested, where all inputs were drawn at random.

    A detector answers random inputs with next to nothing, whatever its ranges are. Such a variant has no targets: it
    is taken by its id only.

    Args:
        measured: The variants, those that are left out too.
        recipe: What was asked for; precisions that it names are taken like any other.
        is_float: Whether the source is: a quantized one brings its own ranges.

    Returns:
        The variants, and the ids of those that were marked.
    """
    if not is_float or recipe.precisions or "mcu" in recipe.targets:
        return list(measured), []
    found: list[ConvertedVariant] = []
    marked: list[str] = []
    for one in measured:
        if not one.is_kept or one.variant.precision != "int8" or one.variant.id.endswith("-dynamic"):
            found.append(one)
            continue
        one.variant.targets = ()
        verdict = one.quality.verdict
        reason = f"{verdict.reason}; {UNTESTED}" if verdict.reason else UNTESTED
        found.append(replace(one, quality=replace(one.quality, verdict=Verdict(verdict.word, reason))))
        marked.append(one.variant.id)
    return found, marked


def _with_speed(one: ConvertedVariant, recipe: Recipe) -> ConvertedVariant:
    """Return a variant with its verdict after its speed: int8 is there to be faster, fewer bits to be smaller.

    An int8 variant that is clearly slower than float is refused; of the others, int8x16 among them, it is said. Half
    precision is not for CPUs, and only a limit decides there. No timing of this machine takes part.
    """
    speed, verdict = one.speed, one.quality.verdict
    limit = recipe.budget.max_latency_ratio
    if verdict.word == "fail":
        return one
    if speed is None:
        if limit is None or one.variant.precision == "fp32":  # float itself
            return one
        unknown = Verdict("warn", f"its time is not known, at most {limit:g}x is asked for: --measured FILE tells it")
        return replace(one, quality=replace(one.quality, verdict=unknown))
    if limit is not None:
        if speed.ratio <= limit:
            return one
        verdict = Verdict("fail", f"it takes {speed}, at most {limit:g}x is asked for")
    elif not speed.is_slow or not {"any", "pi"}.intersection(one.variant.targets):
        return one
    elif one.variant.precision == "int8" and one.variant.id != "tflite/int8x16":  # that is asked for by name only
        verdict = Verdict("fail", f"it is slower than float: {speed}")
    elif verdict.word == "ok":
        verdict = Verdict("warn", f"it is slower than float: {speed}")
    return replace(one, quality=replace(one.quality, verdict=verdict))
