"""Compiled models in a page against LiteRT.js: bytes, time to the first answer, time per answer.

The peer is this project's page module, which runs the `.tflite` file by LiteRT.js in a worker, as pages use it; its
time per answer contains the way to the worker and back. Both run in Chromium with one thread, in turn: each cold start
in a context of its own with an empty cache, from the import of the module to the first answer.

    EDGE_INFER_ZOO=FOLDER python benchmarks/compile.py [--quick] [--json]

The models are int8 and float32 nets of that folder; without it only the digits example is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import brotli

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.tools.browser.chromium import chromium
from edge_infer_converters import convert
from edge_infer_converters.writers.compiled import page_files, writer
from edge_infer_converters.writers.tflite import reading

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
ZOO = os.environ.get("EDGE_INFER_ZOO", "")
NETS = ("kws_int8", "vww_int8", "resnet8_int8", "ad01_int8", "micro_speech", "ad01_f32", "resnet8_f32", "vww_f32")
#: An engine and its glue, as `vendor/` has it, which a page fetches besides the model.
ENGINE = ("litert/litert_wasm_internal.js", "litert/litert_wasm_internal.wasm")

_INPUT = """const input = (tensor) => {
        const count = tensor.shape.reduce((a, b) => a * (typeof b === "number" ? b : 1), 1);
        const kinds = { float32: Float32Array, int8: Int8Array, uint8: Uint8Array };
        return kinds[tensor.dtype].from({ length: count }, (_, i) => (i * 37) % 101);
    };"""
_LOOP = """const loop = async (call) => {
        const samples = [];
        for (const end = performance.now() + 600; performance.now() < end || samples.length < 5; ) {
            const start = performance.now();
            for (let i = 0; i < 10; i += 1) await call();
            samples.push((performance.now() - start) * 100);
        }
        return samples.sort((a, b) => a - b)[samples.length >> 1];
    };"""
_OURS = f"""async (name) => {{
    {_INPUT} {_LOOP}
    const start = performance.now();
    const {{ load }} = await import(`/compiled/${{name}}/model.js`);
    const model = await load();
    const inputs = Object.fromEntries(model.inputs.map((one) => [one.name, input(one)]));
    model.run(inputs);
    const cold = performance.now() - start;
    return [cold, await loop(() => model.run(inputs))];
}}"""
_PEER = f"""async (name) => {{
    {_INPUT} {_LOOP}
    const start = performance.now();
    const {{ load }} = await import("/src/index.js");
    const session = await load(`/models/${{name}}.tflite`, {{ threads: 1 }});
    const inputs = Object.fromEntries(session.inputs.map((one) => [one.name, input(one)]));
    await session.run(inputs);
    const cold = performance.now() - start;
    return [cold, await loop(() => session.run(inputs))];
}}"""


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        pass


def models(folder: Path) -> dict[str, bytes]:
    """Return the files to compare, by name."""
    if ZOO:
        return {name: (Path(ZOO) / f"{name}.tflite").read_bytes() for name in NETS}
    digits = ROOT / "examples/digits"
    options: dict[str, Any] = {"format": "tflite", "precision": "int8", "keep_all": True}
    convert(digits / "digits.onnx", folder / "digits.bundle", calibration=digits / "calibration.npz", **options)
    return {"digits_int8": (folder / "digits.bundle/tflite/model_int8.tflite").read_bytes()}


def site(folder: Path, files: dict[str, bytes]) -> None:
    """Lay out what the page fetches."""
    (folder / "models").mkdir()
    (folder / "blank.html").write_text("<!doctype html><title>blank</title>")
    for name in ("src", "vendor"):
        (folder / name).symlink_to(ROOT / "web" / name)
    for name, content in files.items():
        (folder / "models" / f"{name}.tflite").write_bytes(content)
        place = folder / "compiled" / name
        place.mkdir(parents=True)
        compiled = writer.write(reading.read(content, name).graph)
        for path, data in {"model.wasm": compiled.wasm, **page_files()}.items():
            (place / path).write_bytes(data)


def sample(browser: Browser, url: str, script: str, name: str) -> tuple[float, float]:
    """Return the time to the first answer in ms and the time per answer in us, in a new context."""
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{url}/blank.html")
        cold, warm = page.evaluate(script, name)
        return float(cold), float(warm)


def compressed(*contents: bytes) -> int:
    return sum(len(brotli.compress(one, quality=11)) for one in contents)


def row(name: str, metric: str, ours: list[float], peer: list[float], peer_name: str, target: float) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return {
        "name": name,
        "metric": metric,
        "ours": statistics.median(ours),
        "peer_name": peer_name,
        "peer": statistics.median(peer),
        "ratio": statistics.median(ratios),
        "target": target,
        "met": statistics.median(ratios) <= target,
        "spread": f"{min(ratios):.3g} to {max(ratios):.3g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else 7
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = models(folder)
        site(folder, files)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=temporary))
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        engine = compressed(*((ROOT / "web/vendor" / path).read_bytes() for path in ENGINE))
        module = compressed(page_files()["model.js"])
        with chromium() as browser:
            for name, content in files.items():
                times = [(sample(browser, url, _OURS, name), sample(browser, url, _PEER, name)) for _ in range(rounds)]
                usual = 1.0 if name.endswith("_f32") else 0.87
                wasm = compressed((folder / "compiled" / name / "model.wasm").read_bytes())
                alone = compressed(content)
                rows += [
                    row(name, "model.wasm, bytes", [wasm], [alone], "the .tflite alone", (alone + 8000) / alone),
                    row(name, "all for the first answer, bytes", [wasm + module], [alone + engine], "LiteRT.js", 0.125),
                    row(name, "cold, ms", [a[0] for a, _ in times], [b[0] for _, b in times], "LiteRT.js", 0.125),
                    row(name, "per answer, us", [a[1] for a, _ in times], [b[1] for _, b in times], "LiteRT.js", usual),
                ]
        server.shutdown()
        server.server_close()
    publish(rows, ["edge-infer", "edge-infer-converters"], as_json=arguments.json, versions={"@litertjs/core": "2.5.3"})


if __name__ == "__main__":
    main()
