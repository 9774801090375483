"""Writes `sampling_vectors.json`, the draws that Python and JavaScript must both make.

    python -m tests.support.generation.sampling_vectors

`logits` of draw `t` of a case: `RandomNumbers(seed + t)`, for each token `x = 2 u - 1`, then `scale * x * x * x`
rounded to float32, or with a `step` above 0 `floor(x * scale / step + 0.5) * step`, which makes ties.
"""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from typing import Any

from edge_infer.generation.exact_math import exp, log
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.random_numbers import RandomNumbers
from edge_infer.generation.sampler import Sampler

PATH = Path(__file__).with_suffix(".json")
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.7, "top_k": 0, "top_p": 0.9, "min_p": 0.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 1.0, "min_p": 0.1},
    {"temperature": 1.5, "top_k": 0, "top_p": 0.5, "min_p": 0.02},
    {"temperature": 0.01, "top_k": 5, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 100.0, "top_k": 0, "top_p": 0.99, "min_p": 0.0},
    {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.0, "min_p": 1.0},
    {"temperature": 0.9, "repetition_penalty": 1.3, "frequency_penalty": 0.7, "presence_penalty": 0.3},
    {"temperature": 0, "repetition_penalty": 1.7},
    {"temperature": 1.1, "presence_penalty": -1.5, "logit_bias": {"3": 4.25, "0": -100, "7": 0.1}},
)
_SHAPES = ((8, 6.0, 0.0), (97, 9.0, 0.5), (300, 12.0, 0.0), (700, 25.0, 0.0))


class Row:
    """The logits of one draw."""

    def __init__(self, seed: int, size: int, scale: float, step: float) -> None:
        uniform = RandomNumbers(seed).uniform
        values = []
        for _ in range(size):
            x = 2.0 * uniform() - 1.0
            values.append(math.floor(x * scale / step + 0.5) * step if step else scale * x * x * x)
        self._logits = memoryview(array("f", values)).cast("B").cast("f")

    def logits(self) -> memoryview[float]:
        return self._logits

    def top(self, count: int) -> list[tuple[int, float]]:
        logits = [float(one) for one in self._logits]
        return sorted(enumerate(logits), key=lambda one: (-one[1], one[0]))[:count]


class Refusing:
    """A grammar that refuses the tokens of a remainder."""

    def __init__(self, divisor: int, size: int) -> None:
        self._divisor, self._size = divisor, size

    def accepts(self, token: int) -> bool:
        return token % self._divisor != 0

    def allowed(self) -> list[int]:
        return [token for token in range(self._size) if self.accepts(token)]

    def advance(self, token: int) -> bool:
        return token < 0


def draws(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the draws of a case: tokens, logarithms of probability, the best."""
    made = case["logits"]
    options = GenerationOptions.of({**case["options"], "seed": case["seed"], "logprobs": 2})
    sampler = Sampler(options, case["prompt"], made["size"])
    grammar = Refusing(case["refused_divisor"], made["size"]) if case["refused_divisor"] else None
    found = []
    for t in range(case["count"]):
        row = Row(made["seed"] + t, made["size"], made["scale"], made["step"])
        choice = sampler.choose(row, grammar)
        found.append({"token": choice.token, "logprob": choice.logprob, "top": [list(one) for one in choice.top]})
    return found


def cases() -> list[dict[str, Any]]:
    """List what is drawn."""
    found: list[dict[str, Any]] = []
    for size, scale, step in _SHAPES:
        for options in _SETTINGS:
            number = len(found)
            found.append(
                {
                    "options": options,
                    "seed": (number * 7919 + 1) if number % 5 else 2**53 - 1 - number,
                    "prompt": [1, 5, 5, 2],
                    "logits": {"seed": 1000 * number, "size": size, "scale": scale, "step": step},
                    "refused_divisor": 2 if number % 6 == 4 else 0,
                    "count": 10,
                }
            )
    return found


def document() -> dict[str, Any]:
    """Return everything that the file holds."""
    uniforms = []
    for seed in (0, 1, 42, 2**32, 2**53 - 1):
        numbers = RandomNumbers(seed)
        uniforms.append({"seed": seed, "uniforms": [numbers.uniform() for _ in range(8)]})
    xs = [-0.0, -1e-9, -0.1, -0.34657, -0.5, -1.0, -2.5, -10.75, -87.3, -300.0, -699.99, -700.5, -1e6]
    ones = [1.0, 1.0000001, 1.4, 1.5, 2.0, math.e, 10.0, 12345.678, 262144.0]
    return {
        "made_by": "python -m tests.support.generation.sampling_vectors",
        "defaults": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "max_tokens": 256},
        "random": uniforms,
        "exp": [[x, exp(x)] for x in xs],
        "log": [[x, log(x)] for x in ones],
        "cases": [{**case, "draws": draws(case)} for case in cases()],
    }


if __name__ == "__main__":
    made = document()
    lines = ",\n".join(json.dumps(case) for case in made.pop("cases"))
    PATH.write_text(json.dumps(made, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n]}\n", encoding="utf-8")
