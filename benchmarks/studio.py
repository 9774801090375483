"""What the studio's pages take: their bytes, the race of a keyword model, and memory over switches of the variant.

    python benchmarks/studio.py [--quick] [--json]

Needs a Chromium and the engines in web/vendor. Bytes are those of brotli 11. The race is the page's own, cold: each
round in a browser context without a cache. Memory is the page's JavaScript heap and its nodes after a collection.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import brotli

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium
from edge_infer_converters import convert

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KEYWORDS = Path(__file__).parents[1] / "examples/keywords"
PATIENCE_MS = 180_000
WARM_SWITCHES = 20  # the table of costs fills meanwhile


def sizes(browser: Browser, url: str) -> list[dict[str, Any]]:
    """Compare the bytes of the studio's own files with their bounds: all of them, and those of its first page."""
    root = find_web_root() / "studio"
    packed = {
        f"/studio/{path.relative_to(root)}": len(brotli.compress(path.read_bytes(), quality=11))
        for path in root.rglob("*")
        if path.is_file()
    }
    page = browser.new_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url.removeprefix(url.rstrip("/"))))
    page.goto(url)
    page.wait_for_selector(".won", timeout=PATIENCE_MS)
    page.close()
    first = packed["/studio/index.html"] + sum(size for path, size in packed.items() if path in asked)
    return [
        _row("all files of the studio", "kB brotli", sum(packed.values()) / 1e3, 40),
        _row("the gallery with its race", "kB brotli", first / 1e3, 20),
    ]


def race(browser: Browser, url: str, rounds: int) -> dict[str, Any]:
    """Time the first answer of the compiled model against that of onnxruntime-web."""
    ratios, pairs = [], []
    for _ in range(rounds):
        page = browser.new_page()
        page.goto(url)
        page.wait_for_selector(".won", timeout=PATIENCE_MS)
        ours, peer = (_milliseconds(text) for text in page.locator(".lanes .time").all_inner_texts()[:2])
        pairs.append((ours, peer))
        ratios.append(ours / peer)
        page.close()
    ours, peer = (statistics.median(one[i] for one in pairs) for i in (0, 1))
    row = _row("keywords, from nothing to the first answer", "ms", ours, None)
    ratio, spread = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
    return row | {
        "peer_name": "onnxruntime-web",
        "peer": peer,
        "ratio": ratio,
        "target": 0.2,
        "met": ratio <= 0.2,
        "spread": spread,
    }


def switches(browser: Browser, url: str, count: int) -> list[dict[str, Any]]:
    """Compare heap and nodes before and after switching between a compiled variant and onnxruntime-web."""
    page = browser.new_page()
    page.goto(f"{url}/#/models/keywords")
    page.wait_for_selector(".bars .best", timeout=PATIENCE_MS)
    before = after = _memory(page)
    for i in range(WARM_SWITCHES + count):
        engine = ("ort", "compiled")[i % 2]
        page.evaluate("document.querySelector('.cost')?.remove()")
        page.check(f"input[value={engine}]", force=True)
        page.wait_for_function(
            # True, not the element: a handle of it would keep it alive.
            f"location.hash.includes('engine={engine}') && document.querySelector('.cost') !== null",
            timeout=PATIENCE_MS,
        )
        if i == WARM_SWITCHES - 1:
            before = _memory(page)
    after = _memory(page)
    page.close()
    return [
        _row(f"{count} switches of the engine, JavaScript heap", "MB more", (after[0] - before[0]) / 1e6, 1.0),
        _row(f"{count} switches of the engine, nodes", "more", after[1] - before[1], 50),
    ]


def _memory(page: Page) -> tuple[float, float]:
    session = page.context.new_cdp_session(page)
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return found["JSHeapUsedSize"], found["Nodes"]


def _milliseconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * (1000 if unit == "s" else 1)


def _row(name: str, metric: str, ours: float, target: float | None) -> dict[str, Any]:
    return {"name": name, "metric": metric, "ours": ours, "target": target, "met": target is None or ours <= target}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three races, ten switches")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bundle = Path(name) / "keywords.bundle"
        sounds = [KEYWORDS / f"{word}.wav" for word in ("yes", "right", "off")]
        source = KEYWORDS / "kws_ref_model.tflite"
        convert(source, bundle, name="keywords", target="web", preprocess="speech-commands", samples=sounds)
        # Two models: a single one has no gallery.
        served = {"keywords": bundle, "prose": KEYWORDS.parent / "prose/prose.zip"}
        with ServerThread(create_app(served, find_web_root())) as server, chromium() as browser:
            rows = sizes(browser, server.url)
            rows.append(race(browser, server.url, 3 if options.quick else 7))
            rows += switches(browser, server.url, 10 if options.quick else 50)
    publish(rows, ("edge-infer", "playwright", "brotli"), as_json=options.json)


if __name__ == "__main__":
    main()
