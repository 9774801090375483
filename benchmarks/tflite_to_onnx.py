"""TFLite files as ONNX: how many are written, and how near they are, beside other converters on the same inputs.

    python benchmarks/tflite_to_onnx.py FOLDER [--peer tf2onnx=PYTHON] [--made tflite2onnx=FOLDER] [--json]

FOLDER holds `.tflite` files. A peer is named with the Python of an environment of its own, which has it: tf2onnx needs
TensorFlow, which takes a minute to start on a busy machine; `--made` judges the NAME.onnx that a peer wrote before, all
in one process. A file counts as right where ONNX Runtime, with its optimisations, gives every output of LiteRT's plain
kernels as nearly as LiteRT's fast kernels do: floats to 90 dB, of integers 99.9 % within a step, or what those reach.
Batches are one for all, as the peers fix them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.errors import EdgeInferError
from edge_infer_converters.data.random_inputs import random_set_that_runs
from edge_infer_converters.passes.own_zero_points import own_zero_points
from edge_infer_converters.sources.tflite import TFLiteSource, load
from tests.support.converters.engines import near, run_onnx

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    Arrays = Mapping[str, np.ndarray]

_CALLS = 4
_LIMIT_S = 300
_COMMANDS = {
    "tf2onnx": ("-m", "tf2onnx.convert", "--opset", "18", "--tflite", "{model}", "--output", "{made}"),
    "tflite2onnx": (
        "-c",
        "import sys, tflite2onnx; tflite2onnx.convert(sys.argv[1], sys.argv[2])",
        "{model}",
        "{made}",
    ),
}


def _ours(source: TFLiteSource) -> bytes | None:
    found = source.support(("any",), ("onnx",))
    return None if found.onnx is not None else bytes(source.release(("onnx",))[1].SerializeToString())


def _peer(name: str, python: str, model: Path) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.onnx")
        words = [one.format(model=model, made=made) for one in _COMMANDS[name]]
        try:
            subprocess.run([python, *words], capture_output=True, check=True, timeout=_LIMIT_S, cwd=folder)
            return made.read_bytes()
        except (subprocess.SubprocessError, OSError):
            return None


def _run(made: bytes, call: Arrays, wanted: Arrays) -> Arrays:
    """Run a file; peers may rename, put channels first, and share zero points, which the exact mode refuses."""
    model = own_zero_points(onnx.load_from_string(made))
    stored = {one.name for one in model.graph.initializer}
    feeds = {}
    for value, array in zip([one for one in model.graph.input if one.name not in stored], call.values(), strict=True):
        given = call.get(value.name, array)
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        is_first = given.ndim == 4 and sizes[1:] != list(given.shape[1:]) and sizes[1] == given.shape[3]
        feeds[value.name] = given.transpose(0, 3, 1, 2) if is_first else given
    found = run_onnx(model.SerializeToString(), feeds, optimize=True)
    got = {name: found.get(name, value) for name, value in zip(wanted, found.values(), strict=True)}
    return {
        name: value.transpose(0, 2, 3, 1) if value.ndim == 4 and value.shape != wanted[name].shape else value
        for name, value in got.items()
    }


def _verdict(source: TFLiteSource, made: bytes) -> str:
    """Say whether a file is right, near, or not run."""
    plain, usual = source.reference(), source.reference(optimised=True)
    for call in random_set_that_runs(source.inputs, plain.run).calls[:_CALLS]:
        wanted = plain.run(call)
        try:
            got = _run(made, call, wanted)
            found, own = near(wanted, got), near(wanted, usual.run(call))
        except Exception as error:  # ONNX Runtime has classes of its own
            return f"not run: {type(error).__name__}"
        for output, figure in found.items():
            is_float = wanted[output].dtype.kind == "f"
            if figure < (min(90.0, own[output] - 3) if is_float else min(0.999, own[output] - 0.003)):
                return "far"
    return "right"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--made", action="append", default=[], metavar="NAME=FOLDER", help="files of a peer")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    peers = dict(one.split("=", 1) for one in given.peer)
    written = {name: Path(folder) for name, _, folder in (one.partition("=") for one in given.made)}
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("edge-infer", *peers, *written)}
    shares: dict[str, list[float]] = {name: [] for name in counts}
    for model in sorted(given.folder.glob("*.tflite")):
        said = {}
        try:
            source = load(model)
        except EdgeInferError:
            source = None
        for name, tally in counts.items():
            made = None
            if name in peers:
                made = _peer(name, peers[name], model)
            elif name in written:
                place = written[name] / f"{model.stem}.onnx"
                made = place.read_bytes() if place.is_file() else None
            elif source is not None:
                made = _ours(source)
            said[name] = "not written" if made is None else _verdict(source, made) if source else "not judged"
            tally[said[name].partition(":")[0]] += 1
            if made is not None and said[name] == "right":
                shares[name].append(len(made) / model.stat().st_size)
        print(model.name, said, file=sys.stderr)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "metric": "files written and right",
            "ours": tally["right"],
            "of": sum(tally.values()),
            "others": dict(tally),
            "bytes by the source's": round(statistics.median(shares[name]), 3) if shares[name] else None,
        }
        for name, tally in counts.items()
    ]
    best = max((tally["right"] for name, tally in counts.items() if name != "edge-infer"), default=0)
    rows[0] |= {"target": f">= {best}, the better peer's", "met": rows[0]["ours"] >= best}
    publish(rows, ("edge-infer", "onnxruntime", "ai-edge-litert"), as_json=given.json)


if __name__ == "__main__":
    main()
