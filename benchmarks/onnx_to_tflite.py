"""ONNX files as TFLite in float: how many, how near, how large and how fast, beside onnx2tf on the same inputs.

    python benchmarks/onnx_to_tflite.py FOLDER [--peer onnx2tf=PYTHON] [--made NAME=FOLDER] [--only NAME]... [--json]

FOLDER holds `.onnx` files; peers get copies of them, as onnx2tf rewrites its input in place. A peer is named with the
Python of an environment of its own; `--made` judges the NAME.tflite that a peer wrote before. Ours is what `edge-infer
convert --format tflite --precision fp32` makes. Both sides are judged by the least SQNR of an output against the source
on ONNX Runtime, on one drawn call; each judge is a process of its own, which a file may end. Speed is time of the
processor by the peer's, one thread of LiteRT, the median of rounds in turn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

_LIMIT_S = 300
_LEAST_DB = 90.0
_MOST_DB = 150.0
_ROUNDS = 9
_ROUND_S = 0.05


def ours(model: Path, folder: Path) -> Path | str:
    """Convert a model as a user does; returns the file, or why there is none."""
    target = folder / "ours.bundle"
    command = [sys.executable, "-m", "edge_infer", "convert", str(model), "-o", str(target), "--format", "tflite"]
    command += ["--precision", "fp32", "--no-cache", "--keep-all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    found = sorted(target.glob("tflite/*.tflite"))
    said = [line for line in done.stderr.splitlines() if line.lower().startswith(("error", "warning"))]
    return found[0] if found else (said or ["not written"])[-1][:90]


def peers(python: str, model: Path, folder: Path) -> Path | str:
    """Let onnx2tf convert a copy of a model; returns the file, or why there is none."""
    place = folder / "peer"
    place.mkdir()
    copy = Path(shutil.copy(model, place))
    try:
        subprocess.run(
            [python, "-m", "onnx2tf", "-i", copy.name, "-o", "made", "-n"],
            capture_output=True,
            check=True,
            timeout=_LIMIT_S,
            cwd=place,
        )
    except subprocess.TimeoutExpired:
        return f"not written in {_LIMIT_S} s"
    except (subprocess.SubprocessError, OSError):
        return "not written"
    found = sorted(place.glob("made/*_float32.tflite"))
    return found[0] if found else "not written"


def _reordered(given: np.ndarray, shape: list[int]) -> np.ndarray:
    """Return an array in the order of axes that a shape asks for, that of channels last before others; -1 is free."""

    def fits(sizes: list[int]) -> bool:
        return all(wanted in (-1, size) for wanted, size in zip(shape, sizes, strict=True))

    if given.ndim != len(shape) or fits([*given.shape]):
        return given
    orders = [(0, *range(2, given.ndim), 1), *permutations(range(given.ndim))]
    return next((given.transpose(order) for order in orders if fits([given.shape[i] for i in order])), given)


class _Side:
    """A TFLite file with one call set in it."""

    def __init__(self, made: Path, call: dict[str, np.ndarray]) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._engine = Interpreter(str(made), num_threads=1)
        given = dict(call)
        places = self._engine.get_input_details()
        for i, one in enumerate(places):
            name = next((name for name in given if name in (one["name"], one["name"].split(":")[0])), None)
            plain = next((name for name in given if f"_{name}:" in one["name"]), None)
            array = call[name or plain or list(call)[i]]
            array = _reordered(array, [int(size) for size in one["shape_signature"]])
            if [*array.shape] != [*one["shape"]]:
                self._engine.resize_tensor_input(one["index"], array.shape)
            places[i]["value"] = array.astype(one["dtype"])
        self._engine.allocate_tensors()
        for one in places:
            self._engine.set_tensor(one["index"], one["value"])
        self.operators = len(self._engine._get_ops_details())

    def run(self) -> list[np.ndarray]:
        """Run the call once."""
        self._engine.invoke()
        return [self._engine.get_tensor(one["index"]) for one in self._engine.get_output_details()]


def _source(model: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    from edge_infer_converters.data.random_inputs import random_set_that_runs
    from edge_infer_converters.sources.factory import open_source

    source = open_source(str(model))
    call = random_set_that_runs(source.inputs, source.reference().run).calls[0]
    return call, source.reference().run(call)


def judge(model: Path, made: list[Path]) -> list[dict[str, Any]]:
    """Run files beside their source, and one another; returns bytes, operators, decibels, and times by the first's."""
    call, wanted = _source(model)
    sides = [_Side(path, call) for path in made]
    found = []
    for path, side in zip(made, sides, strict=True):
        outputs, figures = side.run(), []
        for name, value in wanted.items():
            same = [one for one in outputs if one.size == value.size]
            candidates = [_sqnr(value, _reordered(one, [*value.shape])) for one in same]
            figures.append((max(candidates, default=-_MOST_DB), name))
        worst = min(figures)
        found.append(
            {"bytes": path.stat().st_size, "operators": side.operators, "db": round(worst[0], 1), "output": worst[1]}
        )
    if len(sides) > 1:
        ratios = []
        start = time.process_time()
        sides[0].run()
        count = max(1, int(_ROUND_S / max(time.process_time() - start, 1e-6)))
        for _ in range(_ROUNDS):
            times = []
            for side in sides:
                start = time.process_time()
                for _ in range(count):
                    side.run()
                times.append(time.process_time() - start)
            ratios.append(times[0] / times[1])
        found[0]["speed"] = round(statistics.median(ratios), 3)
        found[0]["spread"] = [round(one, 3) for one in statistics.quantiles(ratios, n=4)[::2]]
    return found


def _sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    if got.shape != wanted.shape:
        got = got.reshape(wanted.shape)
    if wanted.dtype.kind not in "f":
        return _MOST_DB if (got == wanted).all() else 0.0
    error = np.square(wanted.astype(np.float64) - got).sum()
    signal = np.square(wanted.astype(np.float64)).sum()
    return _MOST_DB if not error else float(min(10 * np.log10(max(signal, 1e-300) / error), _MOST_DB))


def _judged(model: Path, made: list[Path]) -> list[dict[str, Any]] | str:
    command = [sys.executable, __file__, "--judge", str(model), *map(str, made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"does not run in {_LIMIT_S} s"
    if done.returncode:
        return f"does not run: {(done.stderr.strip().splitlines() or ['-'])[-1][:80]}"
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def measure(model: Path, python: str | None, written: Path | None) -> dict[str, Any]:
    """Convert a model by both, and judge what they made."""
    row: dict[str, Any] = {"model": model.stem}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files: dict[str, Path | str] = {"ours": ours(model, folder)}
        if python:
            files["peer"] = peers(python, model, folder)
        elif written:
            path = written / f"{model.stem}.tflite"
            files["peer"] = path if path.is_file() else "not written"
        for side, made in files.items():
            answer = made if isinstance(made, str) else _judged(model, [made])
            row[side] = answer if isinstance(answer, str) else answer[0]
        both = [made for side, made in files.items() if isinstance(row[side], dict) and isinstance(made, Path)]
        if len(both) == len(files) > 1 and not isinstance(answers := _judged(model, both), str):
            row["speed"], row["spread"] = answers[0]["speed"], answers[0]["spread"]
    return row


def rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn the figures into rows of a table: a line for each model, and those over all."""

    def near(row: dict[str, Any], side: str) -> bool:
        return isinstance(row.get(side), dict) and row[side]["db"] >= _LEAST_DB

    rows: list[dict[str, Any]] = [{"name": one["model"], "metric": "file", **one} for one in found]
    counts = [sum(near(one, side) for one in found) for side in ("ours", "peer")]
    rows.append({"name": "all", "metric": f"files at {_LEAST_DB:g} dB", "ours": counts[0], "peer": counts[1]})
    rows[-1]["met"] = counts[0] >= counts[1]
    both = [one for one in found if isinstance(one.get("ours"), dict) and isinstance(one.get("peer"), dict)]
    if both:
        largest = max(one["ours"]["bytes"] / one["peer"]["bytes"] for one in both)
        rows.append({"name": "all", "metric": "bytes by the peer's, largest", "ours": largest, "met": largest < 1})
    if speeds := [one["speed"] for one in both if "speed" in one]:
        middle = statistics.median(speeds)
        rows.append({"name": "all", "metric": "time by the peer's, median", "ours": middle, "met": middle < 1})
    return rows


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--judge"]:
        model, *made = map(Path, sys.argv[2:])
        print(json.dumps(judge(model, made)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", metavar="onnx2tf=PYTHON")
    parser.add_argument("--made", type=Path, metavar="FOLDER", help="files that the peer wrote before")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    python = given.peer.partition("=")[2] if given.peer else None
    found = []
    for model in sorted(given.folder.glob("*.onnx")):
        if not given.only or model.stem in given.only:
            found.append(measure(model, python, given.made))
            print(json.dumps(found[-1]), file=sys.stderr)
    publish(rows_of(found), ("edge-infer", "onnxruntime", "ai-edge-litert"), as_json=given.json)


if __name__ == "__main__":
    main()
