"""Static int8 of published nets beside Olive, Intel's Neural Compressor and litert-quantizer, with the same samples.

    python benchmarks/int8_peers.py [FOLDER] [--only NAME]... [--format FORMAT] [--quick] [--json]

FOLDER holds the nets of `int8_peers_nets.py`; without it `EDGE_INFER_ZOO` names one. The peers are installed once, into
`.bench/int8_peers` (5 GB, most of it Olive's torch), each in an environment of its own.

All sides start from the same float ONNX file (nets in TFLite are written as ONNX by us first), and litert-quantizer
from our float TFLite file of it, as it reads nothing else. All calibrate on the same photographs, with their makers'
defaults; Olive also by channel, the Neural Compressor also as QDQ. Held-out photographs compare: the mean over the
outputs of the signal-to-noise ratio against the float file, on ONNX Runtime in precise mode or LiteRT. A row names the
peer with the best file of that format; the rows after the nets count them. Time is the processor's, with us of whole
processes; of a peer, which converts all nets in one, of its conversions alone, and with its start for each net.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from int8_peers_nets import NETS, Net, samples
from table import publish

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".bench/int8_peers"
SIDE = Path(__file__).with_name("int8_peers_side.py")
#: What each environment holds. The Neural Compressor has no ONNX since 3.0; 2.6 needs packages of its time.
INSTALLS = {
    "olive": ("olive-ai==0.13.0", "onnxruntime==1.31.1", "requests", "tabulate"),
    "inc": (
        *("neural-compressor==2.6", "onnx==1.16.2", "onnxruntime==1.19.2", "numpy<2", "setuptools<81"),
        *("six", "deprecated", "schema", "psutil", "pyyaml"),
    ),
    "litert": ("litert-quantizer==0.11.0", "ai-edge-quantizer==0.10.0", "ai-edge-litert==2.3.0"),
    "photographs": ("scikit-image==0.26.0", "--no-deps"),
}
PEERS = {
    "onnx": {"Olive": "olive", "Olive by channel": "olive", "INC": "inc", "INC as QDQ": "inc"},
    "tflite": {"litert-quantizer": "litert", "ai-edge-quantizer": "litert"},
}
_LIMIT_S = 300
# Its runs send no telemetry.
_ENV = {**os.environ, "OLIVE_DISABLE_TELEMETRY": "1"}
_QUICK = ("superres", "resnet8_f32")
# Files of the same weights differ by names and biases.
_EQUAL = 1.02


class Made(NamedTuple):
    """A file that one side made.

    Attributes:
        file: Where it is.
        seconds: Those of the processor: of our whole process, or of a peer's conversion alone.
        start: Those of a peer's process until its first conversion began.
    """

    file: Path
    seconds: float
    start: float = 0.0


class Job(NamedTuple):
    """A conversion by a peer: of a net, to a format, from a float file, with samples."""

    peer: str
    net: str
    format: str
    source: Path
    calibration: Path


def install(name: str) -> Path:
    """Return the Python of an environment of `INSTALLS`, made where it is not there yet."""
    place = PLACE / name
    if not (place / "done").is_file():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--clear", "--quiet", "--python", sys.executable, place], check=True)
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", place, *INSTALLS[name]], check=True)
        (place / "done").touch()
    return place / "bin/python"


def ours(source: Path, folder: Path, format_: str, precision: str, calibration: Path | None) -> Made:
    """Convert as a user does."""
    target = folder / f"{source.stem}-{format_}-{precision}.bundle"
    command: list[str | Path] = [sys.executable, "-m", "edge_infer", "convert", source, "-o", target, "--keep-all"]
    command += ["--no-cache", "--format", format_, "--precision", precision]
    command += ["--calibration", calibration] if calibration else []
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise SystemExit(f"convert {source.name}:\n{said.read().decode()}")
    (file,) = (target / one["file"] for one in json.loads((target / "manifest.json").read_text())["variants"])
    return Made(file, usage.ru_utime + usage.ru_stime)


def theirs(jobs: list[Job], folder: Path) -> dict[tuple[str, str, str], Made | str]:
    """Let the peers convert, those of an environment in one process; what failed is a text."""
    found: dict[tuple[str, str, str], Made | str] = {}
    for environment in dict.fromkeys(PEERS[job.format][job.peer] for job in jobs):
        mine = {
            str(folder / f"{environment}-{number}.{job.format}"): job
            for number, job in enumerate(jobs)
            if PEERS[job.format][job.peer] == environment
        }
        asked = [[job.peer, str(job.source), target, str(job.calibration)] for target, job in mine.items()]
        results = folder / f"{environment}.jsonl"
        with (folder / f"{environment}.log").open("w") as log:
            command = ["timeout", str(_LIMIT_S * len(mine)), install(environment), SIDE, results]
            subprocess.run(
                command, input=json.dumps(asked).encode(), stdout=log, stderr=log, check=False, cwd=folder, env=_ENV
            )
        lines = results.read_text().splitlines() if results.is_file() else []
        for target, seconds, start, error in map(json.loads, lines):
            job = mine.pop(target)
            found[job.peer, job.net, job.format] = error or Made(Path(target), seconds, start)
        for job in mine.values():
            found[job.peer, job.net, job.format] = "the process ended before"
    return found


def outputs(model: Path, given: np.ndarray, name: str) -> list[np.ndarray]:
    """Run a model on samples one by one; return each output, all samples together."""
    if model.suffix == ".tflite":
        engine = Interpreter(str(model), num_threads=1)
        engine.allocate_tensors()
        (place,), results = engine.get_input_details(), []
        for one in given:
            engine.set_tensor(place["index"], _codes(one[None], place))
            engine.invoke()
            results.append([_floats(engine.get_tensor(to["index"]), to) for to in engine.get_output_details()])
        return [np.concatenate(one) for one in zip(*results, strict=True)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = sorted(one.name for one in session.get_outputs())
    found = [session.run(names, {name: one[None]}) for one in given]
    return [np.concatenate(one) for one in zip(*found, strict=True)]


def _codes(values: np.ndarray, place: dict[str, Any]) -> np.ndarray:
    """Quantize what a file takes as integers."""
    if place["dtype"] == np.float32:
        return values
    scale, zero = place["quantization"]
    limits = np.iinfo(place["dtype"])
    return np.clip(np.rint(values / scale) + zero, limits.min, limits.max).astype(place["dtype"])


def _floats(values: np.ndarray, place: dict[str, Any]) -> np.ndarray:
    """Return what integers that a file gives stand for."""
    scale, zero = place["quantization"]
    return values if values.dtype == np.float32 else (values.astype(np.float32) - zero) * np.float32(scale)


def decibels(wanted: list[np.ndarray], got: list[np.ndarray]) -> tuple[float, float]:
    """Return the mean and the least SQNR of the outputs."""
    figures = []
    for one, other in zip(wanted, got, strict=True):
        error = np.square(one.astype(np.float64) - other).sum()
        figures.append(10 * np.log10(np.square(one.astype(np.float64)).sum() / max(error, 1e-30)))
    return float(np.mean(figures)), float(min(figures))


def measure(nets: list[Net], formats: list[str], zoo: Path, photographs: Path, folder: Path) -> list[dict[str, Any]]:
    """Convert nets by all sides; return a row for each net and format."""
    jobs, made, held_out = [], {}, {}
    for net in nets:
        name = Path(net.file).stem
        calibrating, comparing = samples(net, photographs)
        calibration = folder / f"{name}.npz"
        np.savez(calibration, allow_pickle=False, **{net.input: calibrating})
        source = zoo / net.file
        if source.suffix == ".tflite":
            source = ours(source, folder, "onnx", "fp32", None).file.rename(folder / f"{name}.onnx")
        for format_ in formats:
            base = source if format_ == "onnx" else ours(source, folder, "tflite", "fp32", None).file
            made[name, format_] = ours(source, folder, format_, "int8", calibration)
            held_out[name, format_] = (comparing, net.input, outputs(base, comparing, net.input))
            jobs += [Job(peer, name, format_, base, calibration) for peer in PEERS[format_]]
            print(f"{name}: {format_} by us", file=sys.stderr)
    by_peers = theirs(jobs, folder)
    rows = []
    for (name, format_), mine in made.items():
        sides = {peer: by_peers[peer, name, format_] for peer in PEERS[format_]}
        rows.append(
            _row(
                name,
                format_,
                {side: _judged(one, *held_out[name, format_]) for side, one in {"ours": mine, **sides}.items()},
            )
        )
        print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def _judged(made: Made | str, comparing: np.ndarray, name: str, reference: list[np.ndarray]) -> dict[str, Any] | str:
    if isinstance(made, str):
        return made
    try:
        mean, least = decibels(reference, outputs(made.file, comparing, name))
    except Exception as error:  # whatever a file makes an engine raise
        return f"does not run: {type(error).__name__}: {error}"[:120]
    return {"db": mean, "least": least, "kB": made.file.stat().st_size / 1000, "s": made.seconds, "start": made.start}


def _row(name: str, format_: str, sides: dict[str, dict[str, Any] | str]) -> dict[str, Any]:
    worked = {side: one for side, one in sides.items() if isinstance(one, dict)}
    mine = worked.pop("ours")
    best = max(worked, key=lambda side: worked[side]["db"], default="none worked")
    theirs = worked.get(best)
    return {
        "name": f"{name}, {format_}",
        "metric": "SQNR dB, mean of outputs",
        "ours": mine["db"],
        "peer_name": best,
        "peer": theirs and theirs["db"],
        "target": "better, not larger",
        "met": theirs is None or (mine["kB"] <= _EQUAL * theirs["kB"] and mine["db"] > theirs["db"]),
        "least": f"{mine['least']:.1f} / {theirs['least']:.1f}" if theirs else f"{mine['least']:.1f}",
        "kB": f"{mine['kB']:.1f} / {theirs['kB']:.1f}" if theirs else f"{mine['kB']:.1f}",
        "sides": sides,
    }


def totals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count over the nets, and compare the time of each peer on what it converts."""
    found: list[dict[str, Any]] = []
    for format_, peers in PEERS.items():
        mine = [row for row in rows if row["name"].endswith(f", {format_}")]
        if not mine:
            continue
        count, least = sum(row["met"] for row in mine), len(mine) * 5 / 6
        row = {"name": f"all, {format_}", "metric": f"better of {len(mine)}", "ours": count, "peer_name": "the best"}
        found.append(row | {"target": round(least, 1), "met": count >= least})
        for peer in peers:
            both = [row["sides"] for row in mine if isinstance(row["sides"][peer], dict)]
            if not both:
                continue
            own, alone = (sum(one[side]["s"] for one in both) for side in ("ours", peer))
            whole = alone + sum(one[peer]["start"] for one in both)
            for metric, other in (("CPU s by its conversions alone", alone), ("CPU s by a process for each", whole)):
                row = {"name": f"{len(both)} nets, {format_}", "metric": metric, "ours": own, "peer_name": peer}
                found.append(row | {"peer": other, "ratio": own / other, "target": 0.5, "met": own <= other / 2})
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=os.environ.get("EDGE_INFER_ZOO"))
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--format", action="append", choices=list(PEERS), help="default: each")
    parser.add_argument("--quick", action="store_true", help="two nets")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    if given.folder is None:
        parser.error("name a folder of models, or set EDGE_INFER_ZOO")
    wanted = given.only or (_QUICK if given.quick else [Path(net.file).stem for net in NETS])
    photographs = next((install("photographs").parents[1] / "lib").glob("python*/site-packages/skimage/data"))
    nets = [net for net in NETS if Path(net.file).stem in wanted]
    with tempfile.TemporaryDirectory() as name:
        rows = measure(nets, given.format or list(PEERS), Path(given.folder).resolve(), photographs, Path(name))
    rows += totals(rows)
    if not given.json:
        rows = [{key: value for key, value in row.items() if key != "sides"} for row in rows]
    publish(rows, ("edge-infer-converters", "onnxruntime", "ai-edge-litert", "numpy"), as_json=given.json)


if __name__ == "__main__":
    main()
