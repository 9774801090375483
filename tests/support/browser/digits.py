"""The digits bundle that the pages load, and the drawings that are recognised in them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[3] / "examples"


def make_digits_bundle(target: Path, formats: str = "") -> Path:
    """Convert the committed model as `make demo` does; with `formats`, such as `both`, in no other ones."""
    source = EXAMPLES / "digits"
    options = {"--calibration": "calibration.npz", "--eval": "eval.npz", "--labels": "labels.json"}
    files = [part for option, name in options.items() for part in (option, str(source / name))]
    files += ["--format", formats] if formats else []
    command = [sys.executable, "-m", "edge_infer", "convert", str(source / "digits.onnx"), "-o", str(target), *files]
    subprocess.run([*command, "--name", "digits"], check=True, capture_output=True, text=True)
    return target


def digits_app() -> Any:
    """Import `examples/digits_app.py` natively: a fresh module each time."""
    spec = importlib.util.spec_from_file_location("digits_app", EXAMPLES / "digits_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
