"""Pipelines in a page beside transformers.js and vad-web, in one Chromium, in turn; and tokenizers in Pyodide.

The peers lie in `.bench/tasks_js`: see `benchmarks/tasks_tokenizers.py`. transformers.js loads the folders that our
server serves, vad-web the same Silero model; each has one thread. transformers.js gets texts in batches of 32, since it
runs all that it is given at once. Times are of the clock; a target is met where the median ratio, which the row shows,
reaches it. `--only` runs some parts, each of at most three minutes: photo, speech, sentences or pyodide.

    python benchmarks/tasks_page.py [--quick] [--json] [--only PART]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import mimetypes
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / ".bench/tasks"))

import networks
from convert_models import minilm, minilm_folder
from table import publish
from tasks_speech import silero_bundle
from tasks_tokenizers import PEERS, ROOT, checked_texts, in_python, real_texts, timed_texts

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium
from edge_infer_converters import convert
from tests.support.tasks.trained_tokenizers import KINDS, trained, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Page, Route

_PACKAGES = PEERS / "node_modules"
#: What `--only` may name.
PARTS = ("photo", "speech", "sentences", "pyodide")
_SET_UP = """async ({ photo, texts, parts }) => {
  const { pipeline } = await import("/src/index.js");
  const hf = await import("/peers/@huggingface/transformers/dist/transformers.min.js");
  hf.env.allowLocalModels = false;
  hf.env.useBrowserCache = false;
  hf.env.remoteHost = location.origin;
  hf.env.remotePathTemplate = "models/{model}/";
  hf.env.backends.onnx.wasm.wasmPaths = `${location.origin}/peers/onnxruntime-web/dist/`;
  hf.env.backends.onnx.wasm.numThreads = 1;
  const bytes = Uint8Array.from(atob(photo), (one) => one.charCodeAt(0));
  const file = URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
  const open = (name) => pipeline(`/models/${name}`, { threads: 1 });
  const options = { dtype: "fp32", device: "wasm" };
  const wave = (frame) => Float32Array.from({ length: 512 }, (_, i) => 0.3 * Math.sin((frame * 512 + i) * 0.05));
  const opened = {
    photo: async () => {
      const classify = await open("photos");
      const theirs = await hf.pipeline("image-classification", "photos", options);
      return [() => classify(file), () => theirs(file, { top_k: 5 })];
    },
    sentences: async () => {
      const embed = await open("sentences");
      const theirs = await hf.pipeline("feature-extraction", "sentences", options);
      const inBatches = async () => {
        const found = [];
        for (let at = 0; at < texts.length; at += 32) {
          const made = await theirs(texts.slice(at, at + 32), { pooling: "mean", normalize: true });
          found.push(...made.tolist());
        }
        return found;
      };
      return [async () => (await embed(texts)).map(({ data }) => Array.from(data)), inBatches];
    },
    speech: async () => {
      const hear = await open("silero");
      const vad = await import("/peers/vad.js");
      const { wasmPaths } = hf.env.backends.onnx.wasm;
      const silero = await vad.open(`${location.origin}/models/silero/onnx/model.onnx`, wasmPaths);
      const frames = Array.from({ length: 100 }, (_, frame) => wave(frame));
      return [
        async () => { for await (const _ of hear.listen(frames)) continue; },
        async () => { for (const frame of frames) await silero.process(frame); },
      ];
    },
  };
  const sides = {};
  for (const part of parts) sides[part] = await opened[part]();
  globalThis.answers = async (name) => [await sides[name][0](), await sides[name][1]()];
  globalThis.timed = async (name, order) => {
    const taken = [];
    for (const index of order) {
      const start = performance.now();
      await sides[name][index]();
      taken[index] = performance.now() - start;
    }
    return taken;
  };
}"""
_PYODIDE = """async ({ files, texts, timed }) => {
  const { loadPython } = await import("/src/index.js");
  const python = await loadPython({ threads: 1 });
  const given = JSON.stringify(JSON.stringify({ files, texts, timed }));
  return python.run(`
import hashlib, json, time
from edge_infer import Padding, Tokenizer, Truncation
given, said = json.loads(${given}), {}
for kind, file in given["files"].items():
    mine, found = Tokenizer.from_bytes(file.encode()), []
    for text in given["texts"]:
        one = mine.encode(text, offsets=True)
        cut = mine.encode(text, truncation=Truncation(32), padding=Padding(multiple_of=8))
        offsets = [list(pair) for pair in one.offsets or []]
        found.append([one.ids, offsets, mine.decode(one.ids), cut.ids, cut.attention_mask])
    mine = Tokenizer.from_bytes(file.encode())
    start = time.perf_counter()
    for text in given["timed"]:
        mine.encode(text)
    seconds = time.perf_counter() - start
    said[kind] = [hashlib.sha256(json.dumps(found).encode()).hexdigest(), seconds]
json.dumps(said)
`);
}"""
_VAD = """import { Silero } from "@ricky0123/vad-web/dist/models/silero.js";
import * as ort from "onnxruntime-web/wasm";
export async function open(url, wasm) {
  ort.env.wasm.wasmPaths = wasm;
  ort.env.wasm.numThreads = 1;
  return Silero.new(ort, async () => (await fetch(url)).arrayBuffer());
}
"""


def photo_folder(folder: Path) -> Path:
    """Write MobileNetV2 as the Hub has it, with random weights."""
    (folder / "onnx").mkdir(parents=True)
    model = networks.mobilenet_v2()
    for node in model.graph.node:
        node.input[:] = ["pixel_values" if name == "image" else name for name in node.input]
    model.graph.input[0].name = "pixel_values"
    onnx.save(model, str(folder / "onnx/model.onnx"))
    labels = {str(i): f"class {i}" for i in range(1000)}
    config = {"architectures": ["MobileNetV2ForImageClassification"], "model_type": "mobilenet_v2", "id2label": labels}
    processor = {
        "image_processor_type": "MobileNetV2ImageProcessor",
        **{f"do_{name}": True for name in ("resize", "center_crop", "rescale", "normalize")},
        "size": {"shortest_edge": 256},
        "crop_size": {"height": 224, "width": 224},
        "resample": 2,
        "rescale_factor": 1 / 255,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def text_folder(folder: Path) -> Path:
    """Write all-MiniLM-L6-v2 as the Hub has it: its hidden states, which both sides pool."""
    place = minilm_folder()
    assert place is not None
    shutil.copytree(place, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    model = onnx.load_from_string(minilm(place))
    last = max(i for i, node in enumerate(model.graph.node) if node.op_type == "LayerNormalization")
    name = model.graph.node[last].output[0]
    del model.graph.node[last + 1 :]
    model.graph.node[last].output[0] = "last_hidden_state"
    assert name != "last_hidden_state"
    del model.graph.output[:]
    shape = ["batch", "tokens", 384]
    model.graph.output.append(onnx.helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, shape))
    (folder / "onnx").mkdir()
    onnx.save(model, str(folder / "onnx/model.onnx"))
    return folder


def jpeg() -> bytes:
    """Return a JPEG of 640 x 480: cells of colour."""
    cells = np.random.default_rng(0).integers(0, 256, (15, 20, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.kron(cells, np.ones((32, 32, 1), np.uint8))).save(file, "JPEG")
    return file.getvalue()


def _serve(route: Route) -> None:
    path = _PACKAGES / route.request.url.partition("/peers/")[2]
    kind = "text/javascript" if path.suffix == ".mjs" else mimetypes.guess_type(path.name)[0]
    route.fulfill(body=path.read_bytes(), content_type=kind or "application/octet-stream")


def _bundle_vad() -> None:
    """Make one module of vad-web."""
    entry = PEERS / "vad_entry.mjs"
    entry.write_text(_VAD)
    esbuild = ROOT / "web/node_modules/.bin/esbuild"
    target = _PACKAGES / "vad.js"
    command = [esbuild, entry, "--bundle", "--format=esm", f"--outfile={target}", "--log-level=error"]
    subprocess.run([*map(str, command)], check=True)


def rows_of(rounds: int, count: int, parts: Sequence[str] = PARTS) -> list[dict[str, Any]]:
    """Measure, and return the rows.

    Args:
        rounds: How often both sides take their turns; five times as often for the photo.
        count: How many sentences there are.
        parts: What to measure of `PARTS`.

    Raises:
        ImportError: The peers are not there.
    """
    beside = [part for part in parts if part != "pyodide"]
    rows = _beside_peers(rounds, count, beside) if beside else []
    if "pyodide" not in parts:
        return rows
    with chromium() as browser, ServerThread(create_app({}, find_web_root())) as server:
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"{server.url}/blank.html")
        return [*rows, *_pyodide(page)]


def _beside_peers(rounds: int, count: int, parts: Sequence[str]) -> list[dict[str, Any]]:
    import base64

    for package in ("@huggingface/transformers", *(["@ricky0123/vad-web"] if "speech" in parts else [])):
        if not (_PACKAGES / package).is_dir():
            raise ImportError(f"{package} is not in {PEERS.name}: see the head of tasks_tokenizers.py")
    texts = [one for one in real_texts(4000) if 20 < len(one) < 160][:count]
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder, bundles = Path(name), dict[str, Path]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for part, bundle, write in (("photo", "photos", photo_folder), ("sentences", "sentences", text_folder)):
                if part in parts:
                    source, target = write(folder / part), folder / f"{bundle}.bundle"
                    bundles[bundle] = convert(source, target, precision="fp32", format="onnx").path
        if "speech" in parts:
            bundles["silero"] = silero_bundle(folder / "silero.bundle")
        with ServerThread(create_app(bundles, find_web_root())) as server:
            page = browser.new_page()
            if "speech" in parts:
                _bundle_vad()
            page.route("**/peers/**", _serve)
            page.set_default_timeout(600_000)
            page.goto(f"{server.url}/blank.html")
            page.evaluate(_SET_UP, {"photo": base64.b64encode(jpeg()).decode(), "texts": texts, "parts": list(parts)})
            measure = {
                "photo": lambda: _photos(page, 5 * rounds, bundles["photos"]),
                "speech": lambda: _speech(page, rounds),
                "sentences": lambda: _sentences(page, rounds, len(texts)),
            }
            return [row for part in parts for row in measure[part]()]


def _photos(page: Page, rounds: int, bundle: Path) -> list[dict[str, Any]]:
    """transformers.js resizes by the browser's canvas, and not as Pillow does, which the models were trained on."""

    def said(found: list[Any]) -> str:
        is_same = [one["label"] for one in found] == [one["label"] for one in expected]
        far = max(abs(one["score"] - other["score"]) for one, other in zip(found, expected, strict=True))
        return f"{'the same' if is_same else 'OTHER'} labels as Python, scores within {far:.1e}"

    with edge_infer.pipeline(bundle) as classify:
        expected = classify(jpeg())
    ours, theirs = page.evaluate("() => answers('photo')")
    note = f"{said(ours)}; transformers.js: {said(theirs)}"
    return [_row(page, "photo", rounds, "page, JPEG 640x480, MobileNetV2", "transformers.js", 1.0, note)]


def _speech(page: Page, rounds: int) -> list[dict[str, Any]]:
    page.evaluate("() => answers('speech')")
    return [_row(page, "speech", rounds, "page, 100 chunks of 32 ms, Silero", "vad-web", 1.0, "")]


def _sentences(page: Page, rounds: int, count: int) -> list[dict[str, Any]]:
    ours, theirs = page.evaluate("() => answers('sentences')")
    cosine = (np.array(ours) * np.array(theirs)).sum(1)
    note = f"cosine at least {cosine.min():.6f}"
    return [_row(page, "sentences", rounds, f"page, {count} sentences, fp32", "transformers.js", 1.1, note)]


def _row(page: Page, kind: str, rounds: int, name: str, peer: str, target: float, note: str) -> dict[str, Any]:
    orders = [[0, 1], [1, 0]]  # in turn: who goes second finds the processor's caches and clock as the first left them
    timed = "({ kind, order }) => timed(kind, order)"
    taken = [page.evaluate(timed, {"kind": kind, "order": orders[one % 2]}) for one in range(rounds)]
    ratios = sorted(theirs / ours for ours, theirs in taken)
    return {
        "name": name,
        "metric": "ms",
        "ours": statistics.median(ours for ours, _ in taken),
        "peer_name": peer,
        "peer": statistics.median(theirs for _, theirs in taken),
        "ratio": statistics.median(ratios),
        "target": f">= {target:g}x faster",
        "met": statistics.median(ratios) >= target,
        "spread": f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        "answers": note,
    }


def _pyodide(page: Page) -> list[dict[str, Any]]:
    texts, timed = checked_texts(), timed_texts()
    files = {kind: written(trained(kind)).decode() for kind in KINDS}
    said = json.loads(page.evaluate(_PYODIDE, {"files": files, "texts": texts, "timed": timed}))
    size = sum(len(text.encode()) for text in timed) / 1e6
    apart = [
        kind
        for kind in KINDS
        if said[kind][0] != hashlib.sha256(json.dumps(in_python(kind, texts)).encode()).hexdigest()
    ]
    rows: list[dict[str, Any]] = [
        {"name": "kinds of six that differ in Pyodide", "metric": f"of {len(texts)} texts each", "ours": len(apart)}
        | {"target": "0", "met": not apart}
    ]
    return rows + [
        {"name": f"{kind}, Pyodide", "metric": "MB/s of the clock", "ours": size / said[kind][1]}
        for kind in ("bert", "gpt2")
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds in place of seven")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; all of them without it")
    options = parser.parse_args()
    rounds, count = (3, 64) if options.quick else (7, 256)
    publish(rows_of(rounds, count, options.only or PARTS), ("edge-infer",), as_json=options.json)


if __name__ == "__main__":
    main()
