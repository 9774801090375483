"""`/fleet`: a page that people look at, made on the server; its only script paints the theme that was chosen."""

from __future__ import annotations

import time
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_infer.server.store.fleet import Fleet, Halt

_LOOK = Path(__file__).parents[1] / "static/dashboard"
_STYLES = (_LOOK / "look.css", Path(__file__).with_name("fleet.css"))
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' "
    "rx='8' fill='%233a5bd9'/%3E%3Cpath d='M8 21h16M8 16h16M8 11h16' stroke='white' stroke-width='3' "
    "stroke-linecap='round'/%3E%3C/svg%3E"
)
_WORDS = {
    "ok": ("updated", "good"),
    "current": ("up to date", "good"),
    "rolled_back": ("rolled back by hand", "quiet"),
    "held": ("waits for its turn", "quiet"),
    "fetch_failed": ("could not fetch", "bad"),
    "refused": ("not trusted", "bad"),
    "trial_failed": ("self-test failed", "bad"),
    "error": ("failed", "bad"),
}
_EMPTY = """<div class="card"><h2>No device has reported yet</h2>
<p class="quiet">A device that follows this server's store does so by itself:</p>
<p><code>edge-infer watch HOST/store/MODEL --into DIR</code></p></div>"""


def render(fleet: Fleet, *, now_s: float | None = None) -> str:
    """Return the page as HTML."""
    now_s = time.time() if now_s is None else now_s
    devices, versions, totals, halts, failing, latest = fleet.overview(latest=50)
    body = [_cards(devices, versions, totals, len(failing)) if devices else _EMPTY]
    body += [_halted(halt) for halt in halts]
    body += [_model(name, rows) for name, rows in _by_model(versions).items()]
    if failing:
        body.append(_devices("Failures", failing, now_s))
    if devices:
        body.append(_devices("Heard of last", latest, now_s))
    style = "".join(path.read_text("utf-8") for path in _STYLES)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fleet · edge-infer</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="{_ICON}"><style>{style}</style></head><body>'
        '<div class="page"><nav aria-label="Server"><a class="mark" href="./">edge-infer</a> <a href="./">Models</a> '
        '<a href="fleet" aria-current="page">Fleet</a> <a href="dashboard">Dashboard</a> '
        f'<button type="button" id="theme"></button></nav><script>{_theme()}</script><header><h1>Fleet</h1>'
        f'<span class="quiet small">as of {time.strftime("%H:%M:%S", time.gmtime(now_s))} UTC · '
        f'<a href="fleet">load again</a></span>'
        f"</header>"
        f"<main>{''.join(body)}</main></div></body></html>"
    )


def policy() -> str:
    """Return the page's Content-Security-Policy: of all scripts it runs the theme's alone, by its digest."""
    digest = b64encode(sha256(_theme().encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"


def _theme() -> str:
    return (_LOOK / "theme.js").read_text("utf-8")


def _halted(halt: Halt) -> str:
    model = escape(halt.model)
    return (
        f'<div class="card notice"><h2>The roll-out of {model} is halted</h2><p>'
        f"Version number {halt.sequence} failed its self-test on {halt.failed} of {halt.tried} devices. "
        f"Devices that ask this server take it no more. Publish a better version, or go on with "
        f"<code>edge-infer store stage STORE {model} SHARE</code>.</p></div>"
    )


def _cards(count: int, versions: list[dict[str, Any]], totals: list[dict[str, Any]], failing: int) -> str:
    newest = {name: max(row["sequence"] for row in rows) for name, rows in _by_model(versions).items()}
    on_newest = sum(row["devices"] for row in versions if row["sequence"] == newest[row["model"]] > 0)
    moved, full = (sum(row[name] for row in totals) for name in ("bytes_moved", "bytes_full"))
    saved = f"{1 - moved / full:.0%}" if full else "-"
    kind = "bad" if failing else ""
    cards = [
        (f"{count:,}", "devices", ""),
        (f"{on_newest / count:.0%}", "run the newest version they know", ""),
        (f"{failing:,}" + ("+" if failing >= 100 else ""), "failed at their last look", kind),
        (saved, f"of {_size(full)} saved: {_size(moved)} moved", ""),
    ]
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><div class="figure {kind}">{figure}</div>'
            f'<div class="quiet small">{escape(said)}</div></div>'
            for figure, said, kind in cards
        )
        + "</div>"
    )


def _by_model(versions: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in versions:
        found.setdefault(row["model"], []).append(row)
    return found


def _model(name: str, rows: list[dict[str, Any]]) -> str:
    count = sum(row["devices"] for row in rows)
    spans, legend = [], []
    for i, row in enumerate(rows[:8]):
        shade = f"opacity: {max(1 - 0.22 * i, 0.16):.2f}"
        label = f"version {row['version']}" if row["version"] else "none"
        spans.append(f'<span style="flex: {row["devices"]}; {shade}" title="{escape(label)}"></span>')
        legend.append(
            f'<li><span class="dot" style="{shade}"></span>{escape(label)} <span class="quiet">{row["devices"]:,} · '
            f"{row['devices'] / count:.0%}</span></li>"
        )
    more = sum(row["devices"] for row in rows[8:])
    rest = f'<li class="quiet">{more:,} on older ones</li>' if more else ""
    return (
        f'<div class="card"><div class="top"><h2>{escape(name)}</h2>'
        f'<span class="quiet small">{count:,} devices</span></div>'
        f'<div class="bar">{"".join(spans)}</div><ul class="legend small">{"".join(legend)}{rest}</ul></div>'
    )


def _devices(title: str, rows: list[dict[str, Any]], now_s: float) -> str:
    lines = []
    for row in rows:
        words, kind = _WORDS.get(row["result"], (row["result"], ""))
        error = f'<div class="quiet">{escape(row["error"])}</div>' if row["error"] else ""
        moved = f"{_size(row['bytes_moved'])}" if row["bytes_moved"] else "-"
        lines.append(
            f'<tr><td class="name">{escape(row["device"][:20])}</td>'
            f'<td><span class="{kind}">{escape(words)}</span>{error}</td>'
            f"<td>{escape(row['model'])}</td>"
            f"<td>{escape(row['version']) or '-'}</td><td>{escape(row['kind'])}</td>"
            f'<td>{escape(row["method"]) or "-"}</td><td class="right">{moved}</td>'
            f'<td class="right">{row["seconds"]:.1f} s</td>'
            f'<td class="right">{_ago(now_s - row["seen"])}</td></tr>'
        )
    return (
        f'<div class="card"><div class="top"><h2>{title}</h2></div>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><tr><th>Device</th>'
        f'<th>Last look</th><th>Model</th><th>Runs</th><th>Kind</th><th>By</th><th class="right">Moved</th>'
        f'<th class="right">Took</th>'
        f'<th class="right">Seen</th></tr>{"".join(lines)}</table></div></div>'
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
