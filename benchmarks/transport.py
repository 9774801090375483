"""What palettes and pruning save on the wire at equal quality: `onnx/mixed` with and without them, beside int8.

    python benchmarks/transport.py [FOLDER] [--only NAME]... [--quick] [--json]

FOLDER holds `.onnx` files; without it `EDGE_INFER_ZOO` names one. Of each float model: the bytes that brotli 11 (of
files above 4 MB zstd 19) leaves of int8 and of mixed, searched for the same least SQNR, with nothing, with `--transport
palette` and with `--prune 30%`, on 32 drawn inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import brotli
import zstandard

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.errors import EdgeInferError
from edge_infer_converters import convert

QUICK = ("cnn_mnist_pytorch.onnx", "dtln_1.onnx", "yunet_320.onnx")
LEAST_DB = 30.0
_BROTLI_BYTES = 4_000_000
_WAYS: dict[str, dict[str, Any]] = {
    "mixed": {},
    "palette": {"transport": "palette"},
    "pruned": {"prune": "30%"},
}


def on_wire(data: bytes) -> int:
    """Return how many bytes a server sends of a file."""
    if len(data) > _BROTLI_BYTES:
        return len(zstandard.compress(data, 19))
    return len(brotli.compress(data, quality=11))


def measure(model: Path) -> dict[str, Any]:
    """Convert a model in each way; returns the bytes on the wire of each, and the SQNR."""
    row: dict[str, Any] = {"model": model.name, "source": on_wire(model.read_bytes())}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in _WAYS.items():
            words = "fp32,int8,mixed" if name == "mixed" else "fp32,mixed"
            try:
                made = convert(
                    *(model, Path(folder) / f"{name}.bundle"),
                    format="onnx",
                    precision=words,
                    min_sqnr=LEAST_DB,
                    keep_all=True,
                    cache=False,
                    drift=False,
                    **options,
                )
            except EdgeInferError as error:
                row[name] = error.message[:60]
                continue
            for one in made.variants:
                if one.variant.precision == "fp32":
                    continue
                key = "int8" if one.variant.precision == "int8" else name
                row[key] = on_wire((made.path / one.variant.file).read_bytes())
                row[f"{key}_db"] = round(one.quality.parity.sqnr_db, 1)
            row.setdefault(name, made.not_made.get("onnx/mixed", "")[:60])
    return row


def rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn the figures into rows of a table."""
    rows = []
    for one in found:
        base = one.get("mixed")
        for way in ("int8", "palette", "pruned"):
            ours = one.get(way)
            ratio = ours / base if isinstance(ours, int) and isinstance(base, int) else None
            rows.append(
                {
                    "name": f"{one['model']}: {way}",
                    "metric": f"bytes on the wire, {one.get(f'{way}_db', '-')} dB",
                    "ours": ours,
                    "peer_name": f"mixed, {one.get('mixed_db', '-')} dB",
                    "peer": base,
                    "ratio": ratio,
                    "target": "<= 0.9 to be a default",
                    "met": ratio is not None and ratio <= 0.9,
                    "spread": "",
                }
            )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=os.environ.get("EDGE_INFER_ZOO"))
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not given.folder:
        parser.error("name a folder of models, or set EDGE_INFER_ZOO")
    names = given.only or (QUICK if given.quick else [])
    models = [path for path in sorted(Path(given.folder).glob("*.onnx")) if not names or path.name in names]
    found = []
    for model in models:
        start = time.perf_counter()
        found.append(measure(model))
        sys.stderr.write(f"{json.dumps(found[-1])} {time.perf_counter() - start:.0f} s\n")
    publish(rows_of(found), ("onnxruntime", "onnx", "numpy", "brotli", "zstandard"), as_json=given.json)


if __name__ == "__main__":
    main()
