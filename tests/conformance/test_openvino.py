"""Every case, and `verify`, on OpenVINO's ONNX Runtime: an older engine, and another provider on the CPU."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path

import pytest

from edge_infer_converters import convert
from tests.support.conformance.cases import CASES

ROOT = Path(__file__).parents[2]
#: Made by `tests/setup.sh all`: onnxruntime-openvino and onnxruntime cannot lie in one environment.
PYTHON = ROOT / ".bench/openvino/bin/python"
EXCUSED = {
    "cpu": {},
    "openvino": {
        "int64_extremes": "OpenVINO computes int64 in 32 bits",
        "passing_through": "OpenVINO refuses a graph whose output is an input",
    },
}
_SCRIPT = """
import json, pickle, sys
import edge_infer
from edge_infer.backends.onnxruntime.options import OnnxRuntimeOptions
folder, provider, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = OnnxRuntimeOptions(provider="openvino") if provider == "openvino" else None
found = {}
for i in range(count):
    with open(f"{folder}/{i}.pickle", "rb") as file:
        inputs = pickle.load(file)
    try:
        with edge_infer.load(f"{folder}/{i}.onnx", backend="onnxruntime", arrays="tensor", options=options) as session:
            found[i] = {name: value.tolist() for name, value in session.run(inputs).items()}
    except edge_infer.EdgeInferError as error:
        found[i] = str(error)
with open(f"{folder}/found.pickle", "wb") as file:
    pickle.dump(found, file)
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON.exists(), reason="tests/setup.sh all installs onnxruntime-openvino"),
]


def there(*arguments: str) -> str:
    """Run Python in the environment with OpenVINO, on this tree."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([str(PYTHON), *arguments], capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize("provider", EXCUSED)
def test_openvinos_engine_computes_what_is_right(provider: str, tmp_path: Path) -> None:
    for i, case in enumerate(CASES):
        (tmp_path / f"{i}.onnx").write_bytes(case.model)
        (tmp_path / f"{i}.pickle").write_bytes(pickle.dumps(case.inputs))

    there("-W", "ignore", "-c", _SCRIPT, str(tmp_path), provider, str(len(CASES)))

    found = pickle.loads((tmp_path / "found.pickle").read_bytes())
    wrong = {case.name for i, case in enumerate(CASES) if found[i] != case.expected}
    assert wrong == set(EXCUSED[provider])


def test_verify_agrees_on_openvinos_engine(tmp_path: Path) -> None:
    digits = ROOT / "examples/digits"
    bundle = tmp_path / "digits.bundle"
    convert(digits / "digits.onnx", bundle, calibration=digits / "calibration.npz", format="onnx")

    told = json.loads(there("-m", "edge_infer", "verify", str(bundle), "--json"))

    assert told["passed"]
    assert {row["variant"] for row in told["rows"]} >= {"onnx/fp32", "onnx/int8"}
