"""What the TFLite writer gives: parity with onnxruntime, size, operators, and the time that it takes.

    python benchmarks/tflite.py [--quick] [--json] [--minilm all-MiniLM-L6-v2.onnx]

MiniLM is measured where its ONNX file is given (inputs `input_ids` and `attention_mask` of a fixed length). Peers'
figures come from one run on one machine, on 2026-11-20; they are not measured again here.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from edge_infer import parity
from edge_infer_converters.targets import tflite
from tests import zoo

DIGITS = Path(__file__).parents[1] / "examples/digits/digits.onnx"


def mobilenet_v2() -> bytes:
    """MobileNetV2-1.0 for 224 x 224 images, its batch normalization folded, with random weights (arXiv:1801.04381)."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray[Any, Any]] = {}
    nodes: list[onnx.NodeProto] = []

    def conv(x: str, channels: int, out: int, size: int, stride: int, groups: int = 1, *, relu: bool = True) -> str:
        name = f"c{len(weights)}"
        fan = channels // groups * size * size
        weights[name] = rng.normal(0, (2 / fan) ** 0.5, (out, channels // groups, size, size)).astype(np.float32)
        weights[f"{name}b"] = rng.normal(0, 0.1, out).astype(np.float32)
        pads = [size // 2] * 4
        inputs = [x, name, f"{name}b"]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}y"], strides=[stride] * 2, pads=pads, group=groups))
        if relu:
            nodes.append(helper.make_node("Clip", [f"{name}y", "zero", "six"], [f"{name}r"]))
        return f"{name}r" if relu else f"{name}y"

    weights |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    x, channels = conv("image", 3, 32, 3, 2), 32
    for expand, out, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            stride, wide = first if i == 0 else 1, channels * expand
            y = conv(x, channels, wide, 1, 1) if expand > 1 else x
            y = conv(conv(y, wide, wide, 3, stride, wide), wide, out, 1, 1, relu=False)
            if stride == 1 and channels == out:
                nodes.append(helper.make_node("Add", [x, y], [f"{y}s"]))
                y = f"{y}s"
            x, channels = y, out
    x = conv(x, channels, 1280, 1, 1)
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    weights["dense"] = rng.normal(0, 0.03, (1280, 1000)).astype(np.float32)
    nodes.append(helper.make_node("Gemm", ["flat", "dense"], ["logits"]))
    return zoo.model(nodes, [zoo.value("image", ["n", 3, 224, 224])], [zoo.value("logits", ["n", 1000])], weights)


def recurrent(op: str, gates: int) -> bytes:
    """Give the states of a two-way layer of 32 units over 24 steps of 16 numbers."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(0, 0.3, (2, gates * 32, 16)).astype(np.float32),
        "r": rng.normal(0, 0.2, (2, gates * 32, 32)).astype(np.float32),
        "b": rng.normal(0, 0.2, (2, gates * 64)).astype(np.float32),
    }
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=32, direction="bidirectional")
    return zoo.model([node], [zoo.value("x", [24, 1, 16])], [zoo.value("y", None)], weights)


def measured(name: str, model: bytes, feeds: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Write a model and compare the two engines on it."""
    start = time.process_time()
    written = tflite.write(onnx.load_from_string(model), name)
    seconds = time.process_time() - start
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    native = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in native.get_outputs()]
    interpreter = Interpreter(model_content=written.data, num_threads=1)
    runner = interpreter.get_signature_runner("serving_default")
    pairs = []
    for _ in range(rounds):
        before = time.perf_counter()
        wanted = native.run(names, feeds)
        between = time.perf_counter()
        got = runner(**feeds)
        pairs.append((time.perf_counter() - between, between - before))
    one = parity.compare([dict(zip(names, wanted, strict=True))], [got])
    ratios = [ours / peer for ours, peer in pairs[1:]]
    found = collections.Counter(written.operators)
    rows = [
        row(f"{name}: parity", "SQNR dB", one.sqnr_db, "target", 115.0, ">=", 115.0),
        row(f"{name}: parity", "max err/rms", one.max_err, "target", 1e-5, "<=", 1e-5),
        row(f"{name}: size", "of the ONNX file", len(written.data), "onnx bytes", len(model), "<=", None),
        row(f"{name}: conversion", "CPU s", seconds, "-", None, "<=", None),
        row(
            f"{name}: latency", "ms, 1 thread", statistics.median(ours for ours, _ in pairs[1:]) * 1e3, "onnxruntime",
            statistics.median(peer for _, peer in pairs[1:]) * 1e3, "<=", None,
            f"{min(ratios):.3g} to {max(ratios):.3g}",
        ),
    ]  # fmt: skip
    if name == "MobileNetV2":
        count = len(written.operators)
        rows.append(row(f"{name}: operators", "count", count, "onnx2tf 2.6.9, 2026-11-20", 121, "<=", 66))
    if name == "MiniLM":
        rows[3] = row(f"{name}: conversion", "CPU s", seconds, "onnx2tf, 2026-11-20", 8.0, "<=", 5.0)
        dense = found["FULLY_CONNECTED"] + found["EMBEDDING_LOOKUP"]
        rows.append(row(f"{name}: quantizable", "operators", dense, "litert-torch, 2026-11-20", 37, ">=", 37))
        rows.append(
            row(f"{name}: operators", "count", len(written.operators), "litert-torch, 2026-11-20", 361, "<=", 361)
        )
    return rows


def row(
    name: str, metric: str, ours: float, peer_name: str, peer: float | None, sign: str, target: float | None,
    spread: str = "",
) -> dict[str, Any]:  # fmt: skip
    met = None if target is None else bool(ours <= target if sign == "<=" else ours >= target)
    return {
        "name": name,
        "metric": metric,
        "ours": float(f"{ours:.4g}") if ours < 1000 else ours,
        "peer_name": peer_name,
        "peer": None if peer is None else float(f"{peer:.4g}") if peer < 1000 else peer,
        "ratio": round(ours / peer, 3) if peer else None,
        "target": None if target is None else f"{sign} {target:g}",
        "met": met,
        "spread": spread,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a minute at the most")
    parser.add_argument("--minilm", type=Path, help="all-MiniLM-L6-v2 as ONNX, of a fixed length")
    arguments = parser.parse_args()
    rounds = 8 if arguments.quick else 40
    rng = np.random.default_rng(0)
    models: dict[str, tuple[bytes, dict[str, Any]]] = {
        "digits CNN": (DIGITS.read_bytes(), {"image": rng.random((8, 1, 8, 8), np.float32)}),
        "MLP": (zoo.mlp(), {"x": rng.normal(size=(8, 64)).astype(np.float32)}),
        "MobileNetV2": (mobilenet_v2(), {"image": rng.normal(size=(1, 3, 224, 224)).astype(np.float32)}),
        "LSTM": (recurrent("LSTM", 4), {"x": rng.normal(size=(24, 1, 16)).astype(np.float32)}),
        "GRU": (recurrent("GRU", 3), {"x": rng.normal(size=(24, 1, 16)).astype(np.float32)}),
    }
    if arguments.minilm:
        data = arguments.minilm.read_bytes()
        length = onnx.load_from_string(data).graph.input[0].type.tensor_type.shape.dim[1].dim_value
        ids = rng.integers(1000, 20000, (1, length))
        models["MiniLM"] = (
            data,
            {"input_ids": ids, "attention_mask": (np.arange(length) < length // 2).astype(int)[None]},
        )
    rows = [one for name, (model, feeds) in models.items() for one in measured(name, model, feeds, rounds)]
    packages = ("edge-infer-converters", "onnx", "onnxruntime", "ai-edge-litert", "numpy")
    versions = {name: version(name) for name in packages} | {"python": platform.python_version()}
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.is_file() else []
    result = {"versions": versions, "cpu": names[0].partition(":")[2].strip() if names else "", "rows": rows}
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['cpu']}, {', '.join(f'{name} {number}' for name, number in versions.items())}")
    for one in rows:
        met = {True: "yes", False: "NO", None: "-"}[one["met"]]
        print(
            f"{one['name']:<26}{one['ours']:>12} {one['metric']:<18}{one['peer'] or '-':>12} {one['peer_name']:<28}"
            f"{one['target'] or '-':>10}  {met:<4}{one['spread']}"
        )


if __name__ == "__main__":
    main()
