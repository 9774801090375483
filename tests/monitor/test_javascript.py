"""The page counts what Python counts."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_infer.monitor.counters import Counters
from edge_infer.monitor.making import make_reference
from edge_infer.monitor.reference import read_reference
from edge_infer.tensors.tensor import TensorSpec

PROGRAM = Path(__file__).with_name("count.mjs")
CHANCE = np.random.default_rng(2)
KINDS: dict[str, Any] = {
    "columns": np.concatenate([CHANCE.lognormal(size=(900, 5)), CHANCE.integers(0, 4, (900, 2))], 1).astype("f4"),
    "vector": (CHANCE.normal(size=(900, 20)) @ CHANCE.normal(size=(20, 200))).astype("f4"),
    "image": CHANCE.random((300, 19, 30, 3)).astype("f4"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_counts_the_same(kind: str, tmp_path: Path) -> None:
    rows = KINDS[kind]
    scores = CHANCE.dirichlet([1, 2, 3], len(rows)).astype("f4")
    specs = [TensorSpec("x", "float32", ["n", *rows.shape[1:]])], [TensorSpec("scores", "float32", ["n", 3])]
    data = make_reference([({"x": rows}, {"scores": scores})], *specs, labels=["a", "b", "c"])
    seen = rows[:60].copy()
    seen.reshape(60, -1)[::7, 0] = np.nan
    seen.reshape(60, -1)[3, 1] = 1e30
    runs = [({"x": seen[at : at + 20]}, {"scores": scores[at : at + 20]}) for at in (0, 20, 40)]
    counters = Counters(read_reference(data))
    for run in runs:
        counters.observe(*run)

    def as_json(side: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"shape": one.shape, "data": base64.b64encode(one.tobytes()).decode()} for name, one in side.items()
        }

    (tmp_path / "reference.safetensors").write_bytes(data)
    (tmp_path / "manifest.json").write_text('{"name": "m", "monitor": {"reference": "reference.safetensors"}}')
    (tmp_path / "runs.json").write_text(json.dumps([{"inputs": as_json(a), "outputs": as_json(b)} for a, b in runs]))
    done = subprocess.run(["node", str(PROGRAM), str(tmp_path)], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == counters.to_json()
