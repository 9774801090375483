"""Write a conversion as one self-contained HTML page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.cli.output import size
from edge_infer.errors import BundleError
from edge_infer.platform.atomic_write import write_file
from edge_infer.runtime.selection import by_rule
from edge_infer_converters.data.thumbnails import data_url
from edge_infer_converters.report.charts import bars, scatter
from edge_infer_converters.report.compiled import section
from edge_infer_converters.report.reporter import decibels

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.variants import ConvertedVariant
    from edge_infer_converters.search.layers import Layer
    from edge_infer_converters.search.mixed_onnx import MixedModel
    from edge_infer_converters.writers.compiled.writer import Compiled

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --soft: #4b5563; --pale: #6b7280; --line: #d1d5db; --grid: #e5e7eb;
  --page: #fff; --fp32: #6b7280; --fp16: #2563eb; --int8: #047857; --int4: #b45309; --mixed: #be185d }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --soft: #b6bcc6; --pale: #8b93a1; --line: #4b5563;
  --grid: #2b3440; --page: #111827; --fp32: #9ca3af; --fp16: #60a5fa; --int8: #34d399; --int4: #fbbf24;
  --mixed: #f472b6 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--page) }
h1, h2 { overflow-wrap: anywhere }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
p { margin: .25rem 0; color: var(--soft) } .wide { overflow-x: auto }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
svg .axis, svg .front { stroke: var(--line) } svg .grid { stroke: var(--grid) }
svg .front { fill: none; stroke: var(--pale); stroke-dasharray: 4 3 }
svg .leader { stroke: var(--pale); stroke-width: .6 }
svg .tick { fill: var(--soft) } svg .name { fill: var(--ink) } svg .trial { opacity: .4 }
.fp32 { fill: var(--fp32) } .fp16 { fill: var(--fp16) } .int8 { fill: var(--int8) } .int4 { fill: var(--int4) }
.mixed { fill: var(--mixed) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .6rem; text-align: right; vertical-align: top }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left }
th { border-bottom: 2px solid var(--line); font-weight: 600; white-space: nowrap }
td { border-bottom: 1px solid var(--grid) } td:first-child { white-space: nowrap } .out td { color: var(--pale) }
.text th, .text td { text-align: left } .drawing { width: 100%; height: auto }
.samples { display: flex; flex-wrap: wrap; gap: 1rem; margin-top: .5rem } figure { margin: 0; width: 6.5rem }
figure img { width: 6rem; height: 6rem; object-fit: contain; image-rendering: pixelated;
  border: 1px solid var(--line) }
figcaption { font-size: .8rem; color: var(--soft); line-height: 1.3 }
"""


class _Place(NamedTuple):
    """Somewhere a bundle is run: its name, the format that its engine reads, and the device in `select`'s words."""

    name: str
    format: str
    device: str


_PLACES = (
    _Place("Browser, without an engine", "compiled", "wasm"),
    _Place("Browser, wasm", "onnx", "wasm"),
    _Place("Browser, WebGPU", "onnx", "webgpu"),
    _Place("CPU or Raspberry Pi, onnxruntime", "onnx", "cpu"),
    _Place("CPU or Raspberry Pi, LiteRT", "tflite", "cpu"),
    _Place("CPU or Raspberry Pi, without an engine", "compiled", "cpu"),
    _Place("CUDA, onnxruntime", "onnx", "cuda"),
)


def write(result: Conversion, mixed: MixedModel | None, data: CalibrationSet, compiled: Mapping[str, Compiled]) -> str:
    """Return the page.

    Args:
        result: What was made.
        mixed: What the search found, or None where there was none.
        data: The inputs that it was measured on.
        compiled: The compiled variants by their ids.
    """
    parts = [
        f"<h1>{escape(result.name)}</h1>",
        f"<p>Revision {result.revision[:12]}, measured on {escape(result.data)}.</p>",
        "<h2>Variants</h2>",
        _table(result),
        *_saturation(result.variants),
        "<h2>What each place will take</h2>",
        "<p>By the rules of <code>load</code>, before <code>edge-infer tune</code> measured anything there.</p>",
        _picks(result.variants),
        "<h2>Size and quality</h2>",
        "<p>Up is better, left is smaller; the time of a call against fp32 stands beside the name. The line joins what "
        "nothing else beats in both; small dots are trials of the search.</p>",
        scatter(result, mixed),
    ]
    if mixed is not None:
        kept = ", ".join(escape(weight.label) for weight in mixed.guilty)
        parts += [
            "<h2>Layers</h2>",
            "<p>SQNR of the outputs when this layer alone is stored in int8 (upper bar) or int4 (lower bar): a short "
            "bar is a layer that suffers. At the right, what it is stored as.</p>",
            f"<p>{'Kept in float: ' + kept + '.' if kept else 'No layer had to stay float.'}</p>",
            bars(mixed),
        ]
    for id_, layers in result.layers.items():
        parts += [f"<h2>Layers of {escape(id_)}</h2>", _layers(layers)]
    for id_, one in compiled.items():
        parts += section(one, id_)
    parts += _worst(result.variants, data)
    return page(result.name, parts)


def page_of_compiled(compiled: Compiled, name: str) -> str:
    """Return the page of a model that `edge-infer compile` wrote.

    Args:
        compiled: The model.
        name: What it is called.
    """
    return page(name, [f"<h1>{escape(name)}</h1>", *section(compiled, name)])


def page(name: str, parts: Sequence[str]) -> str:
    """Return a page of some parts.

    Args:
        name: Its title.
        parts: HTML, one below the other.
    """
    title = escape(name)
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
        write_file(Path(path), page.encode())
    except OSError as error:
        raise BundleError(f"The report `{path}` cannot be written: {error.strerror}") from error


def _table(result: Conversion) -> str:
    metric = result.metric
    heads = ["Variant", "Size", "SQNR", "Top-1", *([metric.capitalize(), "Loss"] if metric else []), "Time"]
    heads.append("Verdict")
    rows = []
    for one in result.variants:
        quality = one.quality
        cells = [one.variant.id, size(one.nbytes), decibels(quality.parity.sqnr_db), f"{quality.parity.top1:.2%}"]
        cells += [f"{quality.score:.4f}", f"{quality.loss:.2%}"] if metric else []
        cells.append("" if one.latency is None else f"{one.latency.ratio:.2f}×")
        reason = quality.verdict.reason
        word = f"{quality.verdict.word}: {reason}" if reason else quality.verdict.word
        cells.append(word if one.is_kept else f"left out: {reason}")
        body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f"<tr{'' if one.is_kept else ' class=out'}>{body}</tr>")
    for id_, reason in result.not_made.items():
        empty = "<td></td>" * (len(heads) - 2)
        rows.append(f"<tr class=out><td>{escape(id_)}</td>{empty}<td>not made: {escape(reason)}</td></tr>")
    head = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _saturation(variants: Sequence[ConvertedVariant]) -> list[str]:
    """Say what int8 loses on CPUs whose kernels saturate, where it was measured."""
    found = [(one.variant.id, one.saturation) for one in variants if one.saturation is not None]
    if not found:
        return []
    figures = ", ".join(f"{id_} {decibels(one.precise_db)} / {decibels(one.plain_db)}" for id_, one in found)
    if any(one.can_be_seen for _, one in found):
        note = "This CPU has no VNNI: the difference is what saturation of 16-bit sums costs."
    else:
        note = "This CPU sums exactly in both; what an x86 CPU without VNNI loses cannot be seen here."
    return [f"<p>int8 in precise mode / on plain kernels: {escape(figures)}. {note}</p>"]


def _picks(variants: Sequence[ConvertedVariant]) -> str:
    kept = [one.variant for one in variants if one.is_kept]
    rows = []
    for place in _PLACES:
        readable = [variant for variant in kept if variant.format == place.format]
        if readable:
            variant, why = by_rule(readable, place.device)
            cells = place.name, variant.id, why
        else:
            cells = place.name, "nothing", f"no {place.format} variant is in the bundle"
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "<tr><th>Place</th><th>Variant</th><th>Why</th></tr>"
    return f'<div class="wide"><table class="text">{head}{"".join(rows)}</table></div>'


def _layers(layers: Sequence[Layer]) -> str:
    """Return the table of layers, those that bring most error first."""
    rows = "".join(
        f"<tr><td>{escape(one.name)}</td><td>{one.encoding}</td>"
        f"<td>{'-' if one.sqnr_db is None else decibels(one.sqnr_db)}</td><td>{one.share:.1%}</td>"
        f"<td>{escape(one.reason)}</td></tr>"
        for one in layers
    )
    head = "<tr><th>layer</th><th>stored as</th><th>outputs, it alone</th><th>of the error</th><th>why</th></tr>"
    return f"<table>{head}{rows}</table>"


def _worst(variants: Sequence[ConvertedVariant], data: CalibrationSet) -> list[str]:
    """Show the samples on which the smallest variant is farthest from the source."""
    candidates = [one for one in variants if one.is_kept and one.quality.worst]
    if not candidates:
        return []
    one = min(candidates, key=lambda variant: variant.nbytes)
    shown = []
    for call, sqnr_db in one.quality.worst:
        pictures = (data_url(array) for array in data.calls[call].values())
        address = next((found for found in pictures if found), None)
        picture = f'<img alt="sample {call}" src="{address}">' if address else ""
        shown.append(f"<figure>{picture}<figcaption>sample {call}<br>{decibels(sqnr_db)}</figcaption></figure>")
    return [
        f"<h2>Worst samples of {escape(one.variant.id)}</h2>",
        "<p>Where its outputs are farthest from the source's, counted from 0.</p>",
        f'<div class="samples">{"".join(shown)}</div>',
    ]
