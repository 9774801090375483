"""Judge a variant's outputs: by the limits of its precision, what `convert` measured of it, or the user's own limits.

The limits of a precision suit most models. Some models are not that near to themselves: their outputs change more when
an input moves by one rounding. And a user may have asked for less. So a manifest says of such a variant how far it may
be, and of each integer one how near it was when it was converted: another engine may have twice that error, not more.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError
from edge_infer.parity.comparison import (
    INTEGER_GOOD_SQNR_DB,
    PROBABILITY_MAX_ERR,
    Parity,
    Verdict,
    flat,
    in_numpy,
    judge,
    pairs_of,
    to_array,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.variant import Variant

#: The SQNR that another engine or another processor may lose: half of the signal to noise ratio in amplitude.
_MARGIN_DB = 6.0
#: The same as a factor of errors, as steps of integer outputs, and as a share of answers.
_MARGIN, _MARGIN_STEPS, _MARGIN_SHARE = 4.0, 2, 0.05
#: What counts as the same SQNR on the same engine: above it another file, processor or version computes.
_SAME_DB = 0.25
_WORDS = ("ok", "warn", "fail")
_EMPTY = Verdict("warn", "nothing was compared: the source gives it without elements in every example")
_ZERO = Verdict("warn", "little was compared: the source gives 0 everywhere in every example")
#: Below this SQNR noise has half of the energy of what is compared, however small both are as probabilities.
_BLIND_SQNR_DB = 3.0


class Limits(NamedTuple):
    """The limits that a user states for every output; they outrank those of the precision.

    Attributes:
        atol: The largest absolute error of an element, beside `rtol` times the reference's absolute value.
        rtol: The largest error of an element relative to the reference.
        min_sqnr_db: The least SQNR in dB.
        min_cosine: The least cosine.
        min_top1: The least share of the same clear best classes.
    """

    atol: float | None = None
    rtol: float | None = None
    min_sqnr_db: float | None = None
    min_cosine: float | None = None
    min_top1: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in self)

    def check(self) -> None:
        """Refuse limits that no output can meet, or that every output meets.

        Raises:
            InputError: A tolerance is negative or not finite, or a share is not from 0 to 1.
        """
        for name, value in (("--atol", self.atol), ("--rtol", self.rtol)):
            if value is not None and not 0 <= value < inf:
                raise InputError(f"{name} is {value:g}, expected 0 or more", hint=f"{name} 1e-4", got=value)
        for name, value in (("--min-cosine", self.min_cosine), ("--min-top1", self.min_top1)):
            if value is not None and not 0 < value <= 1:
                raise InputError(f"{name} is {value:g}, expected above 0 and at most 1", hint=f"{name} 0.99", got=value)
        if self.min_sqnr_db is not None and not isfinite(self.min_sqnr_db):
            raise InputError(f"--min-sqnr is {self.min_sqnr_db}, expected a number of dB", hint="--min-sqnr 25")

    def judge(
        self,
        parities: Mapping[str, Parity],
        references: Sequence[Mapping[str, Any]],
        results: Sequence[Mapping[str, Any]],
        usual: Verdict,
    ) -> Verdict:
        """Judge outputs by these limits; what fails only the usual ones is a warning."""
        for name, parity in parities.items():
            reason = self._missed(parity)
            if not reason and (self.atol is not None or self.rtol is not None):
                reason = self._outside(parity, pairs_of(name, references, results))
            if reason:
                return Verdict("fail", f"`{name}`: {reason}" if len(parities) > 1 else reason)
        return Verdict("warn", usual.reason) if usual.word == "fail" else usual

    def _missed(self, parity: Parity) -> str:
        if parity.sqnr_db == -inf:
            return "another shape, or a value that is finite on one side only"
        if self.min_sqnr_db is not None and parity.sqnr_db < self.min_sqnr_db:
            return f"SQNR {parity.sqnr_db:.1f} dB, asked for >= {self.min_sqnr_db:g}"
        if self.min_cosine is not None and parity.cosine < self.min_cosine:
            return f"cosine {parity.cosine:.6f}, asked for >= {self.min_cosine:g}"
        if self.min_top1 is not None and parity.top1 < self.min_top1:
            return f"{parity.top1:.1%} of the clear top-1 answers are the same, asked for >= {self.min_top1:.1%}"
        return ""

    def _outside(self, parity: Parity, pairs: Sequence[tuple[Any, Any]]) -> str:
        """Count the elements beyond the tolerance, as `numpy.allclose` does."""
        atol, rtol = self.atol or 0.0, self.rtol or 0.0
        outside = sum(_count_outside(want, got, atol, rtol) for want, got in pairs)
        if not outside:
            return ""
        return f"{outside} of {parity.values} values are off by more than {atol:g} + {rtol:g} x the source's"


def _count_outside(want: Any, got: Any, atol: float, rtol: float) -> int:
    """Count the elements of an array that are off by more than the tolerance; texts must be equal."""
    if in_numpy(want):
        a, b = to_array(want).astype(float), to_array(got).astype(float)
        return int(((abs(b - a) > atol + rtol * abs(a)) & (abs(a) < inf)).sum())
    return sum(
        a != b if isinstance(a, str) else isfinite(a) and abs(b - a) > atol + rtol * abs(a)
        for a, b in zip(flat(want), flat(got), strict=True)
    )


def judge_outputs(
    parities: Mapping[str, Parity], precision: str, known: Mapping[str, Parity] | None = None, *, tightens: bool = True
) -> Verdict:
    """Judge each output by itself, and return the worst verdict, with the output's name where there are several.

    Equal outputs of which no element was compared, or only zeros, are a warning: a wrong file may give them too.

    Args:
        parities: What `compare_outputs` measured.
        precision: What the weights are stored in: `fp32`, `fp16`, or an integer or mixed one.
        known: By output, how far it may be: what `convert` measured of an integer variant, or the error of the source
            against itself. An output that is about as near only warns where the limits of its precision fail it.
        tightens: Whether an integer output that is clearly farther than what is known fails.
    """
    if not any(parity.values for parity in parities.values()):
        return judge(Parity(0.0, inf, 1.0, 1.0, 0), precision)
    worst = Verdict("ok", "")
    for name, parity in parities.items():
        verdict = _judged(parity, precision, (known or {}).get(name), tightens=tightens) if parity.values else _EMPTY
        if parity.is_zero and verdict.word == "ok":
            verdict = _ZERO
        elif verdict.word == "ok" and parity.sqnr_db < _BLIND_SQNR_DB and isfinite(parity.probability_err):
            why = "its probabilities are so near 0 in every example that noise is as large"
            verdict = Verdict("warn", f"little was compared: {why} (SQNR {parity.sqnr_db:.1f} dB)")
        if _WORDS.index(verdict.word) > _WORDS.index(worst.word):
            reason = f"`{name}`: {verdict.reason}" if len(parities) > 1 else verdict.reason
            worst = Verdict(verdict.word, reason)
    return worst


def judge_variant(parities: Mapping[str, Parity], variant: Variant) -> Verdict:
    """Judge the outputs of a variant by its precision and by what its manifest knows of it."""
    return judge_outputs(parities, variant.precision, parities_of(variant))


def changed_since(parities: Mapping[str, Parity], variant: Variant) -> str:
    """Tell in words how an integer variant differs, on the engine that measured it, from when it was converted.

    Returns:
        The first such output; empty where there is none.
    """
    if variant.precision in ("fp32", "fp16"):
        return ""
    for name, known in parities_of(variant).items():
        now = parities[name].sqnr_db if name in parities else known.sqnr_db
        if now != known.sqnr_db and not abs(now - known.sqnr_db) <= _SAME_DB:
            of = f"`{name}`: " if len(parities) > 1 else ""
            return f"{of}SQNR {now:.1f} dB, {known.sqnr_db:.1f} dB when it was converted"
    return ""


def parities_of(variant: Variant) -> dict[str, Parity]:
    """Return what a manifest knows of a variant's outputs."""
    return {
        name: Parity(
            figures.get("max_err", 0.0),
            figures.get("sqnr_db", inf),
            figures.get("top1", 1.0),
            figures.get("equal", 1.0),
            1,
            steps=figures.get("steps", 0.0),
            lost_slices=int(figures.get("lost_slices", 0)),
        )
        for name, figures in variant.parity.items()
    }


def to_manifest(parities: Mapping[str, Parity]) -> dict[str, dict[str, float]]:
    """Write what a manifest keeps of each output: the figures that are not those of an equal one."""
    return {
        name: {
            **({"sqnr_db": round(one.sqnr_db, 2)} if isfinite(one.sqnr_db) else {}),
            **({"max_err": float(f"{one.max_err:.2e}")} if one.max_err and isfinite(one.max_err) else {}),
            **({"top1": round(one.top1, 4)} if one.top1 < 1 else {}),
            **({"equal": round(one.equal, 4)} if one.equal < 1 else {}),
            **({"steps": one.steps} if one.steps else {}),
            **({"lost_slices": one.lost_slices} if one.lost_slices else {}),
        }
        for name, one in parities.items()
    }


def _judged(parity: Parity, precision: str, known: Parity | None, *, tightens: bool) -> Verdict:
    verdict = judge(parity, precision)
    if known is None:
        return verdict
    worse = _worse(parity, precision, known)
    if verdict.word == "fail" and not worse:
        is_measured = tightens and precision not in ("fp32", "fp16")
        why = "the same as at the conversion" if is_measured else "the source's own error is as large"
        return Verdict("warn", f"{verdict.reason}; {why}")
    if verdict.word == "fail":
        return verdict
    if worse and tightens and precision not in ("fp32", "fp16"):
        return Verdict("fail", f"{worse} when it was converted")
    return verdict


def _worse(parity: Parity, precision: str, known: Parity) -> str:
    """Tell in words what of an output is clearly worse than what is known; empty where nothing is."""
    is_integer = precision not in ("fp32", "fp16")
    # Engines may differ by a step; to keep what is above that is not asked of an integer model.
    expected = min(known.sqnr_db, INTEGER_GOOD_SQNR_DB + _MARGIN_DB) if is_integer else known.sqnr_db
    is_near = parity.probability_err <= PROBABILITY_MAX_ERR["" if is_integer else precision]
    if parity.sqnr_db == -inf or (parity.sqnr_db < expected - _MARGIN_DB and not is_near):
        return f"SQNR {parity.sqnr_db:.1f} dB, {known.sqnr_db:.1f} dB"
    if precision == "fp32" and parity.max_err > _MARGIN * known.max_err and not is_near:
        return f"max err {parity.max_err:.1e} x rms, {known.max_err:.1e}"
    if parity.lost_slices > known.lost_slices:
        return f"nothing is left of {parity.lost_slices} slices, of {known.lost_slices}"
    if parity.steps > _MARGIN * known.steps + _MARGIN_STEPS:
        return f"{parity.steps:.0f} steps of the integer output off, {known.steps:.0f}"
    if parity.top1 < known.top1 - _MARGIN_SHARE:
        return f"{parity.top1:.1%} of the clear top-1 answers are the same, {known.top1:.1%}"
    if parity.equal < known.equal - _MARGIN_SHARE:
        return f"{parity.equal:.1%} of the integer outputs are the same, {known.equal:.1%}"
    return ""
