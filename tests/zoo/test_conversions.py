"""Conversions of real models: the same bytes each time, and TFLite files that both readers open."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support import limited, real_models

ROOT = Path(__file__).parents[2]
ZOO = real_models.folder()
SIX = (
    "cnn_mnist_pytorch.onnx",
    "dtln_1.onnx",
    "magika_v3_3.onnx",
    "ad01_f32.tflite",
    "kws_int8.tflite",
    "vww_f32.tflite",
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models"),
]


def converted(path: Path, bundle: Path) -> dict[str, str]:
    """Convert a model; return the digest of each file of the bundle but `quality.json`, which holds timings."""
    command = (*real_models.EDGE_INFER, "convert", os.fspath(path), "-o", os.fspath(bundle), "--no-cache")
    done = limited.run(command, seconds=300)
    assert done.code == 0, done.err
    files = (file for file in bundle.rglob("*") if file.is_file() and file.name != "quality.json")
    return {str(file.relative_to(bundle)): sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("name", SIX)
def test_a_conversion_gives_the_same_bytes_each_time(name: str, tmp_path: Path) -> None:
    assert ZOO is not None
    first = converted(ZOO / name, tmp_path / "first")

    with limited.load_on_all():  # a process of its own, with another seed of hashes, and another course of threads
        assert converted(ZOO / name, tmp_path / "second") == first


def test_both_readers_open_every_tflite_file() -> None:
    assert ZOO is not None
    files = [os.fspath(path) for path in real_models.paths(ZOO) if path.suffix == ".tflite"]
    script = ROOT / "benchmarks/zoo_tflite.mjs"

    done = subprocess.run(["node", script, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for file in files:
        told = limited.run((*real_models.EDGE_INFER, "info", file), seconds=30)
        assert told.code == 0, told.err
