"""Draw the arena of a compiled model: the memory of each tensor, from its first call to its last."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from edge_infer.cli.output import size
from edge_infer_converters.writers.compiled.writer import short_name

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.writer import Compiled, Layer, Span

_WIDTH, _HEIGHT = 900, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 880, 54, 370
#: Colours that are told apart in light and dark, and by most who see colours otherwise.
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#9c755f", "#8a8f98")
_STYLE = """:root { --ink: #1f2430; --pale: #6b7280; --line: #d7dbe2; --page: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --pale: #9aa3b2; --line: #3b4252; --page: #14171f; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .pale { fill: var(--pale); }
.line { stroke: var(--line); } .page { fill: var(--page); } .span { stroke: var(--page); stroke-width: 1.5; }
.name { fill: #fff; font-weight: 600; pointer-events: none; }"""


class Drawn(NamedTuple):
    """What is drawn of a model: its calls, the size of its arena, and what lies in it."""

    layers: tuple[Layer, ...]
    arena_bytes: int
    spans: tuple[Span, ...]


def draw(compiled: Compiled | Drawn, title: str) -> str:
    """Return an SVG file: calls from left to right, bytes of the arena upwards.

    Args:
        compiled: The model.
        title: What it is called.
    """
    calls, most = max(len(compiled.layers), 1), max(compiled.arena_bytes, 1)
    across, up = (_RIGHT - _LEFT) / calls, (_BOTTOM - _TOP) / most
    worst = max(range(len(compiled.layers)), key=lambda i: compiled.layers[i].arena_bytes, default=0)
    shown = escape(short_name(title, 70))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>Memory of {escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="22" font-weight="600">{shown}: {size(compiled.arena_bytes)} for the tensors of '
        f"{len(compiled.layers)} calls</text>",
    ]
    if compiled.layers:
        layer = compiled.layers[worst]
        parts.append(
            f'<text class="pale" x="{_LEFT}" y="40">most in use by call {worst}, {escape(layer.operator)}: '
            f"{size(layer.arena_bytes)}</text>"
        )
    for quarter in range(5):
        y = _BOTTOM - quarter * (_BOTTOM - _TOP) / 4
        parts.append(f'<line class="line" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="pale" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{size(most * quarter // 4)}</text>'
        )
    for span in sorted(compiled.spans, key=lambda one: -one.nbytes):
        x, width = _LEFT + span.first * across, (span.last - span.first + 1) * across
        height, y = span.nbytes * up, _BOTTOM - (span.offset + span.nbytes) * up
        colour = _COLOURS[crc32(span.name.encode()) % len(_COLOURS)]
        said = f"{span.name}: {size(span.nbytes)}, calls {span.first} to {span.last}"
        parts.append(
            f'<rect class="span" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 1):.1f}" rx="2" '
            f'fill="{colour}"><title>{escape(said)}</title></rect>'
        )
        if width > 60 and height > 16:
            room = int((width - 12) / 7.5)
            name = span.name if len(span.name) <= room else f"{span.name[: room - 1]}…"
            parts.append(f'<text class="name" x="{x + 6:.1f}" y="{y + height / 2 + 4:.1f}">{escape(name)}</text>')
    step = max(1, -(-calls // 12))
    for call in range(0, calls, step):
        x = _LEFT + (call + 0.5) * across
        parts.append(f'<text class="pale" x="{x:.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{call}</text>')
    parts.append(
        f'<text class="pale" x="{(_LEFT + _RIGHT) / 2:.1f}" y="{_BOTTOM + 38}" text-anchor="middle">call</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"
