"""A conversion as one self-contained HTML page: sizes against quality, and what each layer costs in fewer bits."""

from __future__ import annotations

from html import escape
from math import floor, isfinite, log10
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.cli.output import size
from edge_infer.errors import BundleError
from edge_infer_converters.report import decibels

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.mixed import MixedModel

# Beyond this the outputs are equal for every purpose, and the scale would have no room for what matters.
_MOST_DB = 80.0
_COLOURS = {"fp32": "#6b7280", "fp16": "#2563eb", "int8": "#059669", "int4": "#d97706", "mixed": "#be185d"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1f2937;
  background: #fff; }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .25rem 0; color: #4b5563 } svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
table { border-collapse: collapse; width: 100% } th, td { padding: .3rem .6rem; text-align: right }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left }
th { border-bottom: 2px solid #d1d5db; font-weight: 600 } td { border-bottom: 1px solid #e5e7eb }
.out td { color: #9ca3af }
"""


class _Point(NamedTuple):
    nbytes: int
    sqnr_db: float
    label: str
    precision: str


def write(result: Conversion, mixed: MixedModel | None) -> str:
    """Return the page.

    Args:
        result: What was made.
        mixed: What the search found, or None where there was none.
    """
    parts = [
        f"<h1>{escape(result.name)}</h1>",
        f"<p>Revision {result.revision[:12]}, measured on {escape(result.data)}.</p>",
        "<h2>Variants</h2>",
        _table(result),
        "<h2>Size and quality</h2>",
        "<p>Up is better, left is smaller. The line joins what nothing else beats in both; small dots are trials of "
        "the search.</p>",
        _scatter(result, mixed),
    ]
    if mixed is not None:
        kept = ", ".join(escape(weight.label) for weight in mixed.guilty)
        parts += [
            "<h2>Layers</h2>",
            "<p>SQNR of the outputs when this layer alone is stored in int8 (upper bar) or int4 (lower bar): a short "
            "bar is a layer that suffers. At the right, what it is stored as.</p>",
            f"<p>{'Kept in float: ' + kept + '.' if kept else 'No layer had to stay float.'}</p>",
            _bars(mixed),
        ]
    title = escape(result.name)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def save(path: str | os.PathLike[str], page: str) -> None:
    """Write the page.

    Raises:
        BundleError: The file cannot be written; the bundle is not touched.
    """
    try:
        Path(path).write_text(page, "utf-8")
    except OSError as error:
        raise BundleError(f"The report `{path}` cannot be written: {error.strerror}") from error


def _table(result: Conversion) -> str:
    metric = result.metric
    heads = ["Variant", "Size", "SQNR", "Top-1", *([metric.capitalize(), "Loss"] if metric else []), "Verdict"]
    rows = []
    for one in result.variants:
        quality = one.quality
        cells = [one.variant.id, size(one.nbytes), decibels(quality.parity.sqnr_db), f"{quality.parity.top1:.2%}"]
        cells += [f"{quality.score:.4f}", f"{quality.loss:.2%}"] if metric else []
        cells.append(quality.verdict.word if one.is_kept else f"left out: {quality.verdict.reason}")
        body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f"<tr{'' if one.is_kept else ' class=out'}>{body}</tr>")
    for id_, reason in result.not_made.items():
        empty = "<td></td>" * (len(heads) - 2)
        rows.append(f"<tr class=out><td>{escape(id_)}</td>{empty}<td>not made: {escape(reason)}</td></tr>")
    return f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{''.join(rows)}</table>"


def _scatter(result: Conversion, mixed: MixedModel | None) -> str:
    points = [
        _Point(one.nbytes, one.quality.parity.sqnr_db, one.variant.id, one.variant.precision) for one in result.variants
    ]
    trials = [_Point(t.nbytes, t.sqnr_db, "", "mixed") for t in mixed.search.trials] if mixed else []
    everything = [*points, *trials]
    low, high = min(p.nbytes for p in everything), max(p.nbytes for p in everything)
    left, right, top, bottom = 50, 700, 15, 330
    span = max(log10(high / low), 0.05)

    def x(nbytes: float) -> float:
        return left + 20 + (right - left - 110) * log10(nbytes / low) / span

    def y(value: float) -> float:
        return bottom - (bottom - top) * min(max(value, 0.0), _MOST_DB) / _MOST_DB

    drawn = [f'<line x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#9ca3af"/>']
    for value in range(0, int(_MOST_DB) + 1, 20):
        drawn.append(f'<line x1="{left}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" stroke="#e5e7eb"/>')
        text = f"{value} dB" if value < _MOST_DB else f"≥ {value}"
        drawn.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#4b5563">{text}</text>')
    for nbytes in _ticks(low, high):
        drawn.append(
            f'<text x="{x(nbytes):.1f}" y="{bottom + 18}" text-anchor="middle" fill="#4b5563">{size(nbytes)}</text>'
        )
        drawn.append(
            f'<line x1="{x(nbytes):.1f}" y1="{bottom}" x2="{x(nbytes):.1f}" y2="{bottom + 4}" stroke="#9ca3af"/>'
        )
    line = " ".join(f"{x(p.nbytes):.1f},{y(p.sqnr_db):.1f}" for p in front(everything))
    drawn.append(f'<polyline points="{line}" fill="none" stroke="#9ca3af" stroke-dasharray="4 3"/>')
    drawn += [
        f'<circle cx="{x(p.nbytes):.1f}" cy="{y(p.sqnr_db):.1f}" r="2.5" fill="{_COLOURS["mixed"]}" opacity=".35"/>'
        for p in trials
    ]
    used: list[tuple[float, float]] = []
    for p in sorted(points, key=lambda point: -point.sqnr_db):
        across, down = x(p.nbytes), y(p.sqnr_db)
        colour = _COLOURS.get(p.precision, "#111827")
        drawn.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="5" fill="{colour}"/>')
        at = down + 4
        while any(abs(at - other) < 14 and abs(across - place) < 90 for place, other in used):
            at += 14
        used.append((across, at))
        drawn.append(f'<text x="{across + 9:.1f}" y="{at:.1f}" fill="{colour}">{escape(p.label)}</text>')
    return f'<svg viewBox="0 0 720 360" role="img" aria-label="size and quality">{"".join(drawn)}</svg>'


def front(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that no other beats in size and quality, the smallest first."""
    best = -float("inf")
    found: list[_Point] = []
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


def _bars(mixed: MixedModel) -> str:
    noises: dict[str, dict[str, float]] = {}
    for one in mixed.sensitivities:
        noises.setdefault(one.weight.name, {})[one.encoding] = one.sqnr_db
    weights = [weight for weight in mixed.weights if weight.name in noises]
    left, width, step = 230, 420, 26
    drawn: list[str] = []
    for i, weight in enumerate(weights):
        middle = i * step + 14
        name = weight.label if len(weight.label) <= 32 else f"{weight.label[:14]}…{weight.label[-16:]}"
        drawn.append(f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end" fill="#1f2937">{escape(name)}</text>')
        for j, encoding in enumerate(("int8", "int4")):
            value = noises[weight.name].get(encoding)
            if value is None:
                continue
            length = width * min(max(value, 0.0), _MOST_DB) / _MOST_DB if isfinite(value) else width
            drawn.append(
                f'<rect x="{left}" y="{middle - 9 + 9 * j}" width="{length:.1f}" height="8" '
                f'fill="{_COLOURS[encoding]}"><title>{encoding}: {decibels(value)}</title></rect>'
            )
        stored = mixed.trial.choice.get(weight.name, "fp32")
        drawn.append(f'<text x="{left + width + 12}" y="{middle + 4}" fill="{_COLOURS[stored]}">{stored}</text>')
    height = len(weights) * step + 6
    return f'<svg viewBox="0 0 720 {height}" role="img" aria-label="sensitivity of layers">{"".join(drawn)}</svg>'
