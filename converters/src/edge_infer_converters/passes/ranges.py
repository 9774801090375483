"""Find the ranges of values from calibration data, with or without rare outliers.

- `minmax`: from the smallest to the largest value seen. Nothing is clipped.
- `percentile`: what 99.99 % of the values keep within, on each side for itself.
- `mse`: the range whose squared error, clipping and rounding together, is least (as in Choukroun et al. 2019,
  "Low-bit Quantization of Neural Networks for Efficient Inference", by search over histograms).

Histograms need a second pass over the data: the first finds where they begin and end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx

from edge_infer_converters.passes.sessions import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: The ways to find a range; `auto` tries each and keeps what measures best.
METHODS = ("minmax", "percentile", "mse")
WORDS = (*METHODS, "auto")
#: What share of the values may lie beyond each end.
BEYOND = 1e-4
_BINS = 2048
# What a range is shrunk to, tried in turn.
_SHRINKING = np.linspace(1.0, 0.3, 36)


class Range(NamedTuple):
    """The values of one tensor; zero is always among them, since padding must be exact."""

    low: float
    high: float

    @property
    def is_finite(self) -> bool:
        """Whether both ends are numbers: masked scores may begin at minus infinity."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))


class Histogram:
    """How often values of one tensor were seen.

    Args:
        low: The smallest value that will come.
        high: The largest.
    """

    def __init__(self, low: float, high: float) -> None:
        self._edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
        self._counts = np.zeros(_BINS, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Count values; what is not finite, or outside, is left out."""
        counts, _ = np.histogram(values, self._edges)
        self._counts += counts

    def percentile(self, beyond: float = BEYOND) -> Range:
        """Return the range that leaves out this share of the values at each end."""
        total = self._counts.sum()
        if not total:
            return Range(0.0, 0.0)
        shares = np.cumsum(self._counts) / total
        first = int(np.searchsorted(shares, beyond, side="right"))
        last = int(np.searchsorted(shares, 1 - beyond, side="left"))
        return _with_zero(self._edges[min(first, _BINS - 1)], self._edges[min(last, _BINS - 1) + 1])

    def least_error(self, levels: int = 256) -> Range:
        """Return the range of least squared error when it is divided into this many levels.

        Both ends are shrunk, each by its own factor: first together, then the higher alone, then the lower.
        """
        centres = (self._edges[:-1] + self._edges[1:]) / 2
        whole = _with_zero(self._edges[0], self._edges[-1])

        def error(one: Range) -> float:
            beyond = np.maximum(centres - one.high, 0) + np.maximum(one.low - centres, 0)
            step = (one.high - one.low) / (levels - 1)
            inside = beyond == 0
            return float((self._counts * np.where(inside, step * step / 12, beyond * beyond)).sum())

        best = min((Range(whole.low * f, whole.high * f) for f in _SHRINKING), key=error)
        best = min((Range(best.low, whole.high * f) for f in _SHRINKING), key=error)
        return min((Range(whole.low * f, best.high) for f in _SHRINKING), key=error)


def activation_ranges(
    model: onnx.ModelProto,
    calls: Sequence[Mapping[str, np.ndarray]],
    method: str,
    see: Callable[[str, np.ndarray], None] | None = None,
) -> dict[str, Range]:
    """Find the range of every float32 value that a model computes or takes; some may have no end.

    Args:
        model: The float model; values inside subgraphs are left out.
        calls: The inputs of single calls.
        method: One of `METHODS`.
        see: Called with the name of each of these values and the value, once for each call.
    """
    given = [value.name for value in model.graph.input]
    inner = list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))
    session = session_of(_with_outputs(model, inner), "the model with all its values as outputs")

    def passes() -> Iterable[tuple[str, np.ndarray]]:
        for call in calls:
            results = zip(inner, session.run(inner, dict(call)), strict=True)
            for name, value in (*((name, call[name]) for name in given if name in call), *results):
                if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
                    yield name, value

    seen: dict[str, Range] = {}
    for name, value in passes():
        low, high = float(value.min()), float(value.max())
        known = seen.get(name, Range(0.0, 0.0))
        seen[name] = Range(min(known.low, low), max(known.high, high))
        if see is not None:
            see(name, value)
    if method == "minmax":
        return seen
    counted = {name: Histogram(*one) for name, one in seen.items() if one.is_finite}
    for name, value in passes():
        if name in counted:
            counted[name].add(value)
    chosen = {name: one.percentile() if method == "percentile" else one.least_error() for name, one in counted.items()}
    return seen | chosen


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    known = {value.name for value in opened.graph.output}
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    return opened


def _with_zero(low: float, high: float) -> Range:
    return Range(min(float(low), 0.0), max(float(high), 0.0))
