"""Tables: a million rows of Parquet through boosted trees against their own libraries, memory, agreement, drift.

    python benchmarks/tables.py [--quick] [--json] [--memory]

One thread each. Times are of the processor, interleaved, medians: other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from table import publish

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = [f"feature_{i}" for i in range(20)]
TRAINING = 20_000


def data(rows: int, seed: int) -> pd.DataFrame:
    """Make rows: 20 columns of float32."""
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(rows, 20)).astype("f4"), columns=NAMES)


def classes(rows: pd.DataFrame) -> np.ndarray:
    """Return the class of each row."""
    made: np.ndarray = ((rows.feature_0 * rows.feature_1 + rows.feature_2 > 0).to_numpy()).astype(int)
    return made


def light() -> Any:
    """Return 100 boosted trees of LightGBM."""
    import lightgbm

    rows = data(TRAINING, 0)
    return lightgbm.LGBMClassifier(n_estimators=100, num_leaves=31, n_jobs=1, verbose=-1).fit(rows, classes(rows))


def extreme() -> Any:
    """Return 100 boosted trees of XGBoost."""
    import xgboost

    rows = data(TRAINING, 0)
    return xgboost.XGBClassifier(n_estimators=100, max_leaves=31, n_jobs=1).fit(rows, classes(rows))


def histogram() -> Any:
    """Return 100 boosted trees of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows = data(TRAINING, 0)
    return HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=31, early_stopping=False).fit(
        rows, classes(rows)
    )


def seconds(call: Callable[[], object]) -> float:
    """Return the processor's seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def row(
    name: str, metric: str, ours: float, peer: str, theirs: float, target: float, spread: str = ""
) -> dict[str, Any]:
    """Return a line of the table; more is better."""
    ratio = ours / theirs
    return {
        "name": name,
        "metric": metric,
        "ours": round(ours),
        "peer_name": peer,
        "peer": round(theirs),
        "ratio": round(ratio, 3),
        "target": f">= {target}",
        "met": ratio >= target,
        "spread": spread,
    }


def bundle(folder: Path, name: str) -> Path:
    """Convert an estimator of this file."""
    from edge_infer_converters import convert

    sys.path.insert(0, str(Path(__file__).parent))
    path = folder / f"{name}.bundle"
    if not path.exists():
        convert(f"tables:{name}", path, precision="fp32", format="onnx", goldens=1)
    return path


def speed(folder: Path, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Compare the rows a second from a file of Parquet."""
    import edge_infer

    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pandas(data(rows, 1), preserve_index=False), path, row_group_size=100_000)
    own, peers = bundle(folder, "light"), {"lightgbm on pandas": light(), "scikit-learn on pandas": histogram()}
    with edge_infer.pipeline(own, threads=1) as pipeline:

        def ours() -> None:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(65_536, use_threads=False):
                    pipeline.predict_table(batch)

        def theirs(model: Any) -> None:
            model.predict_proba(pd.read_parquet(path, use_threads=False))

        times: dict[str, list[float]] = {"ours": [], **{name: [] for name in peers}}
        for _ in range(rounds):
            times["ours"].append(seconds(ours))
            for name, model in peers.items():
                times[name].append(seconds(partial(theirs, model)))
    speeds = {name: rows / median(found) for name, found in times.items()}
    spread = f"{rows / max(times['ours']):.0f} to {rows / min(times['ours']):.0f}"
    targets = {"lightgbm on pandas": 1.2, "scikit-learn on pandas": 1.7}
    label = f"{rows:,} x 20 rows of Parquet, 100 trees"
    return [row(label, "rows/s", speeds["ours"], name, speeds[name], least, spread) for name, least in targets.items()]


def agreement(folder: Path, rows: int) -> list[dict[str, Any]]:
    """Count the rows whose probability differs from the library's by more than 1e-4."""
    import edge_infer

    found = []
    for name, made in {"light": light, "extreme": extreme, "histogram": histogram}.items():
        model, off, worst = made(), 0, 0.0
        with edge_infer.pipeline(bundle(folder, name), threads=1) as pipeline:
            for start in range(0, rows, 100_000):
                part = data(min(100_000, rows - start), 100 + start)
                ours = pipeline.predict_table(part, scores=True)["score_1"].to_numpy()
                error = np.abs(ours - model.predict_proba(part)[:, 1])
                off += int((error > 1e-4).sum())
                worst = max(worst, float(error.max()))
        library = {"light": "LightGBM", "extreme": "XGBoost", "histogram": "HistGradientBoosting"}[name]
        found.append(
            {
                "name": f"{library}, {rows:,} rows",
                "metric": "rows off by > 1e-4",
                "ours": off,
                "peer_name": library,
                "target": "0",
                "met": off == 0,
                "spread": f"largest {worst:.1e}",
            }
        )
    return found


def drift(trials: int) -> list[dict[str, Any]]:
    """Count false alarms, and how often a shift of .2 deviations is seen."""
    from edge_infer.monitor.counters import Counters
    from edge_infer.monitor.decision import decide
    from edge_infer.monitor.making import make_reference
    from edge_infer.monitor.reference import read_reference
    from edge_infer.tensors.tensor import TensorSpec

    chance = np.random.default_rng(5)
    usual = chance.lognormal(size=(50_000, 1)).astype("f4")
    known = read_reference(make_reference([({"x": usual}, {})], [TensorSpec("x", "float32", ["batch", 1])], []))

    def seen(rows: int, shift: float) -> tuple[float, float]:
        ours = rule = 0
        for _ in range(trials):
            counters = Counters(known)
            counters.observe({"x": chance.lognormal(shift, size=(rows, 1)).astype("f4")}, {})
            ours += decide(counters, least_rows=0).word == "drift"
            share = (np.array(counters.counts["x 1"][:20]) + 0.5) / (rows + 10)
            rule += float(((share - 0.05) * np.log(share / 0.05)).sum()) > 0.1
        return 100 * ours / trials, 100 * rule / trials

    found = []
    for rows, shift, target in ((200, 0, 0.5), (500, 0, 0.5), (1000, 0, 0.5), (5000, 0, 0.5), (1000, 0.2, 90)):
        ours, rule = seen(rows, shift)
        found.append(
            {
                "name": f"drift, n = {rows}, {'no shift' if not shift else 'shift of .2 sd'}",
                "metric": "% of alarms",
                "ours": ours,
                "peer_name": "PSI > .1",
                "peer": rule,
                "target": f"{'>=' if shift else '<='} {target}",
                "met": ours >= target if shift else ours <= target,
                "spread": f"{trials} trials",
            }
        )
    return found


def memory(folder: Path, rows: int) -> dict[str, Any]:
    """Measure the memory of a command over many rows, in a process of its own."""
    path = folder / "many.parquet"
    with pq.ParquetWriter(path, pa.Table.from_pandas(data(1, 0), preserve_index=False).schema) as file:
        for start in range(0, rows, 200_000):
            file.write_table(pa.Table.from_pandas(data(min(200_000, rows - start), start), preserve_index=False))
    command = [sys.executable, "-m", "edge_infer", "predict", str(bundle(folder, "light")), str(path)]
    command += ["-o", str(folder / "out.parquet"), "--threads", "1"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)  # of this child alone
    if status:
        raise SystemExit(f"edge-infer predict ended with {status}")
    most = usage.ru_maxrss / 1000
    return {
        "name": f"{rows:,} x 20 rows, edge-infer predict",
        "metric": "MB at most",
        "ours": round(most),
        "peer_name": "-",
        "target": "<= 300",
        "met": most <= 300,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", action="store_true", help="only the memory of many rows")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not asked.memory:
            rows += speed(folder, 100_000 if asked.quick else 1_000_000, 2 if asked.quick else 5)
            rows += drift(100 if asked.quick else 2000)
            rows += agreement(folder, 50_000 if asked.quick else 1_000_000)
        rows.append(memory(folder, 300_000 if asked.quick else 10_000_000))
    packages = ("edge-infer", "onnxruntime", "lightgbm", "xgboost-cpu", "scikit-learn", "pyarrow", "pandas", "numpy")
    publish(rows, packages, as_json=asked.json)


if __name__ == "__main__":
    main()
