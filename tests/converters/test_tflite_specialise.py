"""The shapes of a model: what is found of them, and that finding them takes the memory of a few copies at most."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx import helper

from edge_infer_converters.passes.fold_constants import fold_node
from edge_infer_converters.writers.tflite.specialise import specialise
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pytest


def flattened(times: int, note: str = "") -> onnx.ModelProto:
    """Flatten [batch, 4] and shape it back, by sizes computed from the value before: each needs a round of its own."""
    nodes, name = [], "x"
    for i in range(times):
        nodes += [
            helper.make_node("Shape", [name], [f"shape{i}"]),
            helper.make_node("ReduceProd", [f"shape{i}"], [f"size{i}"], keepdims=1),
            helper.make_node("Reshape", [name, f"size{i}"], [f"flat{i}"], doc_string=note),
            helper.make_node("Reshape", [f"flat{i}", f"shape{i}"], [f"y{i}"], doc_string=note),
        ]
        name = f"y{i}"
    return onnx.load_from_string(
        zoo.model(nodes, [zoo.value("x", ["batch", 4])], [zoo.value(name, ["batch", 4])], {}, opset=13)
    )


def resident() -> float:
    """Return the memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def test_shape_arithmetic_is_computed_away() -> None:
    found = specialise(flattened(3))

    assert [node.op_type for node in found.nodes] == ["Reshape"] * 6
    assert found.signatures["flat2"] == (-1,)
    assert found.signatures["y2"] == (-1, 4)
    assert found.constants["shape2"].tolist() == [1, 4]


def test_a_node_is_computed_once_however_many_rounds_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(model: onnx.ModelProto, node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> Any:
        asked.append(node.output[0])
        return fold_node(model, node, constants)

    monkeypatch.setattr("edge_infer_converters.writers.tflite.specialise.fold_node", counted)
    model = flattened(5)
    model.graph.node.insert(0, helper.make_node("RandomNormal", [], ["noise"], shape=[1]))

    specialise(model, fixed_batch=True)

    assert sorted(asked) == ["noise", *(f"size{i}" for i in range(5))]


def test_with_a_fixed_batch_nothing_is_free() -> None:
    found = specialise(flattened(3), fixed_batch=True)

    assert found.signatures["y2"] == (1, 4)
    assert not found.varying


def test_rounds_of_folding_keep_no_copies_of_the_model() -> None:
    model = flattened(40, note="n" * 100_000)
    before = resident()

    found = specialise(model)

    assert len(found.nodes) == 80
    # Two copies of 8 MB, for two batch sizes, and what the engine that folds takes; a copy for each round is 640 MB.
    assert resident() - before < 200
