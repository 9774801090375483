"""Our ways to run a model in a page against `await session.run()` of onnxruntime-web's own JavaScript API.

The last rows: the same net as a TFLite file in LiteRT.js, with one and with two threads on both sides; the bytes that a
first visit takes over the wire, brotli at its best, without the model, from the files as the wheel has them; and the
start of Python.

One Chromium, one thread per engine, the same file and the same values on all sides, in turn: A B C A B C ... Each round
a median of many calls, each row the median of the rounds' ratios. Native onnxruntime runs in turn with them.

    python benchmarks/browser.py [--quick] [--json] [--only calls|threads|bytes|start]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import brotli
import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, quantize_static

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from browser_start import sample_starts  # noqa: E402  beside this file
from networks import mobilenet_v2  # noqa: E402  beside this file
from table import publish  # noqa: E402  beside this file

from edge_infer.server.app import create_app  # noqa: E402
from edge_infer.server.http.in_thread import ServerThread  # noqa: E402
from edge_infer.server.static.pages import find_web_root  # noqa: E402
from edge_infer.tools.browser.chromium import chromium  # noqa: E402
from edge_infer_converters.writers import tflite  # noqa: E402
from tests.support import zoo  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext, Page, Route

PEER = ROOT / "web/node_modules/onnxruntime-web"
#: The bytes of files at brotli 11, by sha256.
WIRE_BYTES = ROOT / ".bench/brotli.json"
SHAPES: dict[str, dict[str, list[int]]] = {
    "1 float": {"x": [1]},
    "1x3x224x224 identity": {"x": [1, 3, 224, 224]},
    "MobileNetV2": {"image": [1, 3, 224, 224]},
    "MobileNetV2 int8": {"image": [1, 3, 224, 224]},
}
# Side, its peer, and the most that the ratio may be for each model, in the order of SHAPES; none for the last.
ROWS = (
    ("Python prepared", "prepared", "peer", (0.80, 0.40, 1.03, None)),
    ("Python run({...})", "run", "peer", (1.8, 0.50, 1.03, None)),
    ("JavaScript engine, same thread", "engine", "peer", (0.50, 0.80, 1.03, None)),
    ("JavaScript session, page to worker and back", "session", "proxy", (0.80, 0.50, 1.0, None)),
)
PEERS = {
    "pyodide": "Pyodide, plain warm start",
    "litert1": "LiteRT.js, 1 thread",
    "peer": "onnxruntime-web run()",
    "proxy": "onnxruntime-web run(), env.wasm.proxy",
    "native": "onnxruntime",
}
# Calls per round, and how many are timed together.
CALLS = {"1 float": (2000, 100), "1x3x224x224 identity": (60, 10), "MobileNetV2": (5, 1), "MobileNetV2 int8": (5, 1)}

_OPEN_PYTHON = """
import time
from array import array
from math import prod
import edge_infer
import js
from edge_infer import Tensor
from pyodide.code import run_js
from pyodide.ffi import to_js

bench = await run_js("import('/bench/browser.js')")
sides = {}

async def open_sides(name, url, feeds, batch):
    session = edge_infer.load(url)
    inputs = {}
    for key, shape in feeds.items():
        values = array("f", [(i % 251) / 251 for i in range(prod(shape))])
        inputs[key] = Tensor(bytearray(values), "float32", shape)
    call = session.prepare({key: tuple(shape) for key, shape in feeds.items()})
    sides[f"{name}/run"] = (lambda: session.run(inputs), batch)
    sides[f"{name}/prepared"] = (lambda: call(inputs), batch)
    return await bench.openWorkerSides(name, url, to_js(feeds, dict_converter=js.Object.fromEntries), batch)

def sample(side, count):
    run, batch = sides[side]
    times = []
    for _ in range(max(3, round(count / batch))):
        start = time.perf_counter()
        for _ in range(batch):
            run()
        times.append((time.perf_counter() - start) / batch * 1000)
    return sorted(times)[len(times) // 2]
"""


class Bench:
    """A page with all sides of all models, and native sessions beside it."""

    def __init__(self, context: BrowserContext, url: str, models: dict[str, bytes]) -> None:
        self._models = models
        self.context = context
        self._native: dict[str, Callable[[], Any]] = {}
        self.max_error: dict[str, float] = {}
        context.route("**/bench/**", self._bench_file)
        context.route("**/peer/**", self._peer_file)
        self._page: Page = context.new_page()
        self._page.set_default_timeout(300_000)
        self._page.goto(f"{url}/blank.html")
        self._page.evaluate("""async () => {
            const { loadPython } = await import("/src/index.js");
            globalThis.python = await loadPython({ threads: 1, keepImage: false });
            globalThis.bench = await import("/bench/browser.js");
        }""")
        self._python(_OPEN_PYTHON)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        for place, (name, feeds) in enumerate(SHAPES.items()):
            address, batch = f"{url}/bench/{place}.onnx", CALLS[name][1]
            names = {"name": name, "url": address, "feeds": feeds, "batch": batch}
            self.max_error[name] = self._python("await open_sides(name, url, feeds, batch)", names)
            self._page.evaluate(
                "([name, url, feeds, batch]) => bench.openPageSides(name, url, feeds, batch)", [*names.values()]
            )
            native = onnxruntime.InferenceSession(models[name], options, providers=["CPUExecutionProvider"])
            arrays = {key: np.ones(shape, np.float32) for key, shape in feeds.items()}
            self._native[name] = partial(native.run, None, arrays)

    def sample(self, model: str, side: str) -> float:
        """Return the median time of a call in this round, in ms."""
        count, batch = CALLS[model]
        key = f"{model}/{side}"
        if side == "native":
            return self._sample_native(self._native[model], count, batch)
        if side in ("session", "proxy"):
            return float(self._page.evaluate("([side, count]) => bench.sample(side, count)", [key, count]))
        call = "sample(side, count)" if side in ("run", "prepared") else "await bench.sample(side, count)"
        return float(self._python(call, {"side": key, "count": count}))

    def _sample_native(self, run: Callable[[], Any], count: int, batch: int) -> float:
        times = []
        for _ in range(max(3, round(count / batch))):
            start = time.perf_counter()
            for _ in range(batch):
                run()
            times.append((time.perf_counter() - start) / batch * 1000)
        return statistics.median(times)

    def _python(self, code: str, names: dict[str, Any] | None = None) -> Any:
        return self._page.evaluate("([code, names]) => python.run(code, names)", [code, names or {}])

    def _bench_file(self, route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        body = Path(__file__).with_name(name).read_bytes() if name.endswith(".js") else None
        if body is None:
            place, _, ending = name.partition(".")
            model = list(SHAPES)[int(place)]
            body = self._models[model] if ending == "onnx" else tflite_of(model, self._models[model])
        self._serve(route, body, name)

    def _peer_file(self, route: Route) -> None:
        name = route.request.url.rpartition("/")[2].partition("?")[0]
        self._serve(route, (PEER / "dist" / name).read_bytes(), name)

    def _serve(self, route: Route, body: bytes, name: str) -> None:
        kinds = {"js": "text/javascript", "mjs": "text/javascript", "wasm": "application/wasm"}
        headers = {
            "content-type": kinds.get(name.rpartition(".")[2], "application/octet-stream"),
            "cross-origin-embedder-policy": "require-corp",
            "cross-origin-resource-policy": "same-origin",
        }
        route.fulfill(status=200, body=body, headers=headers)


class ThreadBench:
    """A worker in which both engines have the same number of threads."""

    def __init__(self, bench: Bench, url: str, threads: int) -> None:
        self._page: Page = bench.context.new_page()
        self._page.set_default_timeout(300_000)
        self._page.goto(f"{url}/blank.html")
        self._page.evaluate("""() => {
            const worker = new Worker("/bench/browser_threads.js", { type: "module" });
            globalThis.ask = (request) => new Promise((resolve, reject) => {
                worker.onmessage = ({ data: { error, value } }) => (error ? reject(new Error(error)) : resolve(value));
                worker.onerror = (event) => reject(new Error(event.message));
                worker.postMessage(request);
            });
        }""")
        name, place = "MobileNetV2", list(SHAPES).index("MobileNetV2")
        (feed,) = SHAPES[name].items()
        files = {"onnx": f"{url}/bench/{place}.onnx", "tflite": f"{url}/bench/{place}.tflite"}
        self.max_error = float(self._ask({**files, "threads": threads, "input": feed[0], "shape": feed[1]}))

    def sample(self, side: str, count: int) -> float:
        """Return the median time of a call in this round, in ms."""
        return float(self._ask({"side": side, "count": count}))

    def _ask(self, request: dict[str, Any]) -> Any:
        return self._page.evaluate("(request) => ask(request)", request)


def measure_threads(bench: Bench, url: str, rounds: int) -> list[dict[str, Any]]:
    """Time LiteRT.js against onnxruntime-web, and both numbers of threads against each other, in turn."""
    benches = {threads: ThreadBench(bench, url, threads) for threads in (1, 2)}
    bench.max_error["LiteRT.js"] = max(one.max_error for one in benches.values())
    times: dict[tuple[int, str], list[float]] = {(n, side): [] for n in benches for side in ("litert", "peer")}
    native = []
    for key in times:
        benches[key[0]].sample(key[1], 2)
    for turn in range(rounds):
        for threads, side in times if turn % 2 else reversed(times):
            times[threads, side].append(benches[threads].sample(side, 5))
        native.append(bench.sample("MobileNetV2", "native"))
    one, two = times[1, "litert"], times[2, "litert"]
    return [
        row("MobileNetV2: LiteRT.js, 1 thread", one, "peer", times[1, "peer"], 0.56),
        row("MobileNetV2: LiteRT.js, 2 threads, both sides", two, "peer", times[2, "peer"], 0.70),
        row("MobileNetV2: LiteRT.js, 2 threads against its own 1", two, "litert1", one, None),
        row(
            "MobileNetV2: onnxruntime-web, 2 threads against its own 1",
            times[2, "peer"],
            "peer",
            times[1, "peer"],
            None,
        ),
        row("MobileNetV2: LiteRT.js, 1 thread, against native", one, "native", native, None),
    ]


_FIRST_VISITS = {
    "JavaScript only": (2.44e6, "(await import('/src/index.js')).load('/bench/0.onnx')"),
    "JavaScript only, TFLite": (None, "(await import('/src/index.js')).load('/bench/0.tflite')"),
    "Python": (7.9e6, "(await import('/src/index.js')).loadPython({ keepImage: false })"),
}


def measure_bytes(browser: Browser) -> list[dict[str, Any]]:
    """Count what a first visit fetches besides the page and the model, each file at brotli 11."""
    rows = []
    with shipped_files() as root, ServerThread(create_app({}, root)) as server:
        for name, (target, code) in _FIRST_VISITS.items():
            asked = first_visit(browser, server.url, code)
            total = sum(map(wire_bytes, asked))
            rows.append(
                {
                    "name": f"First visit, {name}, {len(asked)} files",
                    "metric": "MB, brotli 11",
                    "ours": round(total / 1e6, 3),
                    "peer_name": "target",
                    "peer": None if target is None else target / 1e6,
                    "ratio": None if target is None else round(total / target, 3),
                    "target": None if target is None else 1.0,
                    "met": None if target is None else total <= target,
                    "spread": "",
                }
            )
    return rows


@contextmanager
def shipped_files() -> Iterator[Path]:
    """Make the web files as the wheel has them, minified one by one; those of an installed wheel are so already."""
    root = find_web_root()
    minify = root / "minify.js"
    if not minify.is_file():
        yield root
        return
    with TemporaryDirectory() as made:
        subprocess.run(["node", minify, made, "src", "demo", "studio"], check=True)
        (Path(made) / "vendor").symlink_to(root / "vendor")
        yield Path(made)


def first_visit(browser: Browser, url: str, code: str) -> list[str]:
    """Run an expression in a page of its own context and return the addresses that it fetches, but for the models."""
    context = browser.new_context()
    asked: dict[str, None] = {}
    context.on("request", lambda request: asked.setdefault(request.url.partition("?")[0]))
    context.route("**/bench/0.*", serve_smallest)
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{url}/blank.html")
    page.evaluate(f"async () => void await {code}")
    context.close()
    return [one for one in asked if "/bench/" not in one and not one.endswith(("blank.html", ".ico"))]


def serve_smallest(route: Route) -> None:
    """Answer with the model of one float, as ONNX or TFLite."""
    model = zoo.identity(shape=(1,))
    body = model if route.request.url.endswith(".onnx") else tflite_of("1 float", model)
    route.fulfill(status=200, body=body, headers={"cross-origin-resource-policy": "same-origin"})


@cache
def tflite_of(name: str, model: bytes) -> bytes:
    """Write a model as TFLite, once."""
    return tflite.write(onnx.load_from_string(model), name).data


def quantized(source: bytes) -> bytes:
    """Write a model as static int8, QDQ, by onnxruntime's quantizer on made-up images; kept by the hash."""
    kept = ROOT / f".bench/int8-{hashlib.sha256(source).hexdigest()[:16]}.onnx"
    if not kept.is_file():
        (name,) = (value.name for value in onnx.load_from_string(source).graph.input)
        random = np.random.default_rng(0)
        images = iter([{name: random.random((1, 3, 224, 224), np.float32)} for _ in range(8)])
        reader = type("Images", (CalibrationDataReader,), {"get_next": lambda _: next(images, None)})()
        kept.parent.mkdir(exist_ok=True)
        logging.disable(logging.WARNING)  # it recommends a preparation that these models need not
        quantize_static(onnx.load_from_string(source), kept, reader, per_channel=True)
    return kept.read_bytes()


def wire_bytes(url: str) -> int:
    """Return the bytes of a file at brotli 11, remembered by its hash: it takes most of a minute for an engine."""
    with urllib.request.urlopen(url) as response:
        data = response.read()
    known = json.loads(WIRE_BYTES.read_bytes()) if WIRE_BYTES.is_file() else {}
    key = hashlib.sha256(data).hexdigest()
    if key not in known:
        known[key] = len(brotli.compress(data))
        WIRE_BYTES.parent.mkdir(exist_ok=True)
        WIRE_BYTES.write_text(json.dumps(known))
    return int(known[key])


def measure(bench: Bench, rounds: int) -> list[dict[str, Any]]:
    """Time all sides in turn, round after round."""
    rows = []
    sides = ["peer", "proxy", *(side for _, side, _, _ in ROWS), "native"]
    for place, model in enumerate(SHAPES):
        times: dict[str, list[float]] = {side: [] for side in sides}
        for side in sides:
            bench.sample(model, side)
        for turn in range(rounds):
            for side in sides if turn % 2 else reversed(sides):
                times[side].append(bench.sample(model, side))
        for name, side, peer, targets in ROWS:
            rows.append(row(f"{model}: {name}", times[side], peer, times[peer], targets[place]))
        rows.append(row(f"{model}: JavaScript engine against native", times["engine"], "native", times["native"], None))
    return rows


def row(name: str, ours: list[float], peer: str, theirs: list[float], target: float | None) -> dict[str, Any]:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    value = statistics.median(ratios)
    return {
        "name": name,
        "metric": "us per call",
        "ours": round(statistics.median(ours) * 1000, 1),
        "peer_name": PEERS[peer],
        "peer": round(statistics.median(theirs) * 1000, 1),
        "ratio": round(value, 3),
        "target": target,
        "met": None if target is None else value <= target,
        "spread": f"{min(ratios):.3g} to {max(ratios):.3g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a minute at the most")
    parser.add_argument("--only", choices=("calls", "threads", "bytes", "start"), help="these rows alone")
    arguments = parser.parse_args()
    rows, versions = [], {"chromium": ""}
    wanted = {arguments.only} if arguments.only else {"calls", "threads", "bytes", "start"}
    rounds = 7 if arguments.quick else 21
    with chromium() as browser:
        versions["chromium"] = browser.version
        if wanted & {"calls", "threads"}:
            rows += measure_engines(browser, rounds, wanted)
        if "bytes" in wanted:
            rows += measure_bytes(browser)
    if "start" in wanted:
        with ServerThread(create_app({}, find_web_root())) as server:
            starts = sample_starts(server.url, 5 if arguments.quick else 9)
        rows.append(row("Warm start of Python from its kept image", starts[0], "pyodide", starts[1], 0.20))
    versions |= {
        "litertjs": json.loads((PEER.parent / "@litertjs/core/package.json").read_bytes())["version"],
        "onnxruntime-web": json.loads((PEER / "package.json").read_bytes())["version"],
    }
    publish(rows, ("edge-infer", "onnxruntime"), as_json=arguments.json, versions=versions)


def measure_engines(browser: Browser, rounds: int, wanted: set[str]) -> list[dict[str, Any]]:
    """Time the sides of all models, and of the engines with threads.

    Raises:
        SystemExit: The sides compute different things.
    """
    models = {
        "1 float": zoo.identity(shape=(1,)),
        "1x3x224x224 identity": zoo.identity(shape=(1, 3, 224, 224)),
        "MobileNetV2": (source := mobilenet_v2().SerializeToString()),
        "MobileNetV2 int8": quantized(source),
    }
    rows = []
    with ServerThread(create_app({}, find_web_root())) as server:
        bench = Bench(browser.new_context(), server.url, models)
        if "calls" in wanted:
            rows += measure(bench, rounds)
        if "threads" in wanted:
            rows += measure_threads(bench, server.url, rounds)
        bench.context.close()
    worst = max(bench.max_error.values())
    if worst > 1e-3:
        raise SystemExit(f"the sides disagree by {worst}: what is measured is not the same computation")
    return rows


if __name__ == "__main__":
    main()
