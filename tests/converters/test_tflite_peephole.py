"""What the writer tidies up: the graph gets shorter and the numbers stay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.parity import comparison
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx, run_tflite


def checked(nodes: list[onnx.NodeProto], shape: list[int | str], weights: dict[str, Any] | None = None) -> Counter[str]:
    """Write a graph from x to y, compare it with ONNX Runtime, and count its operators."""
    model = zoo.model(nodes, [zoo.value("x", shape)], [zoo.value("y", None)], weights)
    feeds = random_feeds(model, batch=2)
    written = tflite.write(onnx.load_from_string(model))
    figures = comparison.compare([run_onnx(model, feeds)], [run_tflite(written.data, feeds)])
    assert comparison.judge(figures, "fp32").word == "ok"
    return Counter(written.operators)


def test_pooling_and_flattening_are_one_operator() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]

    assert checked(nodes, ["n", 3, 5, 5])["RESHAPE"] == 0


@pytest.mark.parametrize("axes", [[2], [2, 3], [1]])
def test_a_reduction_keeps_what_a_reshape_behind_it_keeps(axes: list[int]) -> None:
    """A reshape to another shape than the one without these axes stays."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=1),
        helper.make_node("Reshape", ["m", "shape"], ["y"]),
    ]
    weights = {"axes": np.array(axes, np.int64), "shape": np.array([2, -1], np.int64)}

    checked(nodes, [2, 3, 4, 5], weights)


def test_reshapes_in_a_row_become_one() -> None:
    shapes = {"a": [4, 6], "b": [2, 12], "c": [3, 8]}
    nodes = [
        helper.make_node("Reshape", ["x", "a"], ["u"]),
        helper.make_node("Reshape", ["u", "b"], ["v"]),
        helper.make_node("Reshape", ["v", "c"], ["y"]),
    ]
    weights = {name: np.array(shape, np.int64) for name, shape in shapes.items()}

    assert checked(nodes, [24], weights) == {"RESHAPE": 1}


def test_a_reshape_that_is_read_twice_stays() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "a"], ["u"]),
        helper.make_node("Reshape", ["u", "b"], ["v"]),
        helper.make_node("Softmax", ["u"], ["s"]),
        helper.make_node("Reshape", ["s", "b"], ["t"]),
        helper.make_node("Add", ["v", "t"], ["y"]),
    ]
    weights = {"a": np.array([4, 6], np.int64), "b": np.array([2, 12], np.int64)}

    checked(nodes, [24], weights)
