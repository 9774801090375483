"""Compiled models in a page and in Python against engines: bytes, time to the first answer, time per answer, memory.

The peers in the page are this project's page module, which runs the `.tflite` file by LiteRT.js and the same weights as
ONNX (`compile_onnx.py`) by onnxruntime-web, both in a worker, as pages use it; their time per answer contains the way
to the worker and back. All run in Chromium with one thread, in turn: each cold start in a context of its own with an
empty cache, from the import of the module to the first answer.

In Python each runs in a process of its own that has imported numpy: from the file to the first answer, without and with
the import of its package, the memory that the process has more after it than before that import, and then the time of
an answer. "Whole process" is a device's: the wall time of a process that runs the model once, ours on bytes without
numpy, as `device.py` does.

    EDGE_INFER_ZOO=FOLDER python benchmarks/compile.py [--quick] [--json] [--native | --page] [--only NAME]...

The models are int8 and float32 nets of that folder; without it only the digits example is measured. With `--native`
the page is left out, with `--page` Python. MobileNetV2 has no row: it takes 301 million multiplications, and compiled
models at most 50, so that none is made of it or chosen.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

import brotli

sys.path.insert(0, str(Path(__file__).parents[1]))

from compile_onnx import to_onnx
from table import publish

from edge_infer.tools.browser.chromium import chromium
from edge_infer_converters import convert
from edge_infer_converters.writers.compiled import page_files, writer
from edge_infer_converters.writers.tflite import reading

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
ZOO = os.environ.get("EDGE_INFER_ZOO", "")
NETS = (
    *("kws_int8", "vww_int8", "resnet8_int8", "ad01_int8", "micro_speech"),
    *("ad01_f32", "resnet8_f32", "vww_f32", "blazeface"),
)
#: Those that are to be no larger than their .tflite; others may have 8 kB of kernels more.
SMALLEST = ("kws_int8", "vww_int8", "resnet8_int8")
#: An engine and its glue, as `vendor/` has it, which a page fetches besides the model.
ENGINE = ("litert/litert_wasm_internal.js", "litert/litert_wasm_internal.wasm")
ORT = ("onnxruntime-web/ort-wasm-simd-threaded.mjs", "onnxruntime-web/ort-wasm-simd-threaded.wasm")
PACKAGES = ("edge-infer", "edge-infer-converters", "ai-edge-litert", "onnxruntime", "numpy")

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


_ONNX = _PEER.replace(".tflite`", ".onnx`")
#: A process loads a model and answers once: milliseconds without and with the import of the package, and kilobytes that
#: it has more than with numpy alone.
_NATIVE = """
import sys, time, numpy as np
def rss():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
kind, path = sys.argv[1:]
before = rss()
begin = time.perf_counter()
if kind == "compiled":
    import edge_infer
    from edge_infer.backends import compiled
    from edge_infer.bundle import bundle
    from edge_infer.formats import program
    from edge_infer.kernels import library
    from edge_infer.runtime import load, loader, open_session, session
    start = time.perf_counter()
    loaded = edge_infer.load(path)
    shapes = {one.name: [d if isinstance(d, int) else 1 for d in one.shape] for one in loaded.inputs}
    inputs = {one.name: np.zeros(shapes[one.name], str(one.dtype)) for one in loaded.inputs}
    loaded.run(inputs)
elif kind == "litert":
    from ai_edge_litert.interpreter import Interpreter
    start = time.perf_counter()
    engine = Interpreter(path, num_threads=1)
    engine.allocate_tensors()
    (detail,) = engine.get_input_details()
    engine.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    engine.invoke()
    engine.get_tensor(engine.get_output_details()[0]["index"])
else:
    import onnxruntime
    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    engine = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (one,) = engine.get_inputs()
    kind = np.int8 if "int8" in one.type else np.float32
    inputs = {one.name: np.zeros([d if isinstance(d, int) else 1 for d in one.shape], kind)}
    engine.run(None, inputs)
end = time.perf_counter()
more = rss() - before
answer = {
    "compiled": lambda: loaded.run(inputs),
    "litert": lambda: engine.invoke(),
}.get(sys.argv[1], lambda: engine.run(None, inputs))
samples = []
while len(samples) < 5 or time.perf_counter() < end + 0.3:
    first = time.perf_counter()
    answer()
    samples.append(time.perf_counter() - first)
print((end - start) * 1000, (end - begin) * 1000, more, sorted(samples)[len(samples) // 2] * 1e6)
"""
#: Whole processes of a device: the model is run once.
_WHOLE = {
    "compiled": """
import sys, edge_infer
session = edge_infer.load(sys.argv[1], arrays="tensor")
session.run({one.name: bytes(one.dtype.nbytes([d if isinstance(d, int) else 1 for d in one.shape]))
             for one in session.inputs})
""",
    "litert": """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
engine = Interpreter(sys.argv[1], num_threads=1)
engine.allocate_tensors()
(detail,) = engine.get_input_details()
engine.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
engine.invoke()
engine.get_tensor(engine.get_output_details()[0]["index"])
""",
}


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        pass


def models(folder: Path, only: list[str]) -> dict[str, bytes]:
    """Return the files to compare, by name."""
    if ZOO:
        return {name: (Path(ZOO) / f"{name}.tflite").read_bytes() for name in NETS if not only or name in only}
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
        with suppress(ValueError):  # micro_speech and the like: no peer in ONNX
            (folder / "models" / f"{name}.onnx").write_bytes(to_onnx(content, name))
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


def native(folder: Path, name: str, content: bytes, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of Python: load and first answer, and memory."""
    files = {
        "compiled": folder / "compiled" / name / "model.wasm",
        "litert": folder / "models" / f"{name}.tflite",
        "onnxruntime": folder / "models" / f"{name}.onnx",
    }
    found: dict[str, list[tuple[float, ...]]] = {kind: [] for kind, path in files.items() if path.is_file()}
    processes: dict[str, list[float]] = {kind: [] for kind in _WHOLE}
    # As where packages are installed: their bytecode is there.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for turn in range(1 + rounds):
        for kind, samples in found.items():
            words = [sys.executable, "-c", _NATIVE, kind, str(files[kind])]
            done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
            ms, whole, kilobytes, each = map(float, done.stdout.split()[-4:])
            if turn:  # the first one wrote the bytecode
                samples.append((ms, whole, kilobytes / 1000, each))
        for kind, code in _WHOLE.items():
            start = perf_counter()
            subprocess.run(
                [sys.executable, "-c", code, str(files[kind])], check=True, capture_output=True, env=environment
            )
            if turn:
                processes[kind].append((perf_counter() - start) * 1000)
    program = writer.write(reading.read(content, name).graph).program
    allowed = program.image_bytes / 1e6 + 0.5
    rows = [row(name, "Python, whole process, ms", processes["compiled"], processes["litert"], "litert", 0.35)]
    for kind, samples in found.items():
        if kind == "compiled":
            continue
        ours, longer, memory, each = zip(*found["compiled"], strict=True)
        theirs, whole, more, other = zip(*samples, strict=True)
        limit = allowed / statistics.median(more)
        rows += [
            row(name, "Python, load and first answer, ms", [*ours], [*theirs], kind, 0.1),
            row(name, "Python, import, load and first answer, ms", [*longer], [*whole], kind, 0.1),
            row(name, "Python, memory added, MB", [*memory], [*more], kind, limit),
            row(name, "Python, per answer, us", [*each], [*other], kind, None),
        ]
    return rows


def compressed(*contents: bytes) -> int:
    return sum(len(brotli.compress(one, quality=11)) for one in contents)


def row(
    name: str, metric: str, ours: list[float], peer: list[float], peer_name: str, target: float | None
) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return {
        "name": name,
        "metric": metric,
        "ours": statistics.median(ours),
        "peer_name": peer_name,
        "peer": statistics.median(peer),
        "ratio": statistics.median(ratios),
        "target": target,
        "met": None if target is None else statistics.median(ratios) <= target,
        "spread": f"{min(ratios):.3g} to {max(ratios):.3g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", action="append", default=[], choices=NETS)
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else 7
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = models(folder, arguments.only)
        site(folder, files)
        for name, content in ({} if arguments.page else files).items():
            rows += native(folder, name, content, rounds)
        if arguments.native:
            publish(rows, [*PACKAGES], as_json=arguments.json)
            return
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=temporary))
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        engine, ort = (
            compressed(*((ROOT / "web/vendor" / path).read_bytes() for path in paths)) for paths in (ENGINE, ORT)
        )
        module = compressed(page_files()["model.js"])
        with chromium() as browser:
            for name, content in files.items():
                has_onnx = (folder / "models" / f"{name}.onnx").is_file()
                scripts = (_OURS, _PEER, *((_ONNX,) if has_onnx else ()))
                times = [[sample(browser, url, script, name) for script in scripts] for _ in range(rounds)]
                ours, peer = ([one[i] for one in times] for i in range(2))
                usual = 1.0 if name.endswith("_f32") else 0.87
                wasm = compressed((folder / "compiled" / name / "model.wasm").read_bytes())
                alone = compressed(content)
                allowed = 1.0 if name in SMALLEST else (alone + 8000) / alone
                rows += [
                    row(name, "model.wasm, bytes", [wasm], [alone], "the .tflite alone", allowed),
                    row(name, "all for the first answer, bytes", [wasm + module], [alone + engine], "LiteRT.js", 0.125),
                    row(name, "cold, ms", [a[0] for a in ours], [b[0] for b in peer], "LiteRT.js", 0.125),
                    row(name, "per answer, us", [a[1] for a in ours], [b[1] for b in peer], "LiteRT.js", usual),
                ]
                if not has_onnx:
                    continue
                other = [one[2] for one in times]
                file = compressed((folder / "models" / f"{name}.onnx").read_bytes())
                faster = 1 / 1.3 if name.endswith("_f32") else 0.5
                peer_name = "onnxruntime-web"
                rows += [
                    row(name, "all for the first answer, bytes", [wasm + module], [file + ort], peer_name, 0.125),
                    row(name, "cold, ms", [a[0] for a in ours], [b[0] for b in other], peer_name, 0.125),
                    row(name, "per answer, us", [a[1] for a in ours], [b[1] for b in other], peer_name, faster),
                ]
        server.shutdown()
        server.server_close()
    versions = {"@litertjs/core": "2.5.3", "onnxruntime-web": "1.30.0"}
    publish(rows, [*PACKAGES], as_json=arguments.json, versions=versions)


if __name__ == "__main__":
    main()
