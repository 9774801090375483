"""The model and the data of the searches for a precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from tests.support import zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from pathlib import Path


def net(scales: tuple[float, ...] = (1.0, 1.0, 1.0)) -> bytes:
    """Branches of one matrix each, summed: the larger a branch's scale, the more its weights matter."""
    rng = np.random.default_rng(0)
    stored = {f"w{i}": rng.normal(0, scale, (64, 32)).astype(np.float32) for i, scale in enumerate(scales)}
    nodes = [helper.make_node("MatMul", ["x", name], [f"y{name}"], name=f"layer_{name}") for name in stored]
    nodes.append(helper.make_node("Sum", [f"y{name}" for name in stored], ["y"]))
    return zoo.model(nodes, [zoo.value("x", ["n", 64])], [zoo.value("y", ["n", 32])], stored)


def data(path: Path, model: bytes, samples: int = 40) -> Path:
    inputs = np.random.default_rng(9).normal(0, 1, (samples, 64)).astype(np.float32)
    np.savez(path, x=inputs, labels=run_onnx(model, {"x": inputs})["y"].argmax(axis=1))
    return path
