"""Random graphs of common operators: LiteRT gives what ONNX Runtime gives, for any batch, and nearly so in int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_infer.errors import ConversionError
from edge_infer.parity import comparison
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx, run_tflite

_SHAPE = ("batch", 4, 6, 5)
_UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Gelu", "Softplus", "HardSigmoid", "LeakyRelu", "Erf", "Softmax")
_BINARY = ("Add", "Mul", "Sub", "Max", "Min")
_KINDS = (*_UNARY, *_BINARY, "Conv", "Depthwise", "MaxPool", "Concat", "MatMul", "Turned", "Shifted")


@st.composite
def models(draw: st.DrawFn) -> bytes:
    """A chain of up to ten operators over images [batch, 4, 6, 5], each of which may read any value before it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    weights: dict[str, np.ndarray[Any, Any]] = {
        "conv": rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32),
        "depthwise": rng.normal(0, 0.3, (4, 1, 3, 3)).astype(np.float32),
        "pair": rng.normal(0, 0.3, (4, 8, 1, 1)).astype(np.float32),
        "matrix": rng.normal(0, 0.3, (5, 5)).astype(np.float32),
        "shift": rng.normal(0, 0.3, (4, 1, 1)).astype(np.float32),
    }
    names, nodes = ["x"], []
    for i, kind in enumerate(draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=10))):
        one, other = (draw(st.sampled_from(names)) for _ in range(2))
        result = f"v{i}"
        if kind in _UNARY:
            made = [helper.make_node(kind, [one], [result])]
        elif kind in _BINARY:
            made = [helper.make_node(kind, [one, other], [result])]
        elif kind == "Conv":
            made = [helper.make_node("Conv", [one, "conv"], [result], pads=[1, 1, 1, 1])]
        elif kind == "Depthwise":
            made = [helper.make_node("Conv", [one, "depthwise"], [result], pads=[1, 1, 1, 1], group=4)]
        elif kind == "MaxPool":
            made = [helper.make_node("MaxPool", [one], [result], kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
        elif kind == "Concat":
            made = [
                helper.make_node("Concat", [one, other], [f"{result}c"], axis=1),
                helper.make_node("Conv", [f"{result}c", "pair"], [result]),
            ]
        elif kind == "MatMul":
            made = [helper.make_node("MatMul", [one, "matrix"], [result])]
        elif kind == "Turned":
            made = [
                helper.make_node("Transpose", [one], [f"{result}t"], perm=[0, 2, 3, 1]),
                helper.make_node("Tanh", [f"{result}t"], [f"{result}u"]),
                helper.make_node("Transpose", [f"{result}u"], [result], perm=[0, 3, 1, 2]),
            ]
        else:
            made = [helper.make_node("Add", [one, "shift"], [result])]
        nodes += made
        names.append(result)
    # Values stay near 1 however often they are multiplied.
    nodes.append(helper.make_node("Tanh", [names[-1]], ["y"]))
    return zoo.model(nodes, [zoo.value("x", _SHAPE)], [zoo.value("y", None)], weights)


@given(model=models(), batch=st.integers(1, 3))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_random_graphs_give_what_onnx_runtime_gives(model: bytes, batch: int) -> None:
    feeds = random_feeds(model, batch)

    written = tflite.write(onnx.load_from_string(model))

    wanted, got = run_onnx(model, feeds), run_tflite(written.data, feeds)
    assert comparison.judge(comparison.compare([wanted], [got]), "fp32") == ("ok", "")


@pytest.mark.parametrize("word", ["int8", "int8x16"])
@given(model=models())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_random_graphs_in_integers_stay_near(word: str, model: bytes) -> None:
    """All results lie between -1 and 1; on the data that gave the ranges, such a file is a few steps off at most."""
    calls = [random_feeds(model, seed=seed) for seed in range(4)]
    graph = tflite.FloatGraph.of_onnx(onnx.load_from_string(model))
    try:
        written = graph.write(word, calls)
    except ConversionError as error:
        assert "no operator with weights" in error.message
        return

    for call in calls:
        difference = np.abs(run_tflite(written.data, call)["y"] - run_onnx(model, call)["y"])
        assert difference.mean() < 0.03
        assert difference.max() < 0.5


@given(model=models(), word=st.sampled_from(["fp16", "int8-dynamic"]))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_random_graphs_with_weights_of_fewer_bits_stay_near(model: bytes, word: str) -> None:
    """A wider table in front, for weights of less than 1024 elements stay as they are."""
    proto = onnx.load_from_string(model)
    rng = np.random.default_rng(1)
    wide = rng.normal(0, 0.2, (4, 4, 9, 9)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(wide, "wide"))
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = "front" if name == "x" else name
    proto.graph.node.insert(0, helper.make_node("Conv", ["x", "wide"], ["front"], pads=[4, 4, 4, 4]))
    model = proto.SerializeToString()
    calls = [random_feeds(model, seed=seed) for seed in range(2)]

    written = tflite.FloatGraph.of_onnx(proto).write(word)

    for call in calls:
        difference = np.abs(run_tflite(written.data, call)["y"] - run_onnx(model, call)["y"])
        assert difference.mean() < (0.002 if word == "fp16" else 0.05)


@given(model=models())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_an_integer_interface_gives_what_a_float_one_gives(model: bytes) -> None:
    """The same integers: only QUANTIZE at the beginning and DEQUANTIZE at the end are left to the caller."""
    calls = [random_feeds(model, seed=seed) for seed in range(4)]
    graph = tflite.FloatGraph.of_onnx(onnx.load_from_string(model))
    try:
        written = graph.write("int8", calls, integer_interface=True)
    except ConversionError:
        return
    interpreter = Interpreter(model_content=written.data, num_threads=1)
    interpreter.allocate_tensors()
    (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()

    assert (x["name"], x["dtype"], y["name"], y["dtype"]) == ("x", np.int8, "y", np.int8)
    step, zero = x["quantization"]
    interpreter.set_tensor(x["index"], np.clip(np.rint(calls[0]["x"] / step) + zero, -128, 127).astype(np.int8))
    interpreter.invoke()
    step, zero = y["quantization"]
    got = (interpreter.get_tensor(y["index"]).astype(np.float32) - zero) * np.float32(step)
    assert np.abs(got - run_onnx(model, calls[0])["y"]).mean() < 0.04
