"""Shuffled channels become one choice of channels, and nothing else does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer_converters.passes.fold_shuffles import fold_shuffles_in
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx, run_tflite


def shuffle(shape: list[int | str], inner: list[int], perm: list[int], outer: list[int], part: int | None) -> bytes:
    """Pool, reshape, transpose, reshape, take a part where one is named, and cut what is negative."""
    nodes = [
        helper.make_node("Constant", [], ["inner"], value=numpy_helper.from_array(np.array(inner, np.int64))),
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("Reshape", ["p", "inner"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=perm),
        helper.make_node("Reshape", ["b", "outer"], ["c"]),
    ]
    weights = {"outer": np.array(outer, np.int64)}
    if part is not None:
        nodes.append(helper.make_node("Gather", ["c", "part"], ["d"], axis=0))
        weights["part"] = np.array(part, np.int64)
    nodes.append(helper.make_node("Relu", [nodes[-1].output[0]], ["y"]))
    return zoo.model(nodes, [zoo.value("x", shape)], [zoo.value("y", None)], weights)


@pytest.mark.parametrize(
    ("inner", "perm", "outer", "part"),
    [
        ([1, 3, 4, 5, 7], [0, 2, 1, 3, 4], [1, 12, 5, 7], None),
        ([0, 4, 3, 35], [0, 2, 1, 3], [1, -1, 5, 7], None),
        ([6, 2, 35], [1, 0, 2], [2, -1, 6, 5, 7], 0),
        ([6, 2, 35], [1, 0, 2], [2, -1, 6, 5, 7], 1),
    ],
)
def test_shuffled_channels_become_a_choice(
    inner: list[int], perm: list[int], outer: list[int], part: int | None
) -> None:
    data = shuffle([1, 12, 5, 7], inner, perm, outer, part)
    folded = onnx.load_from_string(data)

    fold_shuffles_in(folded)

    assert [node.op_type for node in folded.graph.node] == ["MaxPool", "Gather", "Relu"]
    feeds = random_feeds(data)
    wanted = run_onnx(data, feeds)["y"]
    np.testing.assert_array_equal(run_onnx(folded.SerializeToString(), feeds)["y"], wanted)
    written = tflite.write(onnx.load_from_string(data))
    np.testing.assert_array_equal(run_tflite(written.data, feeds)["y"], wanted)
    assert written.operators.count("TRANSPOSE") == 3  # at both ends, and of the channels


@pytest.mark.parametrize(
    ("shape", "inner", "perm", "outer", "part"),
    [
        ([1, 12, 5, 7], [1, 12, 7, 5], [0, 1, 3, 2], [1, 12, 5, 7], None),  # places of an image
        ([1, 12, 6, 6], [1, 12, 6, 6], [0, 1, 3, 2], [1, 12, 6, 6], None),
        ([1, 12, 5, 7], [3, 4, 35], [1, 0, 2], [12, 5, 7], None),  # another number of axes
        (["n", 12, 5, 7], [-1, 3, 4, 5, 7], [0, 2, 1, 3, 4], [-1, 12, 5, 7], None),  # a free batch
        ([2, 6, 2, 3], [6, 2, 6], [1, 0, 2], [2, 6, 2, 3], None),  # channels of several images
    ],
)
def test_what_is_no_choice_of_channels_stays(
    shape: list[int | str], inner: list[int], perm: list[int], outer: list[int], part: int | None
) -> None:
    folded = onnx.load_from_string(shuffle(shape, inner, perm, outer, part))

    fold_shuffles_in(folded)

    assert "Transpose" in [node.op_type for node in folded.graph.node]


def test_the_parts_of_a_shuffle_share_its_transposition() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("Reshape", ["p", "inner"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["b", "outer"], ["c"]),
        helper.make_node("Gather", ["c", "one"], ["d"], axis=0),
        helper.make_node("Gather", ["c", "other"], ["e"], axis=0),
        helper.make_node("MaxPool", ["d"], ["f"], kernel_shape=[2, 2]),
        helper.make_node("MaxPool", ["e"], ["g"], kernel_shape=[2, 2]),
        helper.make_node("Sub", ["f", "g"], ["y"]),
    ]
    weights = {"inner": np.array([6, 2, 35], np.int64), "outer": np.array([2, -1, 6, 5, 7], np.int64)}
    weights |= {"one": np.array(0, np.int64), "other": np.array(1, np.int64)}
    data = zoo.model(nodes, [zoo.value("x", [1, 12, 5, 7])], [zoo.value("y", None)], weights)
    feeds = random_feeds(data)

    written = tflite.write(onnx.load_from_string(data))

    np.testing.assert_array_equal(run_tflite(written.data, feeds)["y"], run_onnx(data, feeds)["y"])
    assert written.operators.count("TRANSPOSE") == 3
