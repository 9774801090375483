"""Decoding and prefill of a random 47M Llama, natively and in Node, each with one thread.

    python benchmarks/generate.py [--quick] [--json]

The model has SmolLM2-135M's layer, eight times, and a vocabulary of 16384: hidden 576, 9 heads and 3 of keys and
values, MLP 1536. Its weights are random and rounded plainly. Times are of the processor, as other work shares the
machine; a figure is the median step of the best round. The targets are those that the design sets for one thread; the
figures of peers behind them were measured on a quiet machine, in other runs.
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
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.generation.config import DecoderConfig
from edge_infer.generation.decoder import Decoder
from edge_infer.kernels.generation import generation_library
from tests.support.generation.decoders import random_decoder

if TYPE_CHECKING:
    from edge_infer.generation.weight_file import Encoding

ROOT = Path(__file__).parents[1]
MODEL = DecoderConfig(
    *("llama", 16384, 576, 8, 9, 3, 64, 1536, 2048), rotary_size=64, attention_scale=0.125, layer_kinds=(0,) * 8
)
PROMPT = [(place * 31) % 16384 for place in range(512)]
_METRICS = {"short": "decode at 16, tokens/s", "long": "decode at 512, tokens/s", "prefill": "prefill 512, tokens/s"}
#: By place, encoding and metric: tokens/s of the peer that the target names, and the ratio wanted.
TARGETS: dict[tuple[str, str, str], tuple[str, float, float]] = {
    ("native", "int4", "short"): ("onnxruntime-genai int4", 525, 1.0),
    ("native", "int4", "long"): ("onnxruntime-genai int4", 404, 1.0),
    ("native", "int4", "prefill"): ("llama.cpp q4_0", 1670, 1.0),
    ("wasm", "int4", "short"): ("wllama q4_0", 36, 5.0),
    ("wasm", "int4", "long"): ("wllama q4_0", 18, 5.0),
    ("wasm", "int4", "prefill"): ("transformers.js q8", 736, 1.0),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="int4 only, two rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    encodings: tuple[Encoding, ...] = ("int4",) if given.quick else ("int4", "int8", "f16", "f32")
    rounds = 2 if given.quick else 4
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for encoding in encodings:
            path = Path(folder) / encoding
            embedding: Encoding = "int8" if encoding == "int4" else encoding
            random_decoder(MODEL, encoding, optional=frozenset({"head"}), embedding=embedding).write(path)
            for place, measure in (("native", _native), ("wasm", _node)):
                rows += _rows(place, encoding, measure(path, rounds))
            path.unlink()
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    versions = {"node": node, "kernels": generation_library().path.name}
    publish(rows, ("edge-infer",), as_json=given.json, versions=versions)


def _rows(place: str, encoding: str, found: list[dict[str, float]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for metric, title in _METRICS.items():
        speeds = [(512 if metric == "prefill" else 1) * 1000 / one[metric] for one in found]
        ours = max(speeds)
        row: dict[str, Any] = {"name": f"{place} {encoding}", "metric": title, "ours": round(ours)}
        row |= {"spread": f"{min(speeds):.0f} to {max(speeds):.0f}"}
        if (place, encoding, metric) in TARGETS:
            peer_name, peer, target = TARGETS[place, encoding, metric]
            row |= {"peer_name": peer_name, "peer": peer, "ratio": round(ours / peer, 3), "target": target}
            row["met"] = ours >= target * peer
        rows.append(row)
    return rows


def _native(path: Path, rounds: int) -> list[dict[str, float]]:
    """Measure by ctypes; milliseconds."""
    with Decoder.open(path, context=1024) as decoder:

        def timed(tokens: list[int], start: int) -> float:
            count, before = len(tokens), time.thread_time()
            decoder.run(tokens, [0] * count, range(start, start + count), [count - 1])
            decoder.top(0, 1)
            return 1000 * (time.thread_time() - before)

        def decode(start: int) -> float:
            return statistics.median(timed([5], start + step) for step in range(24))

        return [{"prefill": timed(PROMPT, 0), "short": decode(16), "long": decode(512)} for _ in range(rounds)]


def _node(path: Path, rounds: int) -> list[dict[str, float]]:
    """Measure the page's module in Node; milliseconds."""
    words = ["node", str(ROOT / "benchmarks/generate_node.mjs"), str(ROOT / "web/src/generation/decoder.js")]
    done = subprocess.run([*words, str(path), str(rounds)], capture_output=True, text=True, check=True)
    found: list[dict[str, float]] = json.loads(done.stdout)["rounds"]
    return found


if __name__ == "__main__":
    main()
