"""Biases of TFLite take back what rounded weights shift, learnt in the pass that finds the ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer_converters import convert
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.engine import run_tflite
from edge_infer_converters.writers.tflite.quantize import encodings
from edge_infer_converters.writers.tflite.quantize.biases import Biases
from edge_infer_converters.writers.tflite.quantize.ranges import measure, observe
from edge_infer_converters.writers.tflite.quantize.schemes import INT8
from edge_infer_converters.writers.tflite.writer import FloatGraph
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.writers.tflite.graph import Graph
    from tests.support.model_files import WriteModel


def layers(*, exact: bool = False) -> bytes:
    """A depthwise convolution and two matrices, one without a bias, with one weight that is large, on inputs >= 0."""
    rng = np.random.default_rng(8)
    filters = rng.uniform(0.004, 0.01, (16, 1, 3, 3)) * rng.choice([-1, 1], (16, 1, 1, 1))
    filters[:, 0, 1, 1] = 1
    dense = rng.uniform(0.001, 0.02, (16, 64))
    dense[0] = 1
    last = np.eye(64) + rng.uniform(0.001, 0.02, (64, 64))
    stored = {"w": filters, "b": rng.normal(0, 0.1, 16), "m": dense, "c": rng.normal(0, 0.1, 64), "n": last}
    if exact:  # each largest is 1: steps of 1 / 127
        stored |= {name: np.rint(stored[name].clip(-1, 1) * 127) / 127 for name in "wmn"}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], group=16, pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["conv"], ["above"]),
        helper.make_node("GlobalAveragePool", ["above"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "m", "c"], ["one"]),
        helper.make_node("MatMul", ["one", "n"], ["y"]),
    ]
    floats = {name: value.astype(np.float32) for name, value in stored.items()}
    return zoo.model(nodes, [zoo.value("x", ["n", 16, 8, 8])], [zoo.value("y", ["n", 64])], floats)


def calls(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.uniform(0, 1, (1, 16, 8, 8)).astype(np.float32)} for _ in range(count)]


def graph_of(model: bytes) -> FloatGraph:
    return FloatGraph.of_onnx(onnx.load_from_string(model))


@pytest.mark.parametrize("word", ["int8", "int8x16"])
def test_inputs_that_nobody_learnt_from_are_the_better_for_it(word: str) -> None:
    graph, held_out = graph_of(layers()), calls(8, seed=1)
    before = graph.write().data
    wanted = run_tflite(before, held_out)

    plain, corrected = (graph.write(word, calls(24), corrects=corrects) for corrects in (False, True))

    errors = [noise(wanted, run_tflite(one.data, held_out)) for one in (plain, corrected)]
    assert decibels(errors[1]) > decibels(errors[0]) + 1
    assert graph.write().data == before


def corrected_by(graph: Graph, given: list[dict[str, Any]]) -> Graph:
    biases = Biases(graph, INT8)
    measure(graph, given, see=biases.see)
    return biases.corrected()


def test_what_weights_in_int8_shift_is_taken_back_in_each_channel() -> None:
    graph = graph_of(layers()).graph
    made = corrected_by(graph, calls(16))
    weighted = ("DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    changed = [one for one in made.operators if one.code in weighted]
    assert [len(one.inputs) for one in changed] == [3, 3, 3]
    first = changed[0]
    weights = first.inputs[1]
    assert weights is not None
    assert weights.data is not None
    rounded = encodings.int8(weights.data, 3)
    weights.data = (rounded.values * rounded.scales).astype(np.float32)

    np.testing.assert_allclose(
        mean_of(made, first.outputs[0]), mean_of(graph_of(layers()).graph, first.outputs[0]), atol=5e-4
    )


def mean_of(graph: Any, like: Any) -> np.ndarray:
    (tensor,) = (out for one in graph.operators for out in one.outputs if out.name == like.name)
    values = [value.copy() for _, value in observe(graph, calls(16), [tensor])]
    mean: np.ndarray = np.mean(values, axis=(0, 1, 2, 3))
    return mean


@pytest.mark.parametrize("seed", range(24))
def test_a_convolution_of_any_kind_keeps_its_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, inputs, outputs = [(1, 3, 4), (4, 1, 1), (3, 1, 2), (2, 2, 3)][seed % 4]
    kernel, strides, dilations = (rng.integers(1, high, 2).tolist() for high in (4, 3, 3))
    pads = rng.integers(0, 2, 4).tolist() if seed % 3 else [0] * 4
    weights = rng.normal(0, 1, (groups * outputs, inputs, *kernel)).astype(np.float32)
    settings = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **settings)]
    ends = [zoo.value(name, [1, channels, 9, 8]) for name, channels in (("x", groups * inputs), ("y", len(weights)))]
    ends[1].type.tensor_type.ClearField("shape")
    graph = graph_of(zoo.model(nodes, ends[:1], ends[1:], {"w": weights}))
    given = [{"x": rng.uniform(0, 1, (1, groups * inputs, 9, 8)).astype(np.float32)} for _ in range(3)]
    wanted = np.mean([one["y"] for one in run_tflite(graph.write().data, given)], axis=(0, 1, 3, 4))

    made = corrected_by(graph.graph, given)
    for operator in made.operators:
        if operator.code in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            stored = operator.inputs[1]
            assert stored is not None
            assert stored.data is not None
            axis = 3 if operator.code == "DEPTHWISE_CONV_2D" else 0
            integers = encodings.int8(stored.data, axis)
            scales = integers.scales.reshape([-1 if i == axis else 1 for i in range(4)])
            operator.inputs[1] = replace(stored, data=(integers.values * scales).astype(np.float32))
    got = np.mean([one["y"] for one in run_tflite(FloatGraph(made).write().data, given)], axis=(0, 1, 3, 4))

    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_conversion_corrects_by_default(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(layers()), tmp_path / "data.npz"
    np.savez(data, x=np.concatenate([call["x"] for call in calls(24)]))

    made = convert(model, tmp_path / "made.bundle", format="tflite", precision="int8", calibration=data, keep_all=True)

    graph = graph_of(layers())
    files = [graph.write().data, graph.write("int8", calls(24), corrects=False).data]
    plain = decibels(noise(*(run_tflite(file, calls(24)) for file in files)))
    assert made.variants[0].quality.parity.sqnr_db > plain + 1


def test_weights_that_int8_holds_exactly_keep_their_file() -> None:
    graph = graph_of(layers(exact=True))

    plain, corrected = (graph.write("int8", calls(8), corrects=corrects).data for corrects in (False, True))

    assert plain == corrected


@pytest.mark.parametrize("is_given", [False, True])
def test_biases_learn_from_given_data_alone(
    is_given: bool, write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    write = FloatGraph.write

    def recorded(graph: FloatGraph, *given: Any, **more: Any) -> Any:
        asked.extend([more["corrects"]] if "corrects" in more else [])
        return write(graph, *given, **more)

    monkeypatch.setattr(FloatGraph, "write", recorded)
    np.savez(tmp_path / "data.npz", x=np.concatenate([call["x"] for call in calls(8)]))
    options: dict[str, Any] = {"calibration": tmp_path / "data.npz"} if is_given else {}

    convert(write_model(layers()), tmp_path / "m.bundle", format="tflite", precision="int8", keep_all=True, **options)

    assert asked == [is_given]


def test_the_file_is_written_once(write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    write = FloatGraph.write

    def counted(graph: FloatGraph, word: str = "fp32", *given: Any, **more: Any) -> Any:
        words.append(word)
        return write(graph, word, *given, **more)

    monkeypatch.setattr(FloatGraph, "write", counted)
    np.savez(tmp_path / "data.npz", x=np.concatenate([call["x"] for call in calls(40)]))

    convert(
        write_model(layers()),
        tmp_path / "tried.bundle",
        format="tflite",
        precision="fp32,int8",
        calibration=tmp_path / "data.npz",
        min_sqnr=20,
    )

    assert words.count("int8") == 1
