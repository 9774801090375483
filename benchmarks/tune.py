"""What measuring is worth: the variant, engine and threads that `tune` chose against those that the rules choose.

Each model is converted to ONNX and TFLite in fp32 and int8, measured by `edge_infer.tune`, and then both sessions run
in turn: what decides is not what is reported. The last row is what a remembered measurement costs a fresh process.

    python benchmarks/tune.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

import networks
from overhead import call_us
from table import publish

import edge_infer
from edge_infer.tensors.arrays import present
from edge_infer_converters import convert
from edge_infer_converters.recipe import Recipe

DIGITS = Path(__file__).parents[1] / "examples/digits/digits.onnx"
ROUNDS = 7


def models(folder: Path, quick: bool) -> dict[str, Path]:
    """Write the models to measure."""
    found = {"digits": DIGITS}
    made = {"encoder 128x2": networks.encoder(128, 2, 4)}
    if not quick:
        made["MobileNetV2 random"] = networks.mobilenet_v2()
    for name, proto in made.items():
        found[name] = folder / f"{name.split()[0]}.onnx"
        onnx.save(proto, found[name])
    return found


def gain_row(name: str, source: Path, folder: Path, seconds: float) -> dict[str, Any]:
    """Measure one model: the tuned choice against the rules' choice."""
    bundle = folder / f"{source.stem}.bundle"
    convert(source, bundle, recipe=Recipe(precisions=("fp32", "int8")))
    with edge_infer.load(bundle) as session:
        rule = session.report()
    tuning = edge_infer.tune(bundle, max_time_s=seconds)
    feeds = present(edge_infer.Bundle.open(bundle).examples()[0][0], "numpy")
    with (
        edge_infer.load(bundle) as tuned,
        edge_infer.load(bundle, backend=rule.engine, variant=rule.variant, threads=rule.threads or None) as ruled,
    ):
        pairs = [
            (call_us(lambda: tuned.run(feeds), 0.1), call_us(lambda: ruled.run(feeds), 0.1)) for _ in range(ROUNDS)
        ]
    ratios = [mine / theirs for mine, theirs in pairs]
    best = tuning.best
    return {
        "name": name,
        "metric": "us a call",
        "ours": round(statistics.median(mine for mine, _ in pairs), 2),
        "ours_name": f"{best.variant.id} by {best.backend}, {best.threads} thread(s)",
        "peer_name": f"rule: {rule.variant} by {rule.engine}",
        "peer": round(statistics.median(theirs for _, theirs in pairs), 2),
        "ratio": round(statistics.median(ratios), 3),
        "target": 1.05,
        "met": statistics.median(ratios) <= 1.05,
        "spread": f"{min(ratios):.2f} to {max(ratios):.2f}",
    }


def cold_row(bundle: Path, rounds: int) -> dict[str, Any]:
    """Measure the CPU time of a fresh process to its first result, with and without something remembered."""
    import resource

    def cpu_ms(cache: str) -> float:
        code = f"import edge_infer; edge_infer.load({str(bundle)!r}, backend='onnxruntime', arrays='tensor')"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "EDGE_INFER_CACHE": cache})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000

    with tempfile.TemporaryDirectory() as empty:
        full = os.environ["EDGE_INFER_CACHE"]
        pairs = [(cpu_ms(full), cpu_ms(empty)) for _ in range(rounds)]
    added = [mine - theirs for mine, theirs in pairs]
    return {
        "name": "load, with a remembered measurement",
        "metric": "added CPU ms",
        "ours": round(statistics.median(mine for mine, _ in pairs), 1),
        "ours_name": "remembered",
        "peer_name": "nothing remembered",
        "peer": round(statistics.median(theirs for _, theirs in pairs), 1),
        "ratio": round(statistics.median(mine / theirs for mine, theirs in pairs), 3),
        "value": round(statistics.median(added), 1),
        "target": None,
        "met": None,
        "spread": f"{min(added):.0f} to {max(added):.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="at most a minute")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGE_INFER_CACHE"] = str(folder / "cache")
        seconds = 2.0 if arguments.quick else 10.0
        rows = [gain_row(one, path, folder, seconds) for one, path in models(folder, arguments.quick).items()]
        rows.append(cold_row(folder / "digits.bundle", 5 if arguments.quick else 11))
    publish(rows, ("edge-infer", "onnxruntime", "ai-edge-litert", "numpy"), as_json=arguments.json)


if __name__ == "__main__":
    main()
