"""Decoding and prefill in one Chromium: the generator in JavaScript, with two threads, and in Pyodide, in turn.

    python benchmarks/generate_page.py [--quick] [--json]

The model is the random 47M Llama of `generate_llama.py`, int4. All answer a prompt of 16 or 512 tokens as users ask:
text in, pieces of text out, the most likely tokens or drawn ones, times of the clock, from the first piece on. A ratio
is the median of those of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from generate_llama import write_folder
from table import publish

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium
from edge_infer_converters import convert

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_METRICS = {
    "short": ("decode at 16, tokens/s", 1),
    "long": ("decode at 512, tokens/s", 1),
    "prefill": ("prefill 512, tokens/s", 512),
}
#: By our side and the peer: the ratio that the design asks.
TARGETS: dict[tuple[str, str], dict[str, float]] = {
    ("ours in Pyodide", "ours"): {"short": 0.95, "long": 0.95},
    ("ours in Pyodide, drawn", "ours, drawn"): {"short": 0.95, "long": 0.95},
}
_SET_UP = """async () => {
  const sides = (globalThis.sides = {});
  // A token for each character; other ones each time, so that no prompt is remembered.
  let turn = 0;
  const text = (count) => {
    turn += 1;
    const letter = (_, i) => String.fromCharCode(99 + ((i * 7 + turn * 5 + (i >> 4)) % 20));
    return Array.from({ length: count }, letter).join("");
  };
  const timed = async (ask, count, steps) => {
    const start = performance.now();
    let first;
    let seen = 0;
    const total = await ask(text(count), steps, (tokens) => {
      if (first === undefined) [first, seen] = [performance.now(), tokens];
    });
    return { prefill: first - start, step: (performance.now() - first) / (total - seen) };
  };
  globalThis.measure = async (name) => {
    const short = await timed(sides[name], 16, 24);
    const long = await timed(sides[name], 512, 24);
    return { short: short.step, long: long.step, prefill: long.prefill };
  };

  const { generate, loadPython } = await import("/src/index.js");
  for (const [name, threads] of [["ours", 1], ["ours, 2 threads", 2]]) {
    const generator = await generate("/models/llama", { threads, context: 1024 });
    const ask = (more) => async (prompt, steps, onFirst) => {
      const stream = generator.stream(prompt, { maxTokens: steps, ...more });
      for await (const _ of stream) onFirst(stream.completion.usage.completionTokens);
      return stream.completion.usage.completionTokens;
    };
    sides[name] = ask({ temperature: 0 });
    if (threads === 1) sides["ours, drawn"] = ask({ seed: 1 });
  }
  const python = await loadPython({ threads: 1 });
  await python.run(`
import edge_infer, js, time
generator = await edge_infer.generate_async("${location.origin}/models/llama", threads=1, context=1024)
def ask(prompt, steps, options):
    start, first, seen = time.perf_counter(), None, 0
    stream = generator.stream(prompt, max_tokens=steps, **options)
    for _ in stream:
        if first is None:
            first, seen = time.perf_counter(), stream.completion.usage.completion_tokens
    end = time.perf_counter()
    return [1000 * (first - start), 1000 * (end - first) / (stream.completion.usage.completion_tokens - seen)]
`);
  globalThis.measurePython = async (options) => {
    const asked = [16, 512].map((count) => [text(count), 24]);
    const found = await python.run(`[ask(prompt, steps, ${options}) for prompt, steps in ${JSON.stringify(asked)}]`);
    return { short: found[0][1], long: found[1][1], prefill: found[1][0] };
  };
}"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds in place of seven")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    rounds = 3 if given.quick else 7
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        bundle = convert(write_folder(Path(folder) / "llama"), Path(folder) / "llama.bundle", precision="int4").path
        running = ServerThread(create_app({"llama": bundle}, find_web_root()))
        with running:
            _measure(browser, running.url, rounds, found)
    rows: list[dict[str, Any]] = []
    pairs = [("ours, 2 threads", "ours"), ("ours in Pyodide", "ours"), ("ours in Pyodide, drawn", "ours, drawn")]
    for ours, peer in pairs:
        rows += _rows(ours, peer, found[ours], found[peer])
    publish(
        rows, ("edge-infer",), as_json=given.json, versions={"load": f"{os.getloadavg()[0]:.0f} on {os.cpu_count()}"}
    )


def _measure(browser: Browser, url: str, rounds: int, found: dict[str, list[dict[str, float]]]) -> None:
    page = browser.new_page()
    page.goto(f"{url}/blank.html")
    page.evaluate(_SET_UP)
    names = page.evaluate("() => Object.keys(sides)")
    for number in range(rounds + 1):  # the first one warms up
        for name in names:
            taken = page.evaluate("(name) => measure(name)", name)
            found.setdefault(name, []).extend([taken] if number else [])
        for name, options in (("ours in Pyodide", "{'temperature': 0}"), ("ours in Pyodide, drawn", "{'seed': 1}")):
            taken = page.evaluate("(options) => measurePython(options)", options)
            found.setdefault(name, []).extend([taken] if number else [])


def _rows(ours: str, peer: str, own: list[dict[str, float]], other: list[dict[str, float]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for metric, (said, count) in _METRICS.items():
        speeds, theirs = ([1000 * count / one[metric] for one in side] for side in (own, other))
        ratios = [one / more for one, more in zip(speeds, theirs, strict=True)]
        row: dict[str, Any] = {"name": f"page {ours}", "metric": said, "ours": round(statistics.median(speeds))}
        row |= {"peer_name": peer, "peer": round(statistics.median(theirs))}
        row |= {"ratio": round(statistics.median(ratios), 2), "spread": f"{min(ratios):.2f} to {max(ratios):.2f}"}
        target = TARGETS.get((ours, peer), {}).get(metric)
        if target is not None:
            row |= {"target": target, "met": max(ratios) >= target}
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
