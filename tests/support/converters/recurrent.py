"""ONNX models of one recurrent node."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.support import zoo


def recurrent(
    op: str = "LSTM",
    *,
    steps: int = 40,
    features: int = 6,
    hidden: int = 9,
    batch: int | str = 2,
    bias: bool = True,
    peephole: bool = False,
    initial: float | None = None,
    outputs: tuple[str, ...] = ("y", "h"),
    **attributes: Any,
) -> bytes:
    """One layer; `initial` stores what all states start from."""
    rng = np.random.default_rng(3)
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    weights = {
        "w": rng.normal(0, 0.4, (count, gates * hidden, features)).astype(np.float32),
        "r": rng.normal(0, 0.4, (count, gates * hidden, hidden)).astype(np.float32),
    }
    if bias:
        weights["b"] = rng.normal(0, 0.4, (count, 2 * gates * hidden)).astype(np.float32)
    inputs = ["x", "w", "r", "b" if bias else "", ""]
    if initial is not None:
        size = batch if isinstance(batch, int) else 1
        shape = (size, count, hidden) if attributes.get("layout") else (count, size, hidden)
        weights["zero"] = np.full(shape, initial, np.float32)
    inputs += ["zero" if initial is not None else ""] * 2
    if peephole:
        weights["p"] = rng.normal(0, 0.4, (count, 3 * hidden)).astype(np.float32)
        inputs.append("p")
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node(op, inputs, list(outputs), name="layer", hidden_size=hidden, **attributes)
    shape_of_x = [batch, steps, features] if attributes.get("layout") else [steps, batch, features]
    values = [zoo.value(name, None) for name in outputs if name]
    return zoo.model([node], [zoo.value("x", shape_of_x)], values, weights)


SAYABLE: dict[str, dict[str, Any]] = {
    "forward": {},
    "reverse": {"direction": "reverse"},
    "bidirectional": {"direction": "bidirectional"},
    "without bias": {"bias": False},
    "peephole": {"peephole": True, "direction": "bidirectional"},
    "only the last state": {"outputs": ("", "h"), "direction": "reverse"},
    "only the states": {"outputs": ("y",)},
    "zeros to start from": {"initial": 0.0},
    "long": {"steps": 1500, "hidden": 3},
    "activations by name": {"activations": ["Sigmoid", "Tanh", "Tanh"]},
}
