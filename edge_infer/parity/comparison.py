"""Compare the outputs of two engines: error measures, and the limits of each precision.

SQNR is 10 log10(sum ref^2 / sum err^2) in dB, over all elements of a float output. A relative tolerance for each
element would mean nothing: elements near zero of a correct result differ by 0.4 %. So the largest error is measured
against the rms of the whole reference output instead. Outputs of probabilities, all between 0 and 1, are compared
absolutely where that is kinder: scores near 1e-6 have no digits to lose.

One number for an output hides a part of another scale: scores up to 1 beside boxes up to 640. So the slices of an
output along the axis on which their scales differ most are looked at one by one, where numpy is imported.
"""

from __future__ import annotations

import sys
from math import inf, isfinite, log10, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.picked import like
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FP32_MAX_ERR = 1e-4
FP32_MIN_SQNR_DB = 100.0
#: Half precision keeps 66 dB in one operator; a deep network of them keeps less.
FP16_MIN_SQNR_DB = 50.0
INTEGER_GOOD_SQNR_DB = 30.0
INTEGER_MIN_SQNR_DB = 20.0
#: An integer model may round a close call of its own argmax to the other side, once in twenty.
INTEGER_MIN_EQUAL = 0.95
#: How many steps an 8- or 16-bit output of an integer model may be off: to be good, and to pass with a warning.
INTEGER_GOOD_STEPS, INTEGER_MAX_STEPS = 2, 25
#: The largest error of a probability that no limit of another kind refuses.
PROBABILITY_MAX_ERR = {"fp32": 1e-4, "fp16": 1e-3, "": 1e-2}
#: Below this SQNR nothing is left of a slice; a slice counts from this share of its output's rms, or this probability.
SLICE_MIN_SQNR_DB, SLICE_MIN_SHARE, SLICE_MIN_PROBABILITY = 3.0, 1e-3, 0.05
#: Slices are looked at where the largest is so many times the median one, along axes of up to so many slices.
_SLICE_SPREAD, _MAX_SLICES = 8.0, 4096
_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
_STEPPED = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
#: What numpy measures; the others as lists.
_IN_NUMPY = (
    *(DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.INT16, DType.INT32, DType.INT64),
    *(DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64, DType.BOOL),
)


class Parity(NamedTuple):
    """How near a result is to its reference: one output's, or the worst of all outputs.

    Attributes:
        max_err: The largest absolute error over the rms of the reference output; 0 when equal.
        sqnr_db: Signal to quantization noise ratio in dB; infinite when equal.
        top1: Of the rows whose best class leads by more than the largest error, the share with the same best class;
            1.0 where no output is a ranking: one row of classes for each item.
        equal: The share of equal elements of the integer, bool and string outputs; 1.0 where there are none.
        values: The number of elements compared.
        cosine: The cosine of the angle between both, all elements as one vector; 1.0 where no output is of floats.
        steps: The largest difference of an 8- or 16-bit integer output, in its steps.
        probability_err: The largest absolute error of an output whose reference lies between 0 and 1; infinite where
            one does not.
        lost: The worst slice of which nothing is left, such as `y[:, 7]`; empty where there is none.
        lost_slices: How many such slices there are.
        is_zero: Whether this is an output of floats whose reference is 0 everywhere, of which equal results say little.
    """

    max_err: float
    sqnr_db: float
    top1: float
    equal: float
    values: int
    cosine: float = 1.0
    steps: float = 0.0
    probability_err: float = inf
    lost: str = ""
    lost_slices: int = 0
    is_zero: bool = False


class Verdict(NamedTuple):
    """The judgement of a parity: `ok`, `warn` or `fail`, and what decided it."""

    word: str
    reason: str


def compare(references: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> Parity:
    """Compare the outputs of the same runs on two engines.

    Args:
        references: The right outputs, one mapping from name to `Tensor` or `numpy.ndarray` for each run. Of a
            `PickedTensor`, which has some elements of an output, the same elements of the result are compared.
        results: The outputs to judge, in the same order. A missing output or another shape counts as all wrong.

    Returns:
        The measures; each output is pooled over all runs, and the worst output counts.
    """
    return worst_of(compare_outputs(references, results).values())


def worst_of(parities: Iterable[Parity]) -> Parity:
    """Return the worst of each measure."""
    every = list(parities)
    return Parity(
        max((one.max_err for one in every), default=0.0),
        min((one.sqnr_db for one in every), default=inf),
        min((one.top1 for one in every), default=1.0),
        min((one.equal for one in every), default=1.0),
        sum(one.values for one in every),
        min((one.cosine for one in every), default=1.0),
        max((one.steps for one in every), default=0.0),
        max((one.probability_err for one in every), default=inf),
        next((one.lost for one in every if one.lost), ""),
        sum(one.lost_slices for one in every),
    )


def compare_outputs(references: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> dict[str, Parity]:
    """Compare each output by itself; see `compare`."""
    names = dict.fromkeys(name for run in references for name in run)
    return {name: _compare_output(name, *zip(*pairs_of(name, references, results), strict=True)) for name in names}


def pairs_of(
    name: str, references: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> list[tuple[Any, Any]]:
    """Return an output of each run on both sides; of a result what its reference has of the source's output."""
    both = [(want.get(name), got.get(name)) for want, got in zip(references, results, strict=True)]
    return [(want, like(got, want)) for want, got in both]


def judge(parity: Parity, precision: str) -> Verdict:
    """Judge a result against the source.

    Args:
        parity: What `compare` measured.
        precision: What the weights are stored in: `fp32`, `fp16`, or an integer or mixed one.
    """
    if not parity.values:
        return Verdict("fail", "nothing was compared: the golden examples have no outputs")
    is_integer = precision not in ("fp32", "fp16")
    if parity.equal < (INTEGER_MIN_EQUAL if is_integer else 1):
        return Verdict("fail", f"{1 - parity.equal:.1%} of the integer outputs differ")
    if parity.steps > (INTEGER_MAX_STEPS if is_integer else 0):
        most = INTEGER_MAX_STEPS if is_integer else 0
        return Verdict("fail", f"{parity.steps:.0f} steps of the integer output off, expected <= {most}")
    if parity.lost:
        return Verdict("fail", f"nothing is left of `{parity.lost}`: below {SLICE_MIN_SQNR_DB:.0f} dB")
    is_near = parity.probability_err <= PROBABILITY_MAX_ERR["" if is_integer else precision]
    least = {"fp32": FP32_MIN_SQNR_DB, "fp16": FP16_MIN_SQNR_DB}.get(precision, INTEGER_MIN_SQNR_DB)
    if not is_near:
        if precision == "fp32" and parity.max_err > FP32_MAX_ERR:
            return Verdict("fail", f"max err {parity.max_err:.1e} x rms, expected <= {FP32_MAX_ERR:.0e}")
        if parity.sqnr_db < least:
            good = INTEGER_GOOD_SQNR_DB if is_integer else least
            return Verdict("fail", f"SQNR {parity.sqnr_db:.1f} dB, expected >= {good:.0f}")
    if parity.top1 < 1:
        return Verdict("fail", f"{1 - parity.top1:.1%} of the clear top-1 answers differ")
    if is_integer and parity.sqnr_db < INTEGER_GOOD_SQNR_DB and not is_near:
        return Verdict("warn", f"SQNR {parity.sqnr_db:.1f} dB, expected >= {INTEGER_GOOD_SQNR_DB:.0f}")
    if parity.steps > INTEGER_GOOD_STEPS:
        return Verdict("warn", f"{parity.steps:.0f} steps of the integer output off, expected <= {INTEGER_GOOD_STEPS}")
    if parity.equal < 1:
        return Verdict("warn", f"{1 - parity.equal:.1%} of the integer outputs differ")
    return Verdict("ok", "")


def _compare_output(name: str, references: Sequence[Any], results: Sequence[Any]) -> Parity:
    first = next(one for one in references if one is not None)
    dtype = dtype_name(first)
    fitting = all(
        want is not None and got is not None and dtype_name(got) == dtype and tuple(got.shape) == tuple(want.shape)
        for want, got in zip(references, results, strict=True)
    )
    if not fitting:
        return Parity(inf, -inf, 0.0, 0.0, sum(one.size for one in references if one is not None), 0.0)
    if in_numpy(first):
        return _compare_arrays(name, [to_array(one) for one in references], [to_array(one) for one in results])
    wanted = [value for reference in references for value in flat(reference)]
    got = [value for result in results for value in flat(result)]
    if dtype not in _FLOATS:
        return _compare_integers(wanted, got, dtype)
    # Equal infinities and two NaNs agree; a value that is finite on one side only is an infinite error.
    finite: list[tuple[float, float]] = []
    for a, b in zip(wanted, got, strict=True):
        if isfinite(a) and isfinite(b):
            finite.append((a, b))
        elif not (a == b or (a != a and b != b)):
            return Parity(inf, -inf, 0.0, 1.0, len(wanted), 0.0)
    # Measured in units of the largest value, so that no square overflows.
    unit = max((abs(a) for a, _ in finite), default=0.0) or 1.0
    sums = _Sums(unit)
    for a, b in finite:
        sums.add((a - b) / unit, a / unit, b / unit)
    is_probability = all(0 <= a <= 1 for a, _ in finite)
    shape = first.shape
    top1 = _top1(wanted, got, shape[-1], sums.largest * unit) if len(shape) == 2 and shape[-1] >= 2 else 1.0
    return sums.parity(len(wanted), top1, is_probability=is_probability)


class _Sums:
    """The sums behind the measures of a float output, in units of its largest value."""

    def __init__(self, unit: float) -> None:
        self.unit = unit
        self.count = 0
        self.noise = self.signal = self.power = self.product = self.largest = 0.0

    def add(self, error: float, wanted: float, got: float) -> None:
        """Add one element."""
        self.count += 1
        self.noise += error * error
        self.signal += wanted * wanted
        self.power += got * got
        self.product += wanted * got
        self.largest = max(self.largest, abs(error))

    def parity(self, values: int, top1: float, *, is_probability: bool, lost: tuple[str, int] = ("", 0)) -> Parity:
        """Return the measures of the output."""
        rms = sqrt(self.signal / self.count) if self.count else 0.0
        scale = sqrt(self.signal * self.power)
        return Parity(
            0.0 if self.largest == 0 else self.largest / rms if rms else inf,
            decibels(self.signal, self.noise),
            top1,
            1.0,
            values,
            self.product / scale if scale else float(self.noise == 0),
            0.0,
            self.largest * self.unit if is_probability else inf,
            *lost,
            is_zero=bool(self.count) and not self.signal,
        )


def decibels(signal: float, noise: float) -> float:
    """Return a ratio of energies in dB."""
    return inf if noise == 0 else 10 * log10(signal / noise) if signal else -inf


def _compare_integers(wanted: list[Any], got: list[Any], dtype: str) -> Parity:
    same = sum(a == b for a, b in zip(wanted, got, strict=True))
    if dtype in _STEPPED:
        steps = max((abs(a - b) for a, b in zip(wanted, got, strict=True)), default=0)
        return Parity(0.0, inf, 1.0, 1.0, len(wanted), 1.0, float(steps), 0.0)
    return Parity(0.0, inf, 1.0, same / len(wanted) if wanted else 1.0, len(wanted), 1.0, 0.0, 0.0)


def _compare_arrays(name: str, references: list[Any], results: list[Any]) -> Parity:
    """Compare an output, array by array, so that no copy of all runs is made."""
    import numpy

    values = sum(one.size for one in references)
    dtype = str(references[0].dtype)
    if references[0].dtype.kind != "f":
        if dtype in _STEPPED:
            both = zip(references, results, strict=True)
            steps = max((int(abs(a.astype(int) - b).max(initial=0)) for a, b in both), default=0)
            top1 = _top1_of_arrays(references, results, float(steps))
            return Parity(0.0, inf, top1, 1.0, values, 1.0, float(steps), 0.0)
        same = sum(int((a == b).sum()) for a, b in zip(references, results, strict=True))
        return Parity(0.0, inf, 1.0, same / values if values else 1.0, values, 1.0, 0.0, 0.0)
    with numpy.errstate(all="ignore"):
        pairs = []
        for want, got in zip(references, results, strict=True):
            finite = numpy.isfinite(want) & numpy.isfinite(got)
            if not finite.all():
                odd = ~finite & ~((want == got) | (numpy.isnan(want) & numpy.isnan(got)))
                if odd.any():
                    return Parity(inf, -inf, 0.0, 1.0, values, 0.0)
                want, got = numpy.where(finite, want, 0), numpy.where(finite, got, 0)
            pairs.append((want, got, int(finite.sum())))
        unit = max((float(abs(want).max(initial=0)) for want, _, _ in pairs), default=0.0) or 1.0
        sums = _Sums(unit)
        for want, got, count in pairs:
            a, b = want.astype(float), got.astype(float)
            a /= unit
            b /= unit
            error = a - b
            sums.count += count
            sums.noise += float(numpy.vdot(error, error))
            sums.signal += float(numpy.vdot(a, a))
            sums.power += float(numpy.vdot(b, b))
            sums.product += float(numpy.vdot(a, b))
            sums.largest = max(sums.largest, float(error.max(initial=0)), -float(error.min(initial=0)))
    is_probability = all(bool(((want >= 0) & (want <= 1)).all()) for want, _, _ in pairs)
    top1 = _top1_of_arrays(references, results, sums.largest * unit)
    lost = ("", 0)
    if sums.noise:
        lost = _lost_slices(name, [want for want, _, _ in pairs], [got for _, got, _ in pairs], sums)
    return sums.parity(values, top1, is_probability=is_probability, lost=lost)


def _lost_slices(name: str, references: list[Any], results: list[Any], whole: _Sums) -> tuple[str, int]:
    """Name the worst slice of which nothing is left, along the axis on which scales differ most, and count them all."""
    import numpy

    shapes = [one.shape for one in references]
    if len(shapes[0]) < 3:  # rows of classes and embeddings are judged as a whole
        return "", 0
    chosen, widest, energies = 0, _SLICE_SPREAD, None
    for axis in range(1, len(shapes[0])):
        sizes = {shape[axis] for shape in shapes}
        if len(sizes) > 1 or not 2 <= max(sizes) <= _MAX_SLICES:
            continue
        if max(sizes) ** 2 > sum(one.size for one in references):  # places, such as anchors: one value has no scale
            continue
        others = tuple(other for other in range(len(shapes[0])) if other != axis)
        found = sum(((one.astype(float) / whole.unit) ** 2).sum(axis=others) for one in references)
        scales = numpy.sqrt(found[found > 0])
        if not len(scales):
            continue
        middle = float(numpy.median(scales))
        spread = max(float(scales.max()) / middle, middle / float(scales.min()))
        if spread > widest:
            chosen, widest, energies = axis, spread, found
    if energies is None:
        return "", 0
    others = tuple(other for other in range(len(shapes[0])) if other != chosen)
    noise = sum(
        (((want.astype(float) - got) / whole.unit) ** 2).sum(axis=others)
        for want, got in zip(references, results, strict=True)
    )
    largest = numpy.max([abs(one).max(axis=others) for one in references], axis=0)
    smallest = numpy.min([one.min(axis=others) for one in references], axis=0)
    is_probability = (smallest >= 0) & (largest <= 1)
    share = numpy.sqrt(energies * len(energies) / max(whole.signal, 1e-300))
    counts = numpy.where(is_probability, largest >= SLICE_MIN_PROBABILITY, share >= SLICE_MIN_SHARE)
    lost = counts & (noise > energies * 10 ** (-SLICE_MIN_SQNR_DB / 10))
    if not lost.any():
        return "", 0
    # A slice of zeros has no ratio, and none counts.
    index = int(numpy.argmax(numpy.divide(noise, energies, out=numpy.zeros_like(energies), where=lost)))
    return f"{name}[{':, ' * chosen}{index}]", int(lost.sum())


def in_numpy(value: Any) -> bool:
    """Tell whether numpy is imported and measures this array or Tensor; the others are measured as lists."""
    return "numpy" in sys.modules and dtype_name(value) in _IN_NUMPY


def to_array(value: Any) -> Any:
    """Return a tensor as a numpy array over the same memory."""
    return to_numpy(value.to_host()) if isinstance(value, Tensor) else value


def dtype_name(array: Any) -> str:
    """Return the element type of an array or a Tensor; numpy holds texts as objects, or in a type for their length."""
    kind = getattr(array.dtype, "kind", "")
    return DType.STRING if kind in ("O", "U") else str(array.dtype)


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


def _top1_of_arrays(references: list[Any], results: list[Any], error: float) -> float:
    """Compare the best class of each row as `_top1` does; only outputs of two dimensions are rankings."""
    import numpy

    clear = same = 0
    for want, got in zip(references, results, strict=True):
        if want.ndim != 2 or want.shape[1] < 2 or not len(want):
            return 1.0
        ordered = numpy.sort(want.astype(float), axis=1)
        is_clear = ordered[:, -1] - ordered[:, -2] > error
        clear += int(is_clear.sum())
        same += int((want.argmax(axis=1) == got.argmax(axis=1))[is_clear].sum())
    return same / clear if clear else 1.0
