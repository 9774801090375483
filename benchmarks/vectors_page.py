"""The search of an index in Chromium: ours against onnxruntime-web's 8-bit products and hnswlib-wasm, and in Pyodide.

    EDGE_INFER_VECTORS=FILE.npy python benchmarks/vectors_page.py [--quick] [--json]

The vectors are those of `vectors.py`. onnxruntime-web multiplies the query with all 8-bit rows (MatMulInteger), scales
and takes the ten best (TopK), in three forms; the quickest that gives the right ids counts. hnswlib-wasm (M 16, 200
while it builds) is built of 10,000 vectors; it is a package of npm:

    npm install --prefix .bench/hnswlib hnswlib-wasm

One thread, times of the clock in one page, in turn. In Pyodide the same index is searched by the kernels and by plain
Python. Pyodide's build of numpy could not be installed here, so that it is not measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from table import publish
from vectors import ROOT, sentences, spread_out

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium
from edge_infer.vectors.ways import arithmetics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

K, QUERIES = 10, 20
FORMS = {"u8 query x columns": "u8", "s8 query x columns": "s8", "rows x s8 query": "rows"}
_PLACES = {
    "ort": ROOT / "web/node_modules/onnxruntime-web/dist",
    "hnswlib": ROOT / ".bench/hnswlib/node_modules/hnswlib-wasm/dist",
}
_SET_UP = """async ({ count, forms, hnsw, dimension }) => {
  const { SearchIndex } = await import("/src/vectors/search-index.js");
  const index = await SearchIndex.open(`${bench}${count}.index`);
  const floats = async (name) => new Float32Array(await (await fetch(`${bench}${name}`)).arrayBuffer());
  const all = await floats("queries.f32");
  const row = (data, i) => data.subarray(i * dimension, (i + 1) * dimension);
  const rowsOf = (data) => Array.from({ length: data.length / dimension }, (_, i) => row(data, i));
  globalThis.queries = rowsOf(all);
  const ask = (query) => index.searchVector(query, { k: 10, fullScan: true });
  globalThis.sides = { ours: async (query) => ask(query).map(({ id }) => id) };
  const ort = await import(`${bench}ort/ort.wasm.bundle.min.mjs`);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = `${bench}ort/`;
  for (const form of forms) {
    const session = await ort.InferenceSession.create(`${bench}${count}-${form}.onnx`);
    const rows = form === "rows";
    sides[form] = async (query) => {
      const most = Math.max(...query.map(Math.abs));
      const codes = Int8Array.from(query, (value) => Math.round((value * 127) / most));
      const data = form === "u8" ? Uint8Array.from(codes, (one) => one + 128) : codes;
      const q = new ort.Tensor(form === "u8" ? "uint8" : "int8", data, rows ? [dimension, 1] : [1, dimension]);
      return Array.from((await session.run({ q })).ids.data, Number);
    };
  }
  let build = 0;
  if (hnsw) {
    const { loadHnswlib } = await import(`${bench}hnswlib/hnswlib.js`);
    const lib = await loadHnswlib();
    const data = await floats(`${count}.f32`);
    const graph = new lib.HierarchicalNSW("cosine", dimension, "");
    graph.initIndex(count, 16, 200, 100);
    const start = performance.now();
    const points = rowsOf(data);
    graph.addPoints(points, [...points.keys()], false);
    build = (performance.now() - start) / 1000;
    for (const ef of [16, 64]) {
      sides[`hnsw ${ef}`] = async (query) => {
        graph.setEfSearch(ef);
        return Array.from(graph.searchKnn(query, 10, undefined).neighbors);
      };
    }
  }
  return build;
}"""
_ANSWERS = """async () => {
  const found = {};
  for (const [name, side] of Object.entries(sides)) {
    found[name] = [];
    for (const query of queries) found[name].push(await side(query));
  }
  return found;
}"""
_ROUND = """async () => {
  const found = {};
  for (const [name, side] of Object.entries(sides)) {
    const start = performance.now();
    for (const query of queries) await side(query);
    found[name] = (performance.now() - start) / queries.length;
  }
  return found;
}"""
_PYODIDE = """async ({ files, queries }) => {
  const { loadPython } = await import("/src/index.js");
  globalThis.python ??= await loadPython({ keepImage: false });
  return JSON.parse(await python.run(`
import json, pathlib, time, zipfile, io
import edge_infer
from pyodide.http import open_url
from js import XMLHttpRequest
def get(path):
    request = XMLHttpRequest.new()
    request.open("GET", path, False)
    request.responseType = "arraybuffer"
    request.send()
    return request.response.to_bytes()
package = pathlib.Path(edge_infer.__file__).parent
zipfile.ZipFile(io.BytesIO(get("${bench}rooms.zip"))).extractall(package)
for path in json.loads('${JSON.stringify(files)}'):
    place = pathlib.Path("notes.index", path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(get("${bench}10000.index/" + path))
from edge_infer.vectors.ways import arithmetics
index = edge_infer.Index.open("notes.index")
queries = json.loads('${JSON.stringify(queries)}')
times, ids = {}, {}
for name, way in arithmetics().items():
    index._arithmetic = way
    asked = queries if name == "kernel" else queries[:1]
    index.search(asked[0])
    start = time.perf_counter()
    ids[name] = [[hit.id for hit in index.search(query)] for query in asked]
    times[name] = (time.perf_counter() - start) * 1000 / len(asked)
json.dumps([times, ids])
`));
}"""


class _Files(SimpleHTTPRequestHandler):
    """Gives the files of a folder to pages of another origin."""

    extensions_map: ClassVar = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def files_of(folder: Path) -> Iterator[str]:
    """Serve a folder, and give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_models(data: np.ndarray[Any, Any], scales: np.ndarray[Any, Any], count: int, folder: Path) -> None:
    """Write the forms of the product as models."""
    columns, rows = numpy_helper.from_array(np.ascontiguousarray(data.T), "x"), numpy_helper.from_array(data, "x")
    for form in FORMS.values():
        kind = TensorProto.UINT8 if form == "u8" else TensorProto.INT8
        zero = [numpy_helper.from_array(np.array(128, np.uint8), "zero")] if form == "u8" else []
        shape = [data.shape[1], 1] if form == "rows" else [1, data.shape[1]]
        order = ["x", "q"] if form == "rows" else ["q", "x"]
        nodes = [
            helper.make_node("MatMulInteger", [*order, *(["zero"] if zero else [])], ["wide"]),
            helper.make_node("Cast", ["wide"], ["float"], to=TensorProto.FLOAT),
            helper.make_node("Reshape", ["float", "flat"], ["dots"]),
            helper.make_node("Mul", ["dots", "scales"], ["scores"]),
            helper.make_node("TopK", ["scores", "k"], ["best", "ids"]),
        ]
        constants = [
            rows if form == "rows" else columns,
            numpy_helper.from_array(scales, "scales"),
            numpy_helper.from_array(np.array([count], np.int64), "flat"),
            numpy_helper.from_array(np.array([K], np.int64), "k"),
            *zero,
        ]
        outputs = [
            helper.make_tensor_value_info("best", TensorProto.FLOAT, [K]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [K]),
        ]
        inputs = [helper.make_tensor_value_info("q", kind, shape)]
        graph = helper.make_graph(nodes, "product", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        (folder / f"{count}-{form}.onnx").write_bytes(model.SerializeToString())


def prepare(real: np.ndarray[Any, Any], count: int, folder: Path) -> None:
    """Write an index, its models and the vectors themselves."""
    data = spread_out(real[:-100], count)
    index = edge_infer.Index.create(folder / f"{count}.index", data.shape[1], words=False)
    index.add(data)
    (folder / f"{count}.f32").write_bytes(data.tobytes())
    (folder / "queries.f32").write_bytes(np.ascontiguousarray(real[-QUERIES:], np.float32).tobytes())
    codes, scales = arithmetics()["numpy"].encode(data)
    rows = np.frombuffer(codes, np.int8).reshape(data.shape)
    write_models(rows, np.frombuffer(scales, np.float32), count, folder)


def measured(page: Page, count: int, rounds: int, dimension: int) -> list[dict[str, Any]]:
    """Return the rows of one size."""
    has_hnsw = count <= 10_000 and _PLACES["hnswlib"].is_dir()
    asked = {"count": count, "forms": list(FORMS.values()), "hnsw": has_hnsw, "dimension": dimension}
    build = page.evaluate(_SET_UP, asked)
    answers = page.evaluate(_ANSWERS)
    page.evaluate(_ROUND)  # warm
    times = [page.evaluate(_ROUND) for _ in range(rounds)]
    right = [set(ids) for ids in answers["ours"]]
    shared = {
        name: statistics.mean(len(set(ids) & best) / K for ids, best in zip(found, right, strict=True))
        for name, found in answers.items()
    }
    made = []
    for name in answers:
        if name == "ours":
            continue
        ratios = [one["ours"] / one[name] for one in times]
        is_product = name in FORMS.values()
        label = next((said for said, form in FORMS.items() if form == name), name)
        target = (0.25 if is_product else 1.0) if name != "hnsw 64" else None
        ratio = statistics.median(ratios)
        made.append(
            {
                "name": f"Chromium, {count // 1000}k x {dimension}, all 8-bit rows",
                "metric": "ms",
                "ours": round(statistics.median(one["ours"] for one in times), 3),
                "peer_name": f"onnxruntime-web, {label}"
                if is_product
                else f"hnswlib-wasm, ef {name[5:]}, built in {build:.1f} s",
                "peer": round(statistics.median(one[name] for one in times), 3),
                "ratio": round(ratio, 3),
                "target": None if target is None else f"<= {target:g}",
                "met": None if target is None else ratio <= target,
                "spread": f"{min(ratios):.3f} to {max(ratios):.3f}, {shared[name]:.3f} of our ids",
            }
        )
    return made


def in_pyodide(page: Page, folder: Path) -> list[dict[str, Any]]:
    """Return the row of Python in the page."""
    import zipfile

    package = Path(edge_infer.__file__).parent
    with zipfile.ZipFile(folder / "rooms.zip", "w") as archive:
        for room in ("tasks", "vectors"):
            for path in (package / room).rglob("*"):
                if path.suffix in (".py", ".json"):
                    archive.write(path, path.relative_to(package))
    place = folder / "10000.index"
    files = [
        path.relative_to(place).as_posix() for path in place.rglob("*") if path.suffix in (".json", ".safetensors")
    ]
    queries = np.frombuffer((folder / "queries.f32").read_bytes(), np.float32).reshape(QUERIES, -1)[:10].tolist()
    times, ids = page.evaluate(_PYODIDE, {"files": files, "queries": queries})
    assert ids["kernel"][:1] == ids["plain"], "the ways differ"
    return [
        {
            "name": "Pyodide in Chromium, 10k x 384, `Index.search` by the kernels",
            "metric": "ms",
            "ours": round(times["kernel"], 3),
            "peer_name": "plain Python",
            "peer": round(times["plain"], 1),
            "ratio": round(times["kernel"] / times["plain"], 5),
        }
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 vectors and three rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    real = sentences()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made, ServerThread(create_app({}, find_web_root())) as server:
        folder = Path(made)

        for name, place in _PLACES.items():
            (folder / name).symlink_to(place)
        with chromium() as browser, files_of(folder) as files:
            page = browser.new_page()
            page.goto(f"{server.url}/blank.html")
            page.evaluate("(url) => { globalThis.bench = url; }", files)
            for count in (10_000,) if options.quick else (10_000, 100_000):
                prepare(real, count, folder)
                rows += measured(page, count, 3 if options.quick else 7, real.shape[1])
            rows += in_pyodide(page, folder)
    publish(rows, ("numpy", "edge-infer", "playwright"), as_json=options.json)


if __name__ == "__main__":
    main()
