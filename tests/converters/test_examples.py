"""The examples run as a reader runs them, and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_converting_and_comparing() -> None:
    lines = run("02_convert_and_compare.py").splitlines()

    assert lines[0].split() == ["variant", "size", "of", "source", "accuracy", "SQNR", "engine"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert list(rows) == ["onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32"]
    for id_, share, accuracy, decibels in [
        ("onnx/fp32", 101, 99.0, 100),
        ("onnx/fp16", 52, 99.0, 60),
        ("onnx/int8", 32, 98.5, 30),
        ("tflite/fp32", 102, 99.0, 100),
    ]:
        found = re.search(r"(\d+)% +([\d.]+)% +(\d+) dB", rows[id_])
        assert found is not None, rows[id_]
        assert int(found[1]) <= share
        assert float(found[2]) >= accuracy
        assert int(found[3]) >= decibels


@pytest.mark.torch
def test_training_and_exporting(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    printed = run("01_train_digits.py", str(tmp_path / "digits"))

    found = re.search(r"accuracy ([\d.]+) on 719 images held out\nwrote digits\.onnx, ([\d.]+) kB \(dynamo", printed)
    assert found is not None, printed
    assert float(found[1]) >= 0.98
    assert float(found[2]) <= 200
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == [
        "calibration.npz", "digits.onnx", "eval.npz", "labels.json",
    ]  # fmt: skip
