"""Compare the outputs of two engines: error measures, and the limits of each precision.

SQNR is 10 log10(sum ref^2 / sum err^2) in dB, over all elements of a float output. A relative tolerance for each
element would mean nothing: elements near zero of a correct result differ by 0.4 %. So the largest error is measured
against the rms of the whole reference output instead.
"""

from __future__ import annotations

from math import inf, isfinite, log10, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FP32_MAX_ERR = 1e-4
FP32_MIN_SQNR_DB = 100.0
FP16_MIN_SQNR_DB = 60.0
INTEGER_GOOD_SQNR_DB = 30.0
INTEGER_MIN_SQNR_DB = 20.0
#: An integer model may round a close call of its own argmax to the other side, once in twenty.
INTEGER_MIN_EQUAL = 0.95


class Parity(NamedTuple):
    """How near a result is to its reference: the worst of all outputs.

    Attributes:
        max_err: The largest absolute error over the rms of the reference output; 0 when equal.
        sqnr_db: Signal to quantization noise ratio in dB; infinite when equal.
        top1: Of the rows whose best class leads by more than the largest error, the share with the same best class;
            1.0 where no output has classes.
        equal: The share of equal elements of the integer, bool and string outputs; 1.0 where there are none.
        values: The number of elements compared.
    """

    max_err: float
    sqnr_db: float
    top1: float
    equal: float
    values: int


class Verdict(NamedTuple):
    """The judgement of a parity: `ok`, `warn` or `fail`, and what decided it."""

    word: str
    reason: str


def compare(references: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> Parity:
    """Compare the outputs of the same runs on two engines.

    Args:
        references: The right outputs, one mapping from name to `Tensor` or `numpy.ndarray` for each run.
        results: The outputs to judge, in the same order. A missing output or another shape counts as all wrong.

    Returns:
        The measures; each output is pooled over all runs, and the worst output counts.
    """
    worst = Parity(0.0, inf, 1.0, 1.0, 0)
    names = dict.fromkeys(name for run in references for name in run)
    for name in names:
        one = _compare_output([run.get(name) for run in references], [run.get(name) for run in results])
        worst = Parity(
            max(worst.max_err, one.max_err),
            min(worst.sqnr_db, one.sqnr_db),
            min(worst.top1, one.top1),
            min(worst.equal, one.equal),
            worst.values + one.values,
        )
    return worst


def judge(parity: Parity, precision: str) -> Verdict:
    """Judge a result against the fp32 source.

    Args:
        parity: What `compare` measured.
        precision: What the weights are stored in: `fp32`, `fp16`, or an integer or mixed one.
    """
    if not parity.values:
        return Verdict("fail", "nothing was compared: the golden examples have no outputs")
    is_integer = precision not in ("fp32", "fp16")
    if parity.equal < (INTEGER_MIN_EQUAL if is_integer else 1):
        return Verdict("fail", f"{1 - parity.equal:.1%} of the integer outputs differ")
    if precision == "fp32":
        if parity.max_err > FP32_MAX_ERR:
            return Verdict("fail", f"max err {parity.max_err:.1e} x rms, expected <= {FP32_MAX_ERR:.0e}")
        if parity.sqnr_db < FP32_MIN_SQNR_DB:
            return Verdict("fail", f"SQNR {parity.sqnr_db:.1f} dB, expected >= {FP32_MIN_SQNR_DB:.0f}")
    elif precision == "fp16":
        if parity.sqnr_db < FP16_MIN_SQNR_DB:
            return Verdict("fail", f"SQNR {parity.sqnr_db:.1f} dB, expected >= {FP16_MIN_SQNR_DB:.0f}")
    elif parity.sqnr_db < INTEGER_MIN_SQNR_DB:
        return Verdict("fail", f"SQNR {parity.sqnr_db:.1f} dB, expected >= {INTEGER_GOOD_SQNR_DB:.0f}")
    if parity.top1 < 1:
        return Verdict("fail", f"{1 - parity.top1:.1%} of the clear top-1 answers differ")
    if is_integer and parity.sqnr_db < INTEGER_GOOD_SQNR_DB:
        return Verdict("warn", f"SQNR {parity.sqnr_db:.1f} dB, expected >= {INTEGER_GOOD_SQNR_DB:.0f}")
    if parity.equal < 1:
        return Verdict("warn", f"{1 - parity.equal:.1%} of the integer outputs differ")
    return Verdict("ok", "")


def _compare_output(references: list[Any], results: list[Any]) -> Parity:
    first = next(one for one in references if one is not None)
    dtype = str(first.dtype)
    is_float = dtype in (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
    fitting = all(
        want is not None and got is not None and got.dtype == dtype and tuple(got.shape) == tuple(want.shape)
        for want, got in zip(references, results, strict=True)
    )
    if not fitting:
        return Parity(inf, -inf, 0.0, 0.0, sum(one.size for one in references if one is not None))
    wanted = [value for reference in references for value in flat(reference)]
    got = [value for result in results for value in flat(result)]
    if not is_float:
        same = sum(a == b for a, b in zip(wanted, got, strict=True))
        return Parity(0.0, inf, 1.0, same / len(wanted) if wanted else 1.0, len(wanted))

    # Equal infinities and two NaNs agree; a value that is finite on one side only is an infinite error.
    finite: list[tuple[float, float]] = []
    for a, b in zip(wanted, got, strict=True):
        if isfinite(a) and isfinite(b):
            finite.append((a, b))
        elif not (a == b or (a != a and b != b)):
            return Parity(inf, -inf, 0.0, 1.0, len(wanted))
    # Measured in units of the largest value, so that no square overflows.
    unit = max((abs(a) for a, _ in finite), default=0.0) or 1.0
    noise = sum(((a - b) / unit) * ((a - b) / unit) for a, b in finite)
    signal = sum((a / unit) * (a / unit) for a, _ in finite)
    largest = max((abs(a - b) for a, b in finite), default=0.0)
    rms = unit * sqrt(signal / len(finite)) if finite else 0.0
    shape = first.shape
    top1 = _top1(wanted, got, shape[-1], largest) if len(shape) >= 2 and shape[-1] >= 2 else 1.0
    return Parity(
        0.0 if largest == 0 else largest / rms if rms else inf,
        inf if noise == 0 else 10 * log10(signal / noise) if signal else -inf,
        top1,
        1.0,
        len(wanted),
    )


def flat(array: Any) -> list[Any]:
    """Return the values of an array or a Tensor, in order."""
    values: list[Any] = array.reshape(-1).tolist()
    return values


def _top1(wanted: list[float], got: list[float], classes: int, error: float) -> float:
    """Compare the best class of each row, among those rows in which it leads by more than the error."""
    clear = same = 0
    for start in range(0, len(wanted), classes):
        row, other = wanted[start : start + classes], got[start : start + classes]
        best = max(row)
        index = row.index(best)
        if all(best - value > error for i, value in enumerate(row) if i != index):
            clear += 1
            same += max(range(classes), key=other.__getitem__) == index
    return same / clear if clear else 1.0
