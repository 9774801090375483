"""Draw the charts of the HTML page: size against quality, and the sensitivity of each layer."""

from __future__ import annotations

from html import escape
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.cli.output import size
from edge_infer_converters.report.reporter import decibels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.search.mixed_onnx import MixedModel

# Beyond this the outputs are equal for every purpose, and the scale would have no room for what matters.
_MOST_DB = 80.0


class Point(NamedTuple):
    """A variant or a trial."""

    nbytes: int
    sqnr_db: float
    label: str
    precision: str


def scatter(result: Conversion, mixed: MixedModel | None) -> str:
    """Draw sizes against quality, as SVG; the line joins what nothing else beats in both."""
    points = [
        Point(one.nbytes, one.quality.parity.sqnr_db, _label(one), one.variant.precision) for one in result.variants
    ]
    trials = [Point(t.nbytes, t.sqnr_db, "", "mixed") for t in mixed.search.trials] if mixed else []
    everything = [*points, *trials]
    low, high = min(p.nbytes for p in everything), max(p.nbytes for p in everything)
    left, right, top, bottom = 50, 700, 15, 330
    span = max(log10(high / low), 0.05)

    def x(nbytes: float) -> float:
        return left + 20 + (right - left - 190) * log10(nbytes / low) / span

    def y(value: float) -> float:
        return bottom - (bottom - top) * min(max(value, 0.0), _MOST_DB) / _MOST_DB

    drawn = [f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}" class="axis"/>']
    for value in range(0, int(_MOST_DB) + 1, 20):
        drawn.append(f'<line x1="{left}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" class="grid"/>')
        text = f"{value} dB" if value < _MOST_DB else f"≥ {value}"
        drawn.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end" class="tick">{text}</text>')
    for nbytes in _ticks(low, high):
        drawn.append(
            f'<text x="{x(nbytes):.1f}" y="{bottom + 18}" text-anchor="middle" class="tick">{size(nbytes)}</text>'
        )
        drawn.append(f'<line x1="{x(nbytes):.1f}" y1="{bottom}" x2="{x(nbytes):.1f}" y2="{bottom + 4}" class="axis"/>')
    line = " ".join(f"{x(p.nbytes):.1f},{y(p.sqnr_db):.1f}" for p in front(everything))
    drawn.append(f'<polyline points="{line}" class="front"/>')
    drawn += [f'<circle cx="{x(p.nbytes):.1f}" cy="{y(p.sqnr_db):.1f}" r="2.5" class="mixed trial"/>' for p in trials]
    used: list[tuple[float, float]] = []
    for p in sorted(points, key=lambda point: -point.sqnr_db):
        across, down = x(p.nbytes), y(p.sqnr_db)
        drawn.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="5" class="{p.precision}"/>')
        at = down + 4
        while any(abs(at - other) < 14 and abs(across - place) < 170 for place, other in used):
            at += 14
        used.append((across, at))
        if at > down + 4:
            drawn.append(
                f'<line x1="{across:.1f}" y1="{down:.1f}" x2="{across + 8:.1f}" y2="{at - 4:.1f}" class="leader"/>'
            )
        drawn.append(f'<text x="{across + 9:.1f}" y="{at:.1f}" class="{p.precision}">{escape(p.label)}</text>')
    return f'<svg viewBox="0 0 720 360" role="img" aria-label="size and quality">{"".join(drawn)}</svg>'


def _label(one: ConvertedVariant) -> str:
    """Name a point, with its time against fp32 where there is one."""
    return one.variant.id if one.latency is None else f"{one.variant.id}, {one.latency.ratio:.2f}×"


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in size and quality, the smallest first."""
    best = -float("inf")
    found: list[Point] = []
    for point in sorted(points, key=lambda one: (one.nbytes, -one.sqnr_db)):
        if point.sqnr_db > best:
            found.append(point)
            best = point.sqnr_db
    return found


def _ticks(low: int, high: int) -> list[int]:
    """Return round sizes between two sizes."""
    first, last = floor(log10(low)), floor(log10(high)) + 1
    values = [factor * 10**power for power in range(first, last + 1) for factor in (1, 2, 3, 5, 7)]
    return [value for value in values if low <= value <= high]


def bars(mixed: MixedModel) -> str:
    """Draw what each weight costs in fewer bits, as SVG."""
    noises: dict[str, dict[str, float]] = {}
    for one in mixed.sensitivities:
        noises.setdefault(one.weight.name, {})[one.encoding] = one.sqnr_db
    weights = [weight for weight in mixed.weights if weight.name in noises]
    left, width, step = 230, 420, 26
    drawn: list[str] = []
    for i, weight in enumerate(weights):
        middle = i * step + 14
        name = weight.label if len(weight.label) <= 32 else f"{weight.label[:14]}…{weight.label[-16:]}"
        drawn.append(f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end" class="name">{escape(name)}</text>')
        for j, encoding in enumerate(("int8", "int4")):
            value = noises[weight.name].get(encoding)
            if value is None:
                continue
            length = width * min(max(value, 0.0), _MOST_DB) / _MOST_DB if isfinite(value) else width
            drawn.append(
                f'<rect x="{left}" y="{middle - 9 + 9 * j}" width="{length:.1f}" height="8" '
                f'class="{encoding}"><title>{encoding}: {decibels(value)}</title></rect>'
            )
        stored = mixed.trial.choice.get(weight.name, "fp32")
        drawn.append(f'<text x="{left + width + 12}" y="{middle + 4}" class="{stored}">{stored}</text>')
    height = len(weights) * step + 6
    return f'<svg viewBox="0 0 720 {height}" role="img" aria-label="sensitivity of layers">{"".join(drawn)}</svg>'
