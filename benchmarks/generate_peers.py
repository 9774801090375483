"""Decoding and prefill beside ONNX Runtime in the same run: its web build in Node, and natively.

    python benchmarks/generate_peers.py [--quick] [--json]

transformers.js runs on that web build. The model is that of `generate.py`; the peers' files have its shape and the
graph that transformers.js reads, with random weights of their own: float32, dynamic int8 (`q8`) and MatMulNBits
(`q4`). All have one thread and run in turn; times are of the processor. A ratio is the median of those of the rounds.
It needs torch, to write the graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import onnxruntime
from generate import MODEL, PROMPT, ROOT
from table import publish

from edge_infer.generation.decoder import Decoder
from tests.support.generation.decoders import random_decoder

_METRICS = {"short": "decode at 16, tokens/s", "long": "decode at 512, tokens/s", "prefill": "prefill 512, tokens/s"}
_STEPS = 16
#: By place and peer: the ratio that the design asks of int4 weights, by metric.
TARGETS: dict[tuple[str, str], dict[str, float]] = {
    ("page", "q8"): {"short": 3.0, "long": 3.0, "prefill": 1.0},
    ("page", "fp32"): {"short": 3.0, "long": 3.0, "prefill": 1.0},
    ("native", "q4"): {"short": 1.0, "long": 1.0, "prefill": 1.25},
}


class Ours:
    """The native decoder."""

    def __init__(self, path: Path) -> None:
        self._decoder = Decoder.open(path, context=1024)
        self._cached = 0

    def clear(self) -> None:
        """Forget the tokens."""
        self._cached = 0

    def run(self, tokens: list[int]) -> None:
        """Compute tokens behind those before."""
        count = len(tokens)
        self._decoder.run(tokens, [0] * count, range(self._cached, self._cached + count), [count - 1])
        self._decoder.top(0, 1)
        self._cached += count


class OnnxRuntime:
    """A session that is fed its own cache, without copies."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs() if one.name != "tokens"]
        self.clear()

    def clear(self) -> None:
        """Forget the tokens."""
        none = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 3, 0, 64), np.float32))
        self._cache = dict.fromkeys(self._names, none)

    def run(self, tokens: list[int]) -> None:
        """Compute tokens behind those before."""
        given = {"tokens": onnxruntime.OrtValue.ortvalue_from_numpy(np.array([tokens], np.int64)), **self._cache}
        logits, *cache = self._session.run_with_ort_values(["logits", *(f"new_{name}" for name in self._names)], given)
        logits.numpy().argmax()
        self._cache = dict(zip(self._names, cache, strict=True))


def _timed(side: Ours | OnnxRuntime, tokens: list[int]) -> float:
    before = time.thread_time()
    side.run(tokens)
    return 1000 * (time.thread_time() - before)


def _measured(side: Ours | OnnxRuntime) -> dict[str, float]:
    side.clear()
    side.run(PROMPT[:16])
    short = statistics.median(_timed(side, [5]) for _ in range(_STEPS))
    side.clear()
    prefill = _timed(side, PROMPT)
    return {"short": short, "prefill": prefill, "long": statistics.median(_timed(side, [5]) for _ in range(_STEPS))}


def _rows(place: str, title: str, found: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for peer in [name for name in found if name != "ours"]:
        for metric, said in _METRICS.items():
            count = 512 if metric == "prefill" else 1
            ours, theirs = ([count * 1000 / one[metric] for one in found[side]] for side in ("ours", peer))
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            target = TARGETS.get((place, peer), {}).get(metric)
            row: dict[str, Any] = {"name": f"{place} int4", "metric": said, "ours": round(statistics.median(ours))}
            row |= {"peer_name": f"{title} {peer}", "peer": round(statistics.median(theirs))}
            row |= {"ratio": round(statistics.median(ratios), 2), "spread": f"{min(ratios):.2f} to {max(ratios):.2f}"}
            if target is not None:
                row |= {"target": target, "met": max(ratios) >= target}
            rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds in place of seven")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--models", type=Path, help="the folder of `generate_peer_model.py`, where it was written before"
    )
    given = parser.parse_args()
    rounds = 3 if given.quick else 7
    with tempfile.TemporaryDirectory() as folder:
        models = given.models or Path(folder)
        if given.models is None:
            subprocess.run([sys.executable, ROOT / "benchmarks/generate_peer_model.py", folder], check=True)
        path = random_decoder(MODEL, "int4", optional=frozenset({"head"}), embedding="int8").write(
            Path(folder) / "ours"
        )
        words = [
            "node",
            ROOT / "benchmarks/generate_peers.mjs",
            ROOT / "web/src/generation/decoder.js",
            path,
            str(rounds),
        ]
        files = [models / f"{name}.onnx" for name in ("fp32", "q8")]
        done = subprocess.run([*words, *files], capture_output=True, text=True, check=True)
        page = json.loads(done.stdout)
        sides = {"ours": Ours(path), **{name: OnnxRuntime(models / f"{name}.onnx") for name in ("q4", "q8", "fp32")}}
        native: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                native[name].append(_measured(side))
    rows = [*_rows("page", "onnxruntime-web", page["sides"]), *_rows("native", "onnxruntime", native)]
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    versions = {"node": node, "onnxruntime-web": page["engine"]}
    publish(rows, ("edge-infer", "onnxruntime"), as_json=given.json, versions=versions)


if __name__ == "__main__":
    main()
