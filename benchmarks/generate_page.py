"""Decoding and prefill in one Chromium: ours in JavaScript and in Pyodide, wllama and transformers.js, in turn.

    npm install --prefix PEERS --ignore-scripts @wllama/wllama @huggingface/transformers
    python benchmarks/generate_llama.py PYTHON --keep MODELS --quick      # writes the model for all sides
    python benchmarks/generate_peer_model.py MODELS                       # and the graphs that transformers.js reads
    python benchmarks/generate_page.py PEERS MODELS [--quick] [--json]

All answer a prompt of 16 or 512 tokens as users ask: text in, pieces of text out, the most likely tokens, times of the
clock, from the first piece on. A ratio is the median of those of the rounds. Rows of Python say what the tokens cost in
Pyodide by those in JavaScript, most likely and drawn ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnx
from generate_llama import CONFIG
from table import publish

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Route

_METRICS = {
    "short": ("decode at 16, tokens/s", 1),
    "long": ("decode at 512, tokens/s", 1),
    "prefill": ("prefill 512, tokens/s", 512),
}
#: By our side and the peer: the ratio that the design asks.
TARGETS: dict[tuple[str, str], dict[str, float]] = {
    ("ours", "wllama q4_0"): {"short": 5.0, "long": 5.0},
    ("ours", "transformers.js fp32"): {"short": 3.0, "long": 3.0, "prefill": 1.0},
    ("ours", "transformers.js q8"): {"short": 3.0, "long": 3.0, "prefill": 1.0},
    ("ours in Pyodide", "ours"): {"short": 0.95, "long": 0.95},
    ("ours in Pyodide, drawn", "ours, drawn"): {"short": 0.95, "long": 0.95},
}
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json"}
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
_WLLAMA = """async ({ name, file }) => {
  const { Wllama } = await import("/peers/node_modules/@wllama/wllama/esm/index.js");
  const place = "/peers/node_modules/@wllama/wllama/esm/wasm/wllama.wasm";
  const wllama = new Wllama({ default: place }, { suppressNativeLog: true });
  const blob = await (await fetch(`/peer-models/${file}`)).blob();
  await wllama.loadModel([blob], { n_ctx: 1024, n_threads: 1, n_gpu_layers: 0, n_batch: 512, n_parallel: 1 });
  globalThis.sides[name] = async (prompt, steps, onFirst) => {
    let tokens = 0;
    const options = { max_tokens: steps, temperature: 0, stream: true, ignore_eos: true, cache_prompt: false };
    const chunks = await wllama.createCompletion({ prompt, ...options });
    for await (const chunk of chunks) {
      tokens += 1;
      onFirst(tokens);
    }
    return tokens;
  };
}"""
_TRANSFORMERS = """async ({ name, dtype }) => {
  const address = "/peers/node_modules/@huggingface/transformers/dist/transformers.min.js";
  const { AutoModelForCausalLM, AutoTokenizer, TextStreamer, env } = await import(address);
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/peer-models/";
  env.useBrowserCache = false;
  env.backends.onnx.wasm.wasmPaths = `${location.origin}/peers/node_modules/onnxruntime-web/dist/`;
  env.backends.onnx.wasm.numThreads = 1;
  const model = await AutoModelForCausalLM.from_pretrained("tjs", { dtype, device: "wasm" });
  const tokenizer = await AutoTokenizer.from_pretrained("tjs");
  globalThis.sides[name] = async (prompt, steps, onFirst) => {
    let tokens = 0;
    const streamer = new TextStreamer(tokenizer, {
      skip_prompt: true,
      callback_function: () => {},
      token_callback_function: () => onFirst((tokens += 1)),
    });
    const options = { max_new_tokens: steps, min_new_tokens: steps, do_sample: false, streamer };
    await model.generate({ ...tokenizer(prompt), ...options });
    return tokens;
  };
}"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", type=Path, help="the folder of the peers' node_modules")
    parser.add_argument("models", type=Path, help="the folder of the models")
    parser.add_argument("--quick", action="store_true", help="three rounds in place of seven")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    _write_transformers(given.models)
    rounds = 3 if given.quick else 7
    found: dict[str, list[dict[str, float]]] = {}
    with (
        ServerThread(create_app({"llama": given.models / "llama.bundle"}, find_web_root())) as running,
        chromium() as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.route("**/peers/**", partial(_serve, given.peers, "/peers/"))
        page.route("**/peer-models/**", partial(_serve, given.models, "/peer-models/"))
        page.goto(f"{running.url}/blank.html")
        page.evaluate(_SET_UP)
        for size in ("q4_0", "q8_0"):
            page.evaluate(_WLLAMA, {"name": f"wllama {size}", "file": f"{size}.gguf"})
        for dtype in ("fp32", "q8"):
            page.evaluate(_TRANSFORMERS, {"name": f"transformers.js {dtype}", "dtype": dtype})
        names = page.evaluate("() => Object.keys(sides)")
        for number in range(rounds + 1):  # the first one warms up
            for name in names:
                taken = page.evaluate("(name) => measure(name)", name)
                found.setdefault(name, []).extend([taken] if number else [])
            for name, options in (("ours in Pyodide", "{'temperature': 0}"), ("ours in Pyodide, drawn", "{'seed': 1}")):
                taken = page.evaluate("(options) => measurePython(options)", options)
                found.setdefault(name, []).extend([taken] if number else [])
    rows: list[dict[str, Any]] = []
    peers = [name for name in found if not name.startswith("ours")]
    pairs = [("ours", peer) for peer in peers]
    pairs += [("ours, 2 threads", "ours"), ("ours in Pyodide", "ours"), ("ours in Pyodide, drawn", "ours, drawn")]
    for ours, peer in pairs:
        rows += _rows(ours, peer, found[ours], found[peer])
    versions = {name: _version(given.peers, name) for name in ("@wllama/wllama", "@huggingface/transformers")}
    versions["load"] = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()}"
    publish(rows, ("edge-infer",), as_json=given.json, versions=versions)


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


def _write_transformers(models: Path) -> None:
    """Write the folder that transformers.js reads: the graphs of `generate_peer_model.py` under its names."""
    folder = models / "tjs"
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    for source, target in (("fp32", "model"), ("q8", "model_quantized")):
        if (folder / f"onnx/{target}.onnx").exists():
            continue
        model = onnx.load(models / f"{source}.onnx")
        renamed = {"tokens": "input_ids"}
        for layer in range(CONFIG["num_hidden_layers"]):
            for kind in ("key", "value"):
                renamed[f"{kind}_{layer}"] = f"past_key_values.{layer}.{kind}"
                renamed[f"new_{kind}_{layer}"] = f"present.{layer}.{kind}"
        for value in (*model.graph.input, *model.graph.output):
            value.name = renamed.get(value.name, value.name)
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        onnx.save(model, folder / f"onnx/{target}.onnx")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": 1}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((models / "llama" / name).read_bytes())


def _serve(folder: Path, prefix: str, route: Route) -> None:
    path = folder / route.request.url.split(prefix, 1)[1].split("?")[0]
    if not path.is_file():
        route.fulfill(status=404)
        return
    headers = {"cross-origin-embedder-policy": "require-corp", "cross-origin-resource-policy": "same-origin"}
    kind = _TYPES.get(path.suffix, "application/octet-stream")
    route.fulfill(body=path.read_bytes(), headers={**headers, "content-type": kind})


def _version(peers: Path, name: str) -> str:
    found: str = json.loads((peers / "node_modules" / name / "package.json").read_text())["version"]
    return found


if __name__ == "__main__":
    main()
