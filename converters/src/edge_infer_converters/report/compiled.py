"""What a report says of a compiled model: its calls with their multiplications, and its memory, drawn."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from edge_infer.cli.output import size
from edge_infer_converters.report.timeline import draw
from edge_infer_converters.writers.compiled.writer import short_name

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.writer import Compiled


def section(compiled: Compiled, title: str) -> list[str]:
    """Return the HTML about a compiled model.

    Args:
        compiled: The model.
        title: What it is called.
    """
    # An image, and no part of the page: the drawing has colours and styles of its own.
    drawing = b64encode(draw(compiled, title).encode()).decode()
    said = f"{size(compiled.arena_bytes)} for the tensors of {len(compiled.layers)} calls"
    rows = "".join(
        f"<tr><td>{i}</td><td>{escape(one.operator)}</td><td>{escape(one.kernel)}</td>"
        f"<td>{f'{one.multiply_accumulates:,}' if one.multiply_accumulates else ''}</td>"
        f"<td>{one.arena_bytes:,}</td>"
        f'<td title="{escape(one.output)}">{escape(short_name(one.output))}</td></tr>'
        for i, one in enumerate(compiled.layers)
    )
    heads = ("Call", "Operator", "Kernel", "Multiplications", "Memory in use, bytes", "Output")
    return [
        f"<h2>Calls of {escape(title)}</h2>",
        f"<p>{compiled.multiply_accumulates:,} multiplications a run, constants {size(len(compiled.constants))}, "
        f"{said}. The drawing shows where each tensor lies, from the call that writes it to the last one that reads "
        "it.</p>",
        f'<img class="drawing" alt="{escape(said)}" src="data:image/svg+xml;base64,{drawing}">',
        f'<div class="wide"><table><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr>{rows}</table></div>',
    ]
