"""Single operators of compiled models, against LiteRT: bit for bit in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_infer.kernels.extents import extents
from edge_infer_converters.compilation import compile_file
from edge_infer_converters.measure import compiled_check
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.tflite import flatbuffer
from edge_infer_converters.writers.tflite.graph import Graph, Quantization, Tensor
from tests.support import zoo

FLOAT, INT8, INT32 = np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.int32)
#: The roundings that LiteRT has; that of TFLite Micro is compared in the long tests, where its package is.
LITERT = ("litert", "reference")


@pytest.mark.parametrize("rounding", LITERT)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    scales=st.tuples(st.sampled_from([0.008, 0.02, 0.11, 0.9]), st.sampled_from([0.01, 0.047, 0.2])),
    zeros=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    alpha=st.sampled_from([0.0, 0.01, 0.2, 1.5, -0.3]),
)
def test_leaky_relu_of_int8(rounding: str, scales: tuple[float, float], zeros: tuple[int, int], alpha: float) -> None:
    options: Any = schema.LeakyReluOptionsT()
    options.alpha = alpha
    check("LEAKY_RELU", quantized("x", (1, 300), scales[0], zeros[0]), (1, 300), scales[1], zeros[1], options, rounding)


@pytest.mark.parametrize("rounding", LITERT)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    scales=st.tuples(st.sampled_from([0.008, 0.02, 0.047, 0.11]), st.sampled_from([0.01, 0.047, 0.2])),
    zeros=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
)
def test_hard_swish_of_int8(rounding: str, scales: tuple[float, float], zeros: tuple[int, int]) -> None:
    options = schema.HardSwishOptionsT()
    check("HARD_SWISH", quantized("x", (1, 300), scales[0], zeros[0]), (1, 300), scales[1], zeros[1], options, rounding)


@pytest.mark.parametrize("rounding", LITERT)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 4),
    channels=st.integers(1, 5),
    corners=st.sampled_from([(False, False), (True, False), (False, True)]),
)
def test_bilinear_resize_of_int8(
    rounding: str, sizes: tuple[int, int, int, int], channels: int, corners: tuple[bool, bool]
) -> None:
    height, width, output_height, output_width = sizes
    options: Any = schema.ResizeBilinearOptionsT()
    options.alignCorners, options.halfPixelCenters = corners
    x = quantized("x", (1, height, width, channels), 0.05, 3)
    size = constant("size", np.array([output_height, output_width], np.int32))
    check("RESIZE_BILINEAR", [x, size], (1, output_height, output_width, channels), 0.05, 3, options, rounding)


@pytest.mark.parametrize("rounding", LITERT)
@pytest.mark.parametrize("is_float", [True, False])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_transposed_convolutions(rounding: str, is_float: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    height, width, kernel_height, kernel_width = (data.draw(st.integers(1, 5)) for _ in range(4))
    stride = data.draw(st.integers(1, 3))
    inputs, outputs = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    options: Any = schema.TransposeConvOptionsT()
    options.strideH = options.strideW = stride
    options.padding = data.draw(st.sampled_from([0, 1]))
    sizes = [
        size * stride if options.padding == 0 else (size - 1) * stride + kernel
        for size, kernel in ((height, kernel_height), (width, kernel_width))
    ]
    shape = (outputs, kernel_height, kernel_width, inputs)
    made = (1, *sizes, outputs)
    place = constant("shape", np.array(made, np.int32))
    if is_float:
        weights = constant("w", rng.normal(size=shape).astype(np.float32))
        x, y = (
            Tensor("x", (1, height, width, inputs), (1, height, width, inputs), FLOAT),
            Tensor("y", made, made, FLOAT),
        )
    else:
        scales = Quantization(rng.uniform(1e-3, 0.05, outputs).astype(np.float32))
        weights = constant("w", rng.integers(-127, 128, shape).astype(np.int8), scales)
        x = quantized("x", (1, height, width, inputs), 0.03, data.draw(st.integers(-128, 127)))
        y = quantized("y", made, data.draw(st.sampled_from([0.02, 0.3])), data.draw(st.integers(-128, 127)))
    graph = Graph([x], [y])
    graph.add("TRANSPOSE_CONV", [place, weights, x], [y], options, 2)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_parts_along_an_axis_and_tiles(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = Tensor("x", tuple(shape), tuple(shape), FLOAT)
    rest = (*shape[:axis], *shape[axis + 1 :])
    parts = [Tensor(f"part{i}", rest, rest, FLOAT) for i in range(shape[axis])]
    unpack: Any = schema.UnpackOptionsT()
    unpack.axis, unpack.num = axis, shape[axis]
    counts = [data.draw(st.integers(1, 3)) for _ in shape]
    made = tuple(size * count for size, count in zip(shape, counts, strict=True))
    tiled = Tensor("tiled", made, made, FLOAT)
    graph = Graph([x], [*parts, tiled])
    graph.add("UNPACK", [x], parts, unpack, 1)
    if sum(size > 1 for size in (*shape, *counts)) <= 5:
        graph.add("TILE", [x, constant("counts", np.array(counts, np.int32))], [tiled], schema.TileOptionsT(), 1)
    else:
        graph.outputs.pop()

    assert "equal" in compiled_check.check(writer.write(graph), flatbuffer.write(graph, "one"))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_a_table_by_their_numbers(axis: int) -> None:
    table = constant("table", np.arange(35, dtype=np.float32).reshape(5, 7))
    places = Tensor("places", (4,), (4,), INT32)
    made = (4, 7) if axis == 0 else (5, 4)
    y = Tensor("y", made, made, FLOAT)
    options: Any = schema.GatherOptionsT()
    options.axis = axis
    graph = Graph([places], [y])
    graph.add("GATHER", [table, places], [y], options, 1)
    compiled = writer.write(graph)

    assert "equal" in compiled_check.check(compiled, flatbuffer.write(graph, "one"))
    beyond = compiled_check.run(compiled, {"places": np.array([-9, 2**31 - 1, -(2**31), 99], np.int32)})["y"]
    assert beyond.min() >= 0, "numbers of no row take the nearest: no byte outside of the table is read"
    assert beyond.max() <= 34


def test_an_lstm_of_floats_as_our_writer_has_it() -> None:
    """Written by our own TFLite writer, as one operator."""
    rng = np.random.default_rng(4)
    weights = {
        "w": rng.normal(0, 0.3, (1, 20, 6)),
        "r": rng.normal(0, 0.3, (1, 20, 5)),
        "b": rng.normal(0, 0.1, (1, 40)),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["all"], hidden_size=5),
        helper.make_node("Squeeze", ["all", "one"], ["y"]),
    ]
    constants = {name: value.astype(np.float32) for name, value in weights.items()} | {"one": np.array([1], np.int64)}
    model = zoo.model(nodes, [zoo.value("x", [40, 1, 6])], [zoo.value("y", [40, 1, 5])], constants)
    content = tflite.FloatGraph.of_onnx(onnx.load_from_string(model), for_page=False).write().data

    compiled, checked = compile_file(content, "lstm")

    assert checked == "equal to LiteRT on 24 steps of a stream"
    assert {kernel for kernel, _ in compiled.program.calls} >= {"lstm_float"}
    x = {"x": rng.normal(size=(40, 1, 6)).astype(np.float32)}
    image = compiled_check.Image(compiled)
    np.testing.assert_array_equal(image.run(x)["y"], image.run(x)["y"])  # a first step of its own forgets the state


def test_an_lstm_of_int8_is_near_that_of_floats() -> None:
    """The zoo's files are compared with LiteRT bit for bit; this one with numpy."""
    rng = np.random.default_rng(6)
    steps, inputs, cells = 12, 20, 7
    x, y = quantized("x", (1, steps, inputs), 0.02, 5), quantized("y", (1, steps, cells), 1 / 128, 0)
    hidden = Tensor("h", (1, cells), (1, cells), INT8, None, y.quantization, is_variable=True)
    cell_scale = Quantization(np.array([2.0**-12], np.float32))
    cell = Tensor("c", (1, cells), (1, cells), np.dtype(np.int16), None, cell_scale, is_variable=True)

    def matrix(name: str, columns: int) -> Tensor:
        scale = Quantization(np.array([0.01], np.float32))
        return constant(name, rng.integers(-60, 61, (cells, columns)).astype(np.int8), scale)

    weights, recurrent = [matrix(f"w{i}", inputs) for i in range(4)], [matrix(f"r{i}", cells) for i in range(4)]
    biases = [constant(f"b{i}", rng.integers(-2000, 2000, cells).astype(np.int32)) for i in range(4)]
    options: Any = schema.UnidirectionalSequenceLSTMOptionsT()
    options.fusedActivationFunction, options.cellClip, options.projClip = 4, 0.0, 0.0
    given = [x, *weights, *recurrent, None, None, None, *biases, None, None, hidden, cell, None, None, None, None]
    graph = Graph([x], [y])
    graph.add("UNIDIRECTIONAL_SEQUENCE_LSTM", given, [y], options, 3)
    feed = rng.integers(-100, 100, (1, steps, inputs)).astype(np.int8)

    got = compiled_check.run(writer.write(graph), {"x": feed})["y"] / 128

    h, c, want = np.zeros(cells), np.zeros(cells), []
    for row in (feed[0].astype(float) - 5) * 0.02:
        sums = [
            w.data * 0.01 @ row + r.data * 0.01 @ h + b.data * 0.01 * 0.02  # type: ignore[operator]
            for w, r, b in zip(weights, recurrent, biases, strict=True)
        ]
        i, f, o = (1 / (1 + np.exp(-sums[k])) for k in (0, 1, 3))
        c = f * c + i * np.tanh(sums[2])
        h = o * np.tanh(c)
        want.append(h)
    assert np.abs(got[0] - np.array(want)).max() < 0.03


@pytest.mark.parametrize("rounding", LITERT)
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_uint8_weights_have_zero_points(rounding: str, code: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kernel, inputs, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9)), data.draw(st.integers(4, 7))
    options: Any = schema.Conv2DOptionsT() if code == "CONV_2D" else schema.DepthwiseConv2DOptionsT()
    options.strideH = options.strideW = data.draw(st.integers(1, 2))
    options.padding = data.draw(st.sampled_from([0, 1]))
    outputs = data.draw(st.integers(1, 9)) if code == "CONV_2D" else inputs
    if code != "CONV_2D":
        options.depthMultiplier = 1
    span = size if options.padding == 0 else size - kernel + 1
    made = (1, *[-(-span // options.strideH)] * 2, outputs)
    shape = (outputs, kernel, kernel, inputs) if code == "CONV_2D" else (1, kernel, kernel, inputs)
    zero = data.draw(st.sampled_from([0, 1, 100, 128, 254, 255]))
    weights = constant(
        "w", rng.integers(0, 256, shape).astype(np.uint8), Quantization(np.array([0.02], np.float32), zero)
    )
    bias = constant(
        "b", rng.integers(-3000, 3000, outputs).astype(np.int32), Quantization(np.array([6e-4], np.float32))
    )
    x, y = (
        Tensor(name, dims, dims, np.dtype(np.uint8), None, Quantization(np.array([step], np.float32), point))
        for name, dims, step, point in (
            ("x", (1, size, size, inputs), 0.03, data.draw(st.integers(0, 255))),
            ("y", made, 0.4, data.draw(st.integers(0, 255))),
        )
    )
    graph = Graph([x], [y])
    graph.add(code, [x, weights, bias], [y], options, 1)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


@pytest.mark.parametrize("rounding", LITERT)
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_weights_of_int8_beside_floats(rounding: str, code: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kernel, inputs, size = (
        data.draw(st.sampled_from([1, 3])),
        data.draw(st.integers(1, 17)),
        data.draw(st.integers(3, 6)),
    )
    outputs = inputs if code == "DEPTHWISE_CONV_2D" else data.draw(st.integers(1, 17))
    is_each = code != "FULLY_CONNECTED" and data.draw(st.booleans())
    options: Any
    given_shape: tuple[int, ...]
    made: tuple[int, ...]
    shape: tuple[int, ...]
    given_shape, made, shape, axis = (
        (1, size, size, inputs),
        (1, size, size, outputs),
        (outputs, kernel, kernel, inputs),
        0,
    )
    if code == "CONV_2D":
        options = schema.Conv2DOptionsT()
    elif code == "DEPTHWISE_CONV_2D":
        options, shape, axis = schema.DepthwiseConv2DOptionsT(), (1, kernel, kernel, inputs), 3
        options.depthMultiplier, is_each = 1, True  # TFLite takes no others
    else:
        options, shape = schema.FullyConnectedOptionsT(), (outputs, inputs)
        given_shape, made = (size, inputs), (size, outputs)
    if code != "FULLY_CONNECTED":
        options.strideH = options.strideW = 1
        options.padding = 0
    options.fusedActivationFunction = data.draw(st.sampled_from([0, 1, 3]))
    steps = rng.uniform(1e-3, 0.05, outputs if is_each else 1).astype(np.float32)
    weights = constant("w", rng.integers(-127, 128, shape).astype(np.int8), Quantization(steps, 0, axis))
    bias = constant("b", rng.normal(size=outputs).astype(np.float32))
    x, y = Tensor("x", given_shape, given_shape, FLOAT), Tensor("y", made, made, FLOAT)
    graph = Graph([x], [y])
    graph.add(code, [x, weights, bias], [y], options, 5 if code == "CONV_2D" else 6)

    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


def test_the_logarithm_of_a_softmax() -> None:
    x, y = Tensor("x", (3, 11), (3, 11), FLOAT), Tensor("y", (3, 11), (3, 11), FLOAT)
    graph = Graph([x], [y])
    graph.add("LOG_SOFTMAX", [x], [y], schema.LogSoftmaxOptionsT(), 1)
    compiled = writer.write(graph)

    assert "equal" in compiled_check.check(compiled, flatbuffer.write(graph, "one"))
    far = compiled_check.run(compiled, {"x": np.full((3, 11), -80, np.float32) + np.eye(3, 11, dtype=np.float32) * 200})
    assert np.isfinite(far["y"]).all()
    np.testing.assert_allclose(np.exp(far["y"]).sum(1), 1, rtol=1e-6)


def test_logarithms() -> None:
    x, y = Tensor("x", (400,), (400,), FLOAT), Tensor("y", (400,), (400,), FLOAT)
    graph = Graph([x], [y])
    graph.add("LOG", [x], [y], None, 1)
    values = np.concatenate([np.logspace(-44, 38, 396), [0, 1, np.inf, -1]]).astype(np.float32)

    got = compiled_check.run(writer.write(graph), {"x": values})["y"]

    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(got, np.log(values.astype(np.float64)), rtol=3e-7, atol=1e-7)


def test_extents_of_new_arguments_are_checked() -> None:
    rows = {"rows": 2, "columns": 5, "kind": 0, "output_bytes": 1}
    assert extents("quantize_rows", rows)["parameters"] == (0, 16)
    sizes = {"batch": 1, "inputs": 4, "filters": 6, "rank": 2, "memory": 3, "state_bytes": 2}
    filtered = sizes | {"feature_shift": 0, "time_shift": 0}
    assert extents("svdf_int8", filtered)["state"] == (0, 36)
    assert extents("svdf_int8", filtered)["output"] == (0, 3)
    whole = {"count": 3, "input_bytes": 2, "output_bytes": 4, "shift": 0}
    assert extents("requantize", whole) == {"input": (0, 6), "output": (0, 12)}
    forest = {"rows": 1, "columns": 4, "targets": 3, "node_count": 7, "vote_count": 4, "trees": 2}
    assert extents("trees", forest)["nodes"] == (0, 84)
    for kernel, wrong in (
        ("quantize_rows", rows | {"kind": 3}),
        ("quantize_rows", rows | {"output_bytes": 2}),
        ("svdf_int8", filtered | {"rank": 4}),
        ("svdf_int8", filtered | {"rank": 0}),
        ("svdf_int8", filtered | {"memory": 0}),
        ("svdf_int8", filtered | {"state_bytes": 4}),
        ("svdf_int8", filtered | {"time_shift": 31}),
        ("requantize", whole | {"input_bytes": 3}),
        ("requantize", whole | {"shift": -32}),
        ("trees", forest | {"columns": -1}),
        ("trees", forest | {"rows": 2**30}),
        ("softmax_int8_fixed", {"rows": 1, "columns": 2, "output_bytes": 4}),
    ):
        with pytest.raises(ValueError, match=r"shift|size|rank|kind|bytes"):
            extents(kernel, wrong)


def test_extents_of_recurrent_kernels_are_checked() -> None:
    sizes = {"batch": 1, "steps": 3, "inputs": 4, "cells": 5}
    shifts = {f"{name}_shift": 0 for name in ("input", "input_recurrent", "hidden")}

    found = extents("lstm_int8", sizes | shifts | {"cell_bits": 12})

    assert (found["output"], found["cell"], found["recurrent"]) == ((0, 15), (0, 10), (0, 100))
    for wrong in ({"cell_bits": 3}, {"cell_bits": 12, "hidden_shift": 40}, {"cell_bits": 12, "steps": -1}):
        with pytest.raises(ValueError, match=r"shift|size"):
            extents("lstm_int8", sizes | shifts | wrong)
    with pytest.raises(ValueError, match="no rows"):
        extents("gather", {"outer": 1, "rows": 0, "count": 2, "block": 4})


def check(
    code: str,
    given: Tensor | list[Tensor],
    shape: tuple[int, ...],
    scale: float,
    zero: int,
    options: Any,
    rounding: str,
) -> None:
    """Compare one operator of int8 with LiteRT."""
    inputs = given if isinstance(given, list) else [given]
    y = quantized("y", shape, scale, zero)
    graph = Graph(inputs[:1], [y])
    graph.add(code, inputs, [y], options, 1 if code == "HARD_SWISH" else 2)
    assert "equal" in compiled_check.check(writer.write(graph, rounding), flatbuffer.write(graph, "one"))


def quantized(name: str, shape: tuple[int, ...], scale: float, zero: int) -> Tensor:
    return Tensor(name, shape, shape, INT8, None, Quantization(np.array([scale], np.float32), zero))


def constant(name: str, data: np.ndarray, scales: Quantization | None = None) -> Tensor:
    return Tensor(name, data.shape, data.shape, data.dtype, data, scales)
