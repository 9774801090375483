"""Whether counters differ from their reference by more than chance, and by how much.

Features of numbers are compared by the Kolmogorov-Smirnov distance on the bins, whose limit law holds (and is cautious)
for binned data (Noether, 1963); categories and missing values by Pearson's chi-square of two samples. The level is
divided by the number of tests (Bonferroni). The size of a difference is the population stability index less what it is
expected to be without any difference, (bins - 1) (1/n + 1/m).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from edge_infer.monitor.reference import Feature, Reference

    class Counted(Protocol):
        """What is needed of `edge_infer.monitor.counters.Counters`, which imports this file."""

        reference: Reference
        rows: int
        counts: dict[str, list[int]]


#: How often an alarm of any feature is false: once in a thousand decisions.
LEVEL = 0.001
#: Below so many rows nothing is decided.
LEAST_ROWS = 500
_MIN_EXPECTED = 5.0


class Finding(NamedTuple):
    """The comparison of one feature.

    Attributes:
        feature: Its name.
        drifted: Whether it differs by more than chance.
        distance: For numbers the largest difference of the two cumulative shares, 0 to 1; for categories half the sum
            of the differences of the shares.
        p: How likely such a distance is without any drift.
        effect: The population stability index less its expectation without drift; not below 0.
        missing: The share of rows without a value, now.
        missing_before: The same in the reference.
        missing_drifted: Whether these two differ by more than chance.
        outside: The share of rows outside of the reference's range, or of unknown categories.
        kind: `numbers` or `categories`.
    """

    feature: str
    drifted: bool
    distance: float
    p: float
    effect: float
    missing: float
    missing_before: float
    missing_drifted: bool
    outside: float
    kind: str


class Verdict(NamedTuple):
    """What counters say.

    Attributes:
        word: `drift`, `no drift` or `not enough data`.
        rows: How many rows were counted.
        least_rows: How many it takes.
        detectable: The smallest distance of a feature of numbers that this many rows can tell from chance.
        findings: Those of all features.
    """

    word: str
    rows: int
    least_rows: int
    detectable: float
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """Describe this verdict for `--json`."""
        return {**self._asdict(), "findings": [one._asdict() for one in self.findings]}


def decide(counters: Counted, level: float = LEVEL, least_rows: int = LEAST_ROWS) -> Verdict:
    """Compare counters with their reference.

    Args:
        counters: What was counted.
        level: How often any alarm may be false.
        least_rows: The rows below which nothing is decided.

    >>> decide(counters).word  # doctest: +SKIP
    'no drift'
    """
    features = counters.reference.features
    share = level / max(_tests(counters), 1)
    findings = [_finding(one, counters.counts[one.name], share) for one in features]
    enough = counters.rows >= least_rows
    if not enough:
        findings = [one._replace(drifted=False, missing_drifted=False) for one in findings]
    word = "drift" if any(one.drifted or one.missing_drifted for one in findings) else "no drift"
    detectable = _least_distance(counters.rows, counters.reference.rows, share)
    return Verdict(word if enough else "not enough data", counters.rows, least_rows, detectable, findings)


def _tests(counters: Counted) -> int:
    """Count the tests: one for each feature, and one for each that may have missing values."""
    return sum(1 + _has_missing(one, counters.counts[one.name]) for one in counters.reference.features)


def _has_missing(feature: Feature, counts: Sequence[int]) -> bool:
    return feature.missing > 0 or _missing_of(feature, counts) > 0


def _missing_of(feature: Feature, counts: Sequence[int]) -> int:
    return counts[-1] if feature.values else counts[-3]


def _finding(feature: Feature, counts: Sequence[int], level: float) -> Finding:
    now = list(counts[: len(feature.counts)])
    missing = _missing_of(feature, counts)
    n, m = sum(now), sum(feature.counts)
    distance, p, effect = 0.0, 1.0, 0.0
    if n and m:
        if feature.values:
            distance = sum(abs(a / n - b / m) for a, b in zip(now, feature.counts, strict=True)) / 2
            p = chi_square(now, feature.counts)
        else:
            distance = ks_distance(now, feature.counts)
            p = kolmogorov(distance * math.sqrt(n * m / (n + m)))
        effect = max(stability_index(now, feature.counts) - (len(now) - 1) * (1 / n + 1 / m), 0.0)
    is_missing_tested = _has_missing(feature, counts) and n + missing > 0
    p_missing = chi_square([missing, n], [feature.missing, m], yates=True) if is_missing_tested else 1.0
    outside = counts[len(feature.values)] if feature.values else counts[-2] + counts[-1]
    return Finding(
        feature.name,
        p < level,
        distance,
        p,
        effect,
        missing / max(n + missing, 1),
        feature.missing / max(m + feature.missing, 1),
        p_missing < level,
        outside / max(n, 1),
        "categories" if feature.values else "numbers",
    )


def ks_distance(now: Sequence[int], before: Sequence[int]) -> float:
    """Return the largest difference of two cumulative shares."""
    n, m = sum(now), sum(before)
    left = right = 0
    worst = 0.0
    for a, b in zip(now, before, strict=True):
        left, right = left + a, right + b
        worst = max(worst, abs(left / n - right / m))
    return worst


def kolmogorov(value: float) -> float:
    """Return the chance that Kolmogorov's statistic is above a value: 2 sum (-1)^(k-1) exp(-2 k^2 x^2)."""
    if value < 0.2:
        return 1.0
    total = sum((1.0 if k % 2 else -1.0) * math.exp(-2 * k * k * value * value) for k in range(1, 101))
    return min(max(2 * total, 0.0), 1.0)


def _least_distance(n: int, m: int, level: float) -> float:
    """Return the distance whose chance is the level: sqrt(-ln(level / 2) / 2) over the root of the rows."""
    return min(math.sqrt(-math.log(level / 2) / 2 * (n + m) / (n * m)), 1.0) if n and m else 1.0


def stability_index(now: Sequence[int], before: Sequence[int]) -> float:
    """Return the population stability index of two histograms, half a row added to each bin."""
    n, m = sum(now) + 0.5 * len(now), sum(before) + 0.5 * len(before)
    shares = [((a + 0.5) / n, (b + 0.5) / m) for a, b in zip(now, before, strict=True)]
    return sum((q - p) * math.log(q / p) for q, p in shares)


def chi_square(now: Sequence[int], before: Sequence[int], *, yates: bool = False) -> float:
    """Return the chance of such a difference of two samples of counts; rare cells are joined until 5 are expected."""
    n, m = sum(now), sum(before)
    if not n or not m:
        return 1.0
    cells = sorted(zip(now, before, strict=True), key=lambda cell: cell[0] + cell[1])
    least = _MIN_EXPECTED * (n + m) / min(n, m)
    joined: list[tuple[int, int]] = []
    rest = (0, 0)
    for a, b in cells:
        rest = (rest[0] + a, rest[1] + b)
        if sum(rest) >= least:
            joined.append(rest)
            rest = (0, 0)
    if sum(rest) and joined:
        joined[-1] = (joined[-1][0] + rest[0], joined[-1][1] + rest[1])
    if len(joined) < 2:
        return 1.0
    total = 0.0
    for a, b in joined:
        for got, size in ((a, n), (b, m)):
            expected = size * (a + b) / (n + m)
            total += max(abs(got - expected) - (0.5 if yates else 0.0), 0.0) ** 2 / expected
    return upper_gamma((len(joined) - 1) / 2, total / 2)


def upper_gamma(a: float, x: float) -> float:
    """Return the regularised upper incomplete gamma function Q(a, x) (DLMF 8.11.4 below a + 1, 8.9.2 above)."""
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for k in range(1, 1000):
            term *= x / (a + k)
            total += term
            if term < total * 1e-15:
                break
        return max(1 - front * total, 0.0)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    value = d
    for k in range(1, 1000):
        step = k * (a - k)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return min(max(front * value, 0.0), 1.0)
