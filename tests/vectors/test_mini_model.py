"""`MiniModel(128, 10)`: the same numbers in Python and in JavaScript, and what does not fit is a ValueError."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import edge_infer

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import { MiniModel } from %s;
const { weights, inputs } = JSON.parse(process.argv[1]);
const model = new MiniModel(128, 10);
model.load_weights(weights);
const refused = [() => model.predict([1]), () => model.load_weights([1])];
refused.push(() => new MiniModel(0, 1), () => model.predict(inputs[0].map(() => NaN)));
console.log(JSON.stringify({
  found: inputs.map((one) => [...model.predict(one)]),
  cosine: MiniModel.cosine_similarity(inputs[0], inputs[1]),
  refused: refused.map((work) => { try { work(); return "taken"; } catch ({ code }) { return code; } }),
}));
"""


def test_both_languages_give_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    weights, inputs = rng.normal(size=1290).tolist(), rng.normal(size=(5, 128)).tolist()
    program = _PROGRAM % json.dumps((ROOT / "web/src/vectors/mini-model.js").as_uri())
    command = ["node", "--input-type=module", "-e", program, json.dumps({"weights": weights, "inputs": inputs})]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    there = json.loads(done.stdout)
    model = edge_infer.MiniModel(128, 10)
    model.load_weights(weights)
    assert there["found"] == [model.predict(one) for one in inputs]
    assert there["cosine"] == model.cosine_similarity(inputs[0], inputs[1])
    assert there["refused"] == ["input_error"] * 4
    matrix = np.array(weights[:1280]).reshape(10, 128)
    assert model.predict(np.array(inputs[0], np.float32)) == pytest.approx(
        matrix @ inputs[0] + weights[1280:], rel=1e-5, abs=1e-5
    )


def test_what_does_not_fit_is_a_value_error() -> None:
    model = edge_infer.MiniModel(3, 2)
    model.load_weights([1, 2, 3, 4, 5, 6])
    before = model.predict([1, 1, 1])
    for work in (
        lambda: model.load_weights([1, 2]),
        lambda: model.load_weights([float("nan")] * 6),
        lambda: model.predict([1]),
        lambda: model.predict(["a", "b", "c"]),  # type: ignore[list-item]
        lambda: edge_infer.MiniModel(0, 1),
        lambda: edge_infer.MiniModel(2**20, 2**20),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            work()
    assert model.predict([1, 1, 1]) == before == [6.0, 15.0]
