"""A TFLite file as ONNX: dynamic-range weights, transpositions, and damaged files."""

from __future__ import annotations

from contextlib import suppress

import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_infer.errors import EdgeInferError
from edge_infer.parity import comparison
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.onnx import to_onnx
from edge_infer_converters.writers.tflite import FloatGraph, reading
from tests.support import zoo
from tests.support.converters.engines import onnx_of_tflite, random_feeds, run_onnx, run_tflite
from tests.support.converters.tflite_quantized import feeds_of, graph_of, image_net, normal


def mlp() -> bytes:
    """Two layers of weights that are worth quantizing: y [n, 64] of x [n, 48]."""
    weights = {"a": normal(48, 96), "b": normal(96, 64, spread=0.1)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    return zoo.model(nodes, [zoo.value("x", ["n", 48])], [zoo.value("y", ["n", 64])], weights)


def test_values_beside_integer_weights_are_rounded_as_litert_rounds_them() -> None:
    data = FloatGraph.of_onnx(onnx.load_from_string(mlp())).write("int8-dynamic").data
    feeds = random_feeds(mlp(), batch=5)

    made = onnx_of_tflite(data)

    assert onnx.TensorProto.INT8 in {one.data_type for one in onnx.load_from_string(made).graph.initializer}
    wanted = run_tflite(data, feeds)
    assert comparison.compare([wanted], [run_onnx(made, feeds)]).sqnr_db >= 90
    assert comparison.compare([wanted], [run_onnx(mlp(), feeds)]).sqnr_db < 60, "the weights as floats are farther"


def test_convolutions_round_an_image_by_its_own_range() -> None:
    weights = {"w": normal(64, 32, 3, 3)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    model = zoo.model(nodes, [zoo.value("x", [1, 32, 8, 8])], [zoo.value("y", [1, 64, 6, 6])], weights)
    data = FloatGraph.of_onnx(onnx.load_from_string(model)).write("int8-dynamic").data
    feeds = random_feeds(model)

    made = run_onnx(onnx_of_tflite(data), feeds)

    assert comparison.compare([run_tflite(data, feeds)], [made]).sqnr_db >= 90


def test_no_transposition_is_left_of_a_model_that_was_channels_first() -> None:
    made = onnx.load_from_string(onnx_of_tflite(tflite.write(onnx.load_from_string(image_net())).data))

    assert "Transpose" not in {node.op_type for node in made.graph.node}


WHOLE = graph_of(image_net()).write("int8", feeds_of(image_net(), 2)).data


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 255)), max_size=4), st.integers(0, len(WHOLE)))
def test_a_damaged_file_gives_a_model_or_an_error_of_ours(changes: list[tuple[int, int]], length: int) -> None:
    damaged = bytearray(WHOLE if changes else WHOLE[:length])
    for place, value in changes:
        damaged[-place] = value
    with suppress(EdgeInferError):
        to_onnx(reading.read(bytes(damaged), "net.tflite").graph, "net").SerializeToString()
