"""A tiny bundle for rows of a table, and rows for it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from edge_infer.tensors.tensor import TensorSpec
from tests.support.tasks.pipelines import write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CITIES = ["Bern", "Chur", "Genf"]
COLUMNS = {
    "step": "tabular.columns",
    "names": ["age", "city", "income"],
    "types": ["int64", "string", "float64"],
    "nullable": ["income"],
}
STEPS: Sequence[dict[str, Any]] = (
    COLUMNS,
    {"step": "tabular.categories", "values": {"city": CITIES}},
    {"step": "tabular.impute", "columns": ["income"], "values": [2.5]},
    {"step": "tabular.tensor"},
)


def risk(folder: Path, steps: Sequence[dict[str, Any]] = STEPS) -> Path:
    """A classifier of three columns: `good` where age, city and income make a large sum."""
    width = 3
    return write(
        folder,
        [
            helper.make_node("Gemm", ["x", "weights", "bias"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"]),
        ],
        [TensorSpec("x", "float32", ["batch", width])],
        [TensorSpec("probabilities", "float32", ["batch", 2])],
        "tabular-classification",
        {"x": list(steps)},
        [{"step": "post.top_k", "tensor": None}],
        constants={
            "weights": np.array([[-0.03, 0.03], [-0.7, 0.7], [-0.5, 0.5]], "f4"),
            "bias": np.array([1.5, -1.5], "f4"),
        },
        labels=["bad", "good"],
    )


def rows(count: int, seed: int = 0) -> dict[str, list[Any]]:
    """Columns of so many rows, with two that the model does not read."""
    chance = random.Random(seed)
    return {
        "id": [f"n{i}" for i in range(count)],
        "income": [None if i % 7 == 3 else round(chance.uniform(-3, 9), 3) for i in range(count)],
        "age": [chance.randrange(18, 99) for _ in range(count)],
        "city": [chance.choice(CITIES) for _ in range(count)],
        "more": [chance.random() for _ in range(count)],
    }
