"""The examples run as a reader runs them, and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
    assert list(rows) == [
        *("onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32", "tflite/fp16", "tflite/int8"),
        *("compiled/fp32", "compiled/int8"),
    ]
    for id_, share, accuracy, decibels in [
        ("onnx/fp32", 101, 99.0, 100),
        ("onnx/fp16", 52, 99.0, 60),
        ("onnx/int8", 32, 98.5, 30),
        ("tflite/fp32", 102, 99.0, 100),
        ("tflite/fp16", 54, 99.0, 60),
        ("tflite/int8", 32, 98.5, 30),
        ("compiled/fp32", 104, 99.0, 100),
        ("compiled/int8", 32, 98.5, 30),
    ]:
        found = re.search(r"(\d+)% +([\d.]+)% +(\d+) dB", rows[id_])
        assert found is not None, rows[id_]
        assert int(found[1]) <= share
        assert float(found[2]) >= accuracy
        assert int(found[3]) >= decibels
