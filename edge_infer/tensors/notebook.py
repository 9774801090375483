"""Show facts as a small HTML table, for the notebooks that ask for `_repr_html_`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Half-transparent greys and the text's own colour: a notebook may be dark or light, and does not say which.
_TABLE = "border-collapse:collapse;font:13px/1.5 system-ui,sans-serif;color:inherit;margin:4px 0"
_CAPTION = "caption-side:top;text-align:left;font-weight:600;padding:2px 0;color:inherit"
_NAME = (
    "text-align:left;vertical-align:top;font-weight:400;opacity:.65;padding:2px 16px 2px 0;white-space:nowrap;"
    "background:transparent;border-top:1px solid rgba(127,127,127,.3)"
)
_VALUE = (
    "text-align:left;vertical-align:top;padding:2px 0;background:transparent;overflow-wrap:anywhere;"
    "border-top:1px solid rgba(127,127,127,.3)"
)


def html_table(caption: str, rows: Iterable[tuple[str, object]]) -> str:
    """Write a table of names and values, all of it escaped.

    Args:
        caption: What it is of.
        rows: The names and the values; those of a list or tuple stand below each other. Empty ones are left out.

    >>> "&lt;b&gt;" in html_table("Session", [("model", "<b>"), ("fallbacks", ())]), "fallbacks" in html_table("", [])
    (True, False)
    """
    from html import escape

    lines = [f'<table style="{_TABLE}"><caption style="{_CAPTION}">{escape(caption)}</caption><tbody>']
    for name, value in rows:
        parts = list(value) if isinstance(value, (list, tuple)) else [value]
        text = "<br>".join(escape(str(part)) for part in parts)
        if text:
            lines.append(
                f'<tr><th scope="row" style="{_NAME}">{escape(name)}</th><td style="{_VALUE}">{text}</td></tr>'
            )
    lines.append("</tbody></table>")
    return "".join(lines)
