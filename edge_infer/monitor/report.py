"""The report of a comparison as one HTML page, readable in the dark and in the light, without a script."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_infer.monitor.counters import Counters
    from edge_infer.monitor.decision import Finding, Verdict
    from edge_infer.monitor.reference import Feature

_STYLE = """
:root { color-scheme: light dark; --ink: #16191d; --soft: #5b6572; --line: #dfe3e8; --paper: #ffffff; --card: #f6f7f9;
  --now: #1f6feb; --before: #b3bcc7; --bad: #b42318; --bad-paper: #fdecea; --good: #1a7f47; --good-paper: #e8f5ee;
  --wait: #8a5a00; --wait-paper: #fdf3dc; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7eaee; --soft: #98a3b0; --line: #2c333b; --paper: #14171b; --card: #1b1f24; --now: #6aa5ff;
    --before: #56606c; --bad: #ff8b80; --bad-paper: #3a1c1a; --good: #6fd19b; --good-paper: #14301f; --wait: #f2c063;
    --wait-paper: #362a10; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; text-wrap: balance } h2 { font-size: 1.05rem; margin: 2.5rem 0 .75rem }
p { margin: .25rem 0; max-width: 44rem } .soft { color: var(--soft) }
.verdict { border-radius: 10px; padding: 1rem 1.25rem; margin: 1.25rem 0; background: var(--good-paper);
  overflow-wrap: anywhere }
.verdict strong { color: var(--good); font-size: 1.15rem } .drift { background: var(--bad-paper) }
.drift strong { color: var(--bad) } .wait { background: var(--wait-paper) } .wait strong { color: var(--wait) }
.grid { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)) }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .8rem .9rem }
.card.off { border-color: var(--bad) } .card h3 { font-size: .95rem; margin: 0; overflow-wrap: anywhere }
.card svg { display: block; width: 100%; height: 84px; margin: .5rem 0 .4rem } .now { fill: var(--now) }
.before { fill: var(--before) } .card p { font-size: .82rem; font-variant-numeric: tabular-nums }
.mark { float: right; font-size: .78rem; color: var(--bad); font-weight: 600; margin-left: .5rem }
.key { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin: 0 .3rem -1px .9rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .88rem }
.wide { overflow-x: auto; margin-bottom: .75rem }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child { text-align: left; min-width: 9rem; overflow-wrap: anywhere }
th { color: var(--soft); font-weight: 600 }
td.off { color: var(--bad); font-weight: 600 }
"""
_WORDS = {
    "drift": ("drift", "The data have changed"),
    "no drift": ("", "The data look as they did"),
    "not enough data": ("wait", "Not enough data"),
}


def write_report(name: str, counters: Counters, verdict: Verdict) -> str:
    """Write the page.

    Args:
        name: The model's name.
        counters: What was counted.
        verdict: What `decide` says of it.
    """
    kind, head = _WORDS[verdict.word]
    off = [one for one in verdict.findings if one.drifted or one.missing_drifted]
    by_name = {one.name: one for one in counters.reference.features}
    order = sorted(verdict.findings, key=lambda one: (not (one.drifted or one.missing_drifted), -one.effect))
    cards = "\n".join(_card(by_name[one.feature], counters.counts[one.feature], one) for one in order)
    rows = "\n".join(map(_row, order))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(name)}: {escape(verdict.word)}</title><style>{_STYLE}</style></head>
<body><main>
<h1>{escape(name)}: drift of its inputs and outputs</h1>
<p class="soft">{verdict.rows:,} rows, compared with {counters.reference.rows:,} of the reference in the bundle.</p>
<section class="verdict {kind}"><strong>{head}.</strong> <span>{escape(_said(verdict, off))}</span></section>
<p class="soft">Changed data need not make answers wrong, and answers may become wrong while the data stay the same.
Only labels show that.</p>
<h2>Features<span class="key" style="background: var(--now)"></span><span class="soft">now</span><span class="key"
style="background: var(--before)"></span><span class="soft">reference</span></h2>
<div class="grid">
{cards}
</div>
<h2>Figures</h2>
<div class="wide"><table><thead><tr><th>Feature</th><th>Distance</th><th>Chance</th><th>Effect</th><th>Missing</th>
<th>Missing before</th><th>Outside</th></tr></thead><tbody>
{rows}
</tbody></table></div>
<p class="soft">Distance: the largest difference of the cumulative shares; of categories half the sum of the
differences. Chance: how likely such a distance is without any change. Effect: the population stability index, less
what chance alone gives it. Outside: values beyond the reference's range, or unknown categories.</p>
</main></body></html>
"""


def _said(verdict: Verdict, off: list[Finding]) -> str:
    if verdict.word == "not enough data":
        return f"{verdict.rows:,} rows are counted, and a decision takes {verdict.least_rows:,}."
    if not off:
        return (
            f"No feature differs by more than chance. A difference of {verdict.detectable:.3f} in the cumulative share "
            "of a feature would be seen."
        )
    names = ", ".join(one.feature for one in sorted(off, key=lambda one: -one.effect)[:6])
    more = f" and {len(off) - 6} more" if len(off) > 6 else ""
    return f"{len(off)} of {len(verdict.findings)} features differ by more than chance: {names}{more}."


def _card(feature: Feature, counts: list[int], finding: Finding) -> str:
    is_off = finding.drifted or finding.missing_drifted
    now, before = counts[: len(feature.counts)], feature.counts
    shares = [(a / max(sum(now), 1), b / max(sum(before), 1)) for a, b in zip(now, before, strict=True)]
    top = max(max(pair) for pair in shares) or 1
    width = 240 / len(shares)
    bars = []
    for i, (a, b) in enumerate(shares):
        for share, which, at in ((b, "before", 0.08), (a, "now", 0.5)):
            height = 78 * share / top
            bars.append(
                f'<rect class="{which}" x="{width * (i + at):.1f}" y="{80 - height:.1f}" width="{width * 0.4:.1f}" '
                f'height="{height:.1f}" rx="1"/>'
            )
    missing = ""
    if finding.missing_drifted:
        missing = f", missing {finding.missing:.1%}, in the reference {finding.missing_before:.1%}"
    mark = '<span class="mark">changed</span>' if is_off else ""
    label = f"Shares of {len(shares)} {'categories' if feature.values else 'bins'}, now and in the reference"
    return (
        f'<article class="card{" off" if is_off else ""}">{mark}<h3>{escape(feature.name)}</h3>'
        f'<svg viewBox="0 0 240 82" preserveAspectRatio="none" role="img" aria-label="{label}">{"".join(bars)}</svg>'
        f'<p class="soft">{escape(_ends(feature))}</p><p>effect {finding.effect:.3f}, distance {finding.distance:.3f}'
        f"{missing}</p></article>"
    )


def _ends(feature: Feature) -> str:
    if not feature.values:
        return f"{feature.low:.4g} to {feature.high:.4g}"
    names = feature.labels or [f"{one:g}" for one in feature.values]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _row(one: Finding) -> str:
    def cell(text: str, *, off: bool) -> str:
        return f'<td class="off">{text}</td>' if off else f"<td>{text}</td>"

    p = f"{one.p:.2g}" if one.p >= 1e-6 else "&lt;1e-6"
    return (
        f"<tr><td>{escape(one.feature)}</td>{cell(f'{one.distance:.3f}', off=one.drifted)}{cell(p, off=one.drifted)}"
        f"<td>{one.effect:.3f}</td>{cell(f'{one.missing:.1%}', off=one.missing_drifted)}"
        f"<td>{one.missing_before:.1%}</td><td>{one.outside:.1%}</td></tr>"
    )
