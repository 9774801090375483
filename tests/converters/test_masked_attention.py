"""Attention with masks in int8: the masked scores reach to minus infinity, and the others keep their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.parity import comparison
from edge_infer_converters.passes.int8_static import to_int8
from edge_infer_converters.writers.tflite.writer import FloatGraph
from tests.support import zoo
from tests.support.converters.engines import run_onnx, run_tflite

if TYPE_CHECKING:
    from collections.abc import Mapping

LENGTH, WIDTH = 8, 16


def weights() -> dict[str, np.ndarray[Any, Any]]:
    chance = np.random.default_rng(0)
    return {name: chance.normal(0, 0.4, (WIDTH, WIDTH)).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}


def attention(mask: list[onnx.NodeProto], more: Mapping[str, np.ndarray[Any, Any]], *, asks: bool = False) -> bytes:
    """Make attention of one head; `mask` makes `masked` of `scores`."""
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("MatMul", ["x", "wk"], ["k"]),
        helper.make_node("MatMul", ["x", "wv"], ["v"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        *mask,
        helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "wo"], ["y"]),
    ]
    inputs = [zoo.value("x", [1, LENGTH, WIDTH])]
    inputs += [zoo.value("kept", [1, 1, LENGTH], "bool")] if asks else []
    return zoo.model(nodes, inputs, [zoo.value("y", [1, LENGTH, WIDTH])], {**weights(), **more})


def causal(beyond: float) -> bytes:
    later = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
    mask = np.where(later, np.float32(beyond), np.float32(0))
    return attention([helper.make_node("Add", ["scores", "later"], ["masked"])], {"later": mask})


def padded(beyond: float) -> bytes:
    node = helper.make_node("Where", ["kept", "scores", "beyond"], ["masked"])
    return attention([node], {"beyond": np.array(beyond, np.float32)}, asks=True)


def calls(model: bytes, count: int = 8) -> list[dict[str, np.ndarray[Any, Any]]]:
    chance = np.random.default_rng(1)
    made: list[dict[str, np.ndarray[Any, Any]]] = []
    for i in range(count):
        call: dict[str, np.ndarray[Any, Any]] = {"x": chance.normal(size=(1, LENGTH, WIDTH)).astype(np.float32)}
        if len(onnx.load_from_string(model).graph.input) > 1:
            call["kept"] = np.arange(LENGTH).reshape(1, 1, -1) < 2 + i % (LENGTH - 1)
        made.append(call)
    return made


MODELS = [causal(-np.inf), causal(-1e9), causal(-1e4), padded(-np.inf), padded(-1e9)]
NAMES = ["later -inf", "later -1e9", "later -1e4", "padding -inf", "padding -1e9"]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_static_int8_of_onnx_keeps_25_decibels(model: bytes) -> None:
    given = calls(model)

    small = to_int8(onnx.load_from_string(model), given).SerializeToString()

    wanted = [run_onnx(model, call) for call in given]
    assert comparison.compare(wanted, [run_onnx(small, call) for call in given]).sqnr_db > 25


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_static_int8_of_tflite_keeps_25_decibels(model: bytes) -> None:
    given = calls(model)
    graph = FloatGraph.of_onnx(onnx.load_from_string(model), "attention")

    small = graph.write("int8", given).data

    wanted = [run_onnx(model, call) for call in given]
    assert comparison.compare(wanted, [run_tflite(small, call) for call in given]).sqnr_db > 25
