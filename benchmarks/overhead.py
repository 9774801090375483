"""What edge-infer adds to onnxruntime: `Session.run` and `prepare()` against a raw `run` with a dict.

Both sides run the same file in the same process, in turn: A B A B ..., one round a median of many calls. The ratio of
each round is taken, so that a machine whose speed drifts does not matter.

    python benchmarks/overhead.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

import edge_infer
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples/digits/digits.onnx"


def call_us(function: Callable[[], Any], seconds: float) -> float:
    """Return the median time of a call in microseconds."""
    batch = 20
    samples = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 5:
        start = time.perf_counter()
        for _ in range(batch):
            function()
        samples.append((time.perf_counter() - start) / batch * 1e6)
    return statistics.median(samples)


def interleaved(sides: dict[str, Callable[[], Any]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Time each side in turn, round after round, in microseconds a call."""
    for function in sides.values():
        call_us(function, seconds / 4)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, function in sides.items():
            times[name].append(call_us(function, seconds))
    return times


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


def run_rows(name: str, path: Path, feeds: dict[str, Any], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure one model: `run` and `prepare()` against the raw `run`."""
    raw = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    session = edge_infer.load(path)
    call = session.prepare({name: value.shape for name, value in feeds.items()})
    np.testing.assert_array_equal(call(feeds)[session.outputs[0].name], raw.run(None, feeds)[0])
    times = interleaved(
        {"raw": lambda: raw.run(None, feeds), "run": lambda: session.run(feeds), "prepare": lambda: call(feeds)},
        rounds,
        seconds,
    )
    added = [ours - peer for ours, peer in zip(times["run"], times["raw"], strict=True)]
    ratios = [ours / peer for ours, peer in zip(times["prepare"], times["raw"], strict=True)]
    is_identity = name == "identity"
    return [
        row(f"{name}: run", "added us", times["run"], times["raw"], statistics.median(added), 5.0, spread(added)),
        row(
            f"{name}: prepare",
            "ratio",
            times["prepare"],
            times["raw"],
            statistics.median(ratios),
            0.8 if is_identity else None,
            spread(ratios),
        ),
    ]


def row(
    name: str, metric: str, ours: list[float], peer: list[float], value: float, target: float | None, spread: str
) -> dict[str, Any]:
    return {
        "name": name,
        "metric": metric,
        "ours": round(statistics.median(ours), 3),
        "peer_name": "onnxruntime run(None, dict)",
        "peer": round(statistics.median(peer), 3),
        "ratio": round(statistics.median(ours) / statistics.median(peer), 3),
        "value": round(value, 3),
        "target": target,
        "met": None if target is None else value <= target,
        "spread": spread,
    }


_BARE = "import onnxruntime, numpy; s = onnxruntime.InferenceSession({0!r}, providers=['CPUExecutionProvider']); "
_BARE += "s.run(None, {{'image': numpy.zeros((1, 1, 8, 8), 'f')}})"
_OURS = "import edge_infer; s = edge_infer.load({0!r}, arrays='tensor'); s.run({{'image': bytes(256)}})"


def cpu_ms(code: str) -> float:
    """Run code in a fresh interpreter and return the CPU time that it took, in ms."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # As installed packages are: with their compiled bytecode, whatever this shell says.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def start_row(rounds: int) -> dict[str, Any]:
    """Measure the CPU time from nothing to a first result, against onnxruntime's own."""
    peer, ours = _BARE.format(str(DIGITS)), _OURS.format(str(DIGITS))
    for code in (peer, ours):
        cpu_ms(code)
    pairs = [(cpu_ms(peer), cpu_ms(ours)) for _ in range(rounds)]
    added = [mine - theirs for theirs, mine in pairs]
    result = row(
        "start to first result",
        "added CPU ms",
        [mine for _, mine in pairs],
        [theirs for theirs, _ in pairs],
        statistics.median(added),
        60.0,
        spread(added),
    )
    return result | {"peer_name": "onnxruntime alone"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a minute at the most")
    arguments = parser.parse_args()
    rounds, seconds, starts = (7, 0.2, 9) if arguments.quick else (21, 0.5, 21)

    rows = []
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        identity, mlp = Path(folder) / "identity.onnx", Path(folder) / "mlp.onnx"
        identity.write_bytes(zoo.identity(shape=(1,)))
        mlp.write_bytes(zoo.mlp())
        models: list[tuple[str, Path, dict[str, Any]]] = [
            ("identity", identity, {"x": np.ones(1, np.float32)}),
            ("MLP 64-32-10", mlp, {"x": rng.normal(size=(1, 64)).astype(np.float32)}),
            ("digits CNN", DIGITS, {"image": rng.random((1, 1, 8, 8), np.float32)}),
        ]
        for name, path, feeds in models:
            rows += run_rows(name, path, feeds, rounds, seconds)
    rows.append(start_row(starts))

    publish(rows, ("edge-infer", "onnxruntime", "numpy"), as_json=arguments.json)


if __name__ == "__main__":
    main()
