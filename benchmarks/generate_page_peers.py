"""wllama and transformers.js beside ours in one Chromium, one thread each, in turn; every wait is bounded.

    npm install --prefix PEERS @wllama/wllama @huggingface/transformers
    python benchmarks/generate_llama.py PYTHON --keep MODELS --quick     # f32.gguf, q8_0.gguf, q4_0.gguf, llama.bundle
    python benchmarks/generate_page_peers.py PEERS MODELS [--quick] [--json]

The model is the random 47M Llama of `generate_llama.py`, the same weights on all sides. Each side has a page of its
own, whose place is cross-origin isolated; a step that does not end in time is told by its name, and its side left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

_METRICS = {"short": "decode at 16, tokens/s", "long": "decode at 512, tokens/s", "prefill": "prefill 512, tokens/s"}
#: By the peer's family: the ratio that the design asks.
TARGETS = {
    "wllama q4_0": {"short": 5.0, "long": 5.0},
    "transformers.js": {"short": 3.0, "long": 3.0, "prefill": 1.0},
}
_COMMON = """
const bounded = (promise, seconds, what) => Promise.race([
  promise,
  new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`${what} took more than ${seconds} s`)), 1000 * seconds);
  }),
]);
let turn = 0;
const text = (count) => {
  turn += 1;
  const letter = (_, i) => String.fromCharCode(99 + ((i * 7 + turn * 5 + (i >> 4)) % 20));
  return Array.from({ length: count }, letter).join("");
};
// `ask(count)` answers { prefill, step } in milliseconds.
const measuring = (ask) => async () => {
  const short = await bounded(ask(16), 120, "16 tokens");
  const long = await bounded(ask(512), 240, "512 tokens");
  return { short: short.step, long: long.step, prefill: long.prefill };
};
"""
_OURS = """async ({ steps }) => {
  const { generate } = await import("/src/index.js");
  const generator = await bounded(generate("/models/llama", { threads: 1, context: 1024 }), 120, "loading");
  globalThis.measure = measuring(async (count) => {
    const start = performance.now();
    const stream = generator.stream(text(count), { maxTokens: steps, temperature: 0 });
    let first, seen;
    for await (const _ of stream) {
      if (first === undefined) [first, seen] = [performance.now(), stream.completion.usage.completionTokens];
    }
    const total = stream.completion.usage.completionTokens;
    return { prefill: first - start, step: (performance.now() - first) / (total - seen) };
  });
}"""
# Layers stay on the processor: wllama gives them to WebGPU otherwise, which a browser without a GPU emulates. Tokens of
# single bytes are forbidden: text that is not UTF-8 ends wllama for good.
_WLLAMA = """async ({ file, steps, bytes }) => {
  const { Wllama } = await import("/npm/@wllama/wllama/esm/index.js");
  const wllama = new Wllama({ default: "/npm/@wllama/wllama/esm/wasm/wllama.wasm" }, { suppressNativeLog: true });
  const blob = await (await fetch(`/models/${file}`)).blob();
  await bounded(wllama.loadModel([blob], { n_threads: 1, n_ctx: 1024, n_gpu_layers: 0 }), 180, "loading");
  const logit_bias = Object.fromEntries(bytes.map((id) => [id, -1000]));
  globalThis.measure = measuring(async (count) => {
    const asked = { prompt: text(count), max_tokens: steps, temperature: 0, logit_bias };
    const answer = await wllama.createCompletion(asked);
    const { prompt_ms, prompt_n, predicted_ms, predicted_n } = answer.timings;
    return { prefill: (prompt_ms * count) / prompt_n, step: predicted_ms / predicted_n };
  });
}"""
_TRANSFORMERS = """async ({ dtype, steps }) => {
  const found = await import("/npm/@huggingface/transformers/dist/transformers.min.js");
  const { AutoModelForCausalLM, Tensor, BaseStreamer, env } = found;
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/models/";
  env.useBrowserCache = false;
  env.backends.onnx.wasm.wasmPaths = "/npm/onnxruntime-web/dist/";
  env.backends.onnx.wasm.numThreads = 1;
  const loaded = AutoModelForCausalLM.from_pretrained("tjs", { dtype, device: "wasm" });
  const model = await bounded(loaded, 180, "loading");
  globalThis.measure = measuring(async (count) => {
    const ids = Array.from(text(count), (letter) => BigInt(letter.charCodeAt(0) - 30));
    const times = [];
    const streamer = new BaseStreamer();
    streamer.put = () => times.push(performance.now());
    streamer.end = () => {};
    const inputs = new Tensor("int64", BigInt64Array.from(ids), [1, count]);
    const attention_mask = new Tensor("int64", new BigInt64Array(count).fill(1n), [1, count]);
    const wanted = { max_new_tokens: steps, min_new_tokens: steps, do_sample: false };
    await model.generate({ inputs, attention_mask, ...wanted, streamer });
    // The first call gives the prompt, the second the first token.
    return { prefill: times[1] - times[0], step: (times.at(-1) - times[1]) / (times.length - 2) };
  });
}"""


class _Files(SimpleHTTPRequestHandler):
    """The peers' packages and the models, for pages that are cross-origin isolated."""

    def __init__(self, *values: Any, roots: dict[str, Path], **more: Any) -> None:
        self._roots = roots
        super().__init__(*values, **more)

    def translate_path(self, path: str) -> str:
        """Find a file under one of the roots."""
        first, _, rest = path.partition("?")[0].lstrip("/").partition("/")
        return str(self._roots.get(first, Path("/nowhere")) / rest)

    def do_GET(self) -> None:
        """Answer `/blank` itself."""
        if self.path != "/blank":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>peers</title>")

    def end_headers(self) -> None:
        """Isolate."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _byte_tokens(folder: Path) -> list[int]:
    """Return the tokens of a single byte that is not a whole character in UTF-8."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return [number for text, number in vocabulary.items() if len(text) == 1 and not 33 <= ord(text) < 127]


def _sides(models: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "ours int4", _OURS, {}
    for kind in ("q4_0", "q8_0"):
        yield f"wllama {kind}", _WLLAMA, {"file": f"{kind}.gguf", "bytes": _byte_tokens(models / "llama")}
    for dtype in ("fp32", "q8"):
        yield f"transformers.js {dtype}", _TRANSFORMERS, {"dtype": dtype}


def _open(browser: Browser, place: str, code: str, values: dict[str, Any]) -> Page:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(place)
    page.add_script_tag(content=_COMMON)
    page.evaluate(code, values)
    return page


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", type=Path, help="the folder that npm installed the peers into")
    parser.add_argument("models", type=Path, help="the folder of the models")
    parser.add_argument("--quick", action="store_true", help="three rounds in place of seven, and 8 tokens of 24")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    rounds, steps = (3, 8) if given.quick else (7, 24)
    roots = {"npm": given.peers / "node_modules", "models": given.models}
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, roots=roots))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    found: dict[str, list[dict[str, float]]] = {}
    with (
        ServerThread(create_app({"llama": given.models / "llama.bundle"}, find_web_root())) as own,
        chromium() as browser,
    ):
        pages = {}
        for name, code, values in _sides(given.models):
            place = f"{own.url}/blank.html" if code is _OURS else f"http://127.0.0.1:{files.server_port}/blank"
            try:
                pages[name] = _open(browser, place, code, {**values, "steps": steps})
            except Exception as error:  # a peer that does not start is told, and the others run
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        for number in range(rounds + 1):  # the first one warms up
            for name, page in list(pages.items()):
                try:
                    taken = page.evaluate("() => measure()")
                except Exception as error:
                    print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
                    del pages[name]
                    continue
                found.setdefault(name, []).extend([taken] if number else [])
                print(name, number, {key: round(value, 1) for key, value in taken.items()}, file=sys.stderr, flush=True)
    files.shutdown()
    rows: list[dict[str, Any]] = []
    for peer in [name for name in pages if name != "ours int4"]:
        rows += _rows(peer, found["ours int4"], found[peer])
    load = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()}"
    publish(rows, ("edge-infer",), as_json=given.json, versions={**_versions(roots["npm"]), "load": load})


def _versions(packages: Path) -> dict[str, str]:
    names = ("@wllama/wllama", "@huggingface/transformers")
    return {name: str(json.loads((packages / name / "package.json").read_text())["version"]) for name in names}


def _rows(peer: str, own: list[dict[str, float]], other: list[dict[str, float]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    targets = next((one for name, one in TARGETS.items() if peer.startswith(name)), {})
    for metric, said in _METRICS.items():
        count = 512 if metric == "prefill" else 1
        speeds, theirs = ([1000 * count / one[metric] for one in side] for side in (own, other))
        ratios = [one / more for one, more in zip(speeds, theirs, strict=True)]
        row: dict[str, Any] = {"name": "page int4", "metric": said, "ours": round(statistics.median(speeds))}
        row |= {"peer_name": peer, "peer": round(statistics.median(theirs))}
        row |= {"ratio": round(statistics.median(ratios), 2), "spread": f"{min(ratios):.2f} to {max(ratios):.2f}"}
        if metric in targets:
            row |= {"target": targets[metric], "met": max(ratios) >= targets[metric]}
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
