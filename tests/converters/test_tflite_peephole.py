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


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_constant_behind_a_convolution_is_its_bias(groups: int, has_bias: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 4 // groups, 3, 3), "b": (4,), "c": (4, 1, 1)}
    weights = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = ["x", "w", "b"] if has_bias else ["x", "w"]
    nodes = [
        helper.make_node("Conv", inputs, ["u"], group=groups),
        helper.make_node("Add", ["u", "c"], ["v"]),
        helper.make_node("Relu", ["v"], ["y"]),
    ]

    found = checked(nodes, ["n", 4, 6, 6], weights)

    assert found["ADD"] == found["RELU"] == 0


@pytest.mark.parametrize("shape", [(1, 4, 1), (1, 4, 4), (2, 1, 1, 1)])
def test_a_constant_of_other_places_than_channels_stays_an_addition(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1, (4, 4, 3, 3)).astype(np.float32), "c": rng.normal(0, 1, shape).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["u"]), helper.make_node("Add", ["u", "c"], ["y"])]

    assert checked(nodes, [2, 4, 6, 6], weights)["ADD"] == 1


def test_a_convolution_that_is_read_before_its_addition_keeps_it() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1, (4, 4, 1, 1)).astype(np.float32), "c": np.ones((4, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["u"]),
        helper.make_node("Add", ["u", "c"], ["v"]),
        helper.make_node("Mul", ["u", "v"], ["y"]),
    ]

    assert checked(nodes, [2, 4, 6, 6], weights)["ADD"] == 1


@pytest.mark.parametrize("batch", ["n", 2])
def test_flattened_images_are_read_as_they_lie(batch: int | str) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1, (60, 7)).astype(np.float32), "shape": np.array([-1, 60], np.int64)}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]

    # The one of the input has to stay.
    assert checked(nodes, [batch, 3, 9, 11], weights)["TRANSPOSE"] <= 1


def test_flattened_images_that_more_than_one_layer_reads_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 1, (60, 7)).astype(np.float32) for name in ("v", "w")}
    weights["shape"] = np.array([-1, 60], np.int64)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["a"]),
        helper.make_node("MatMul", ["f", "v"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]

    checked(nodes, [2, 3, 9, 11], weights)
