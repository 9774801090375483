"""Compiled models in the rounding of TFLite Micro, against PyPI's `tflite-micro`: bit for bit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.compilation import compile_file
from edge_infer_converters.measure import compiled_check
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.compiled.numbers import Scale, micro_table, softmax_table
from edge_infer_converters.writers.tflite import flatbuffer
from edge_infer_converters.writers.tflite.graph import Graph, Quantization, Tensor
from tests.support import real_models

INT8 = np.dtype(np.int8)
ZOO = real_models.folder()
NETS = ("keyword_scr8", "keyword_scrambled", "kws_int8", "person_detect", "micro_speech", "str_ww", "resnet8_int8")


@pytest.mark.parametrize("is_tanh", [True, False])
def test_the_tables_are_near_the_functions(is_tanh: bool) -> None:
    for step, zero in ((0.02, 0), (0.1, -5), (0.0613, 128 - 1)):
        values = (np.arange(-128, 128) - zero) * step
        want = np.tanh(values) * 128 if is_tanh else 256 / (1 + np.exp(-values)) - 128
        assert np.abs(micro_table(Scale(np.float32(step), zero), is_tanh=is_tanh) - want.clip(-128, 127)).max() < 0.6


def test_the_exponentials_are_near_those_of_floats() -> None:
    for step, beta in ((0.1, 1.0), (0.02, 2.0), (1.5, 1.0)):
        want = np.exp(np.arange(-255, 1) * step * beta) * 2**31
        assert np.abs(softmax_table(Scale(np.float32(step), 0), beta) - want).max() < 600


def test_without_the_package_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite_micro.python.tflite_micro", None)
    graph, content = one("LOGISTIC", None, (0.05, 3), (1 / 256, -128))

    assert "pip install tflite-micro" in compiled_check.check(writer.write(graph, "tflm"), content)


@pytest.mark.long
@pytest.mark.parametrize("code", ["LOGISTIC", "TANH", "SOFTMAX", "HARD_SWISH", "FULLY_CONNECTED", "ADD", "MEAN"])
def test_one_operator(code: str) -> None:
    pytest.importorskip("tflite_micro")
    ends = {"LOGISTIC": (1 / 256, -128), "SOFTMAX": (1 / 256, -128), "TANH": (1 / 128, 0)}
    for step, zero in ((0.05, 3), (0.11, -70), (0.017, 127)):
        graph, content = one(code, options_of(code), (step, zero), ends.get(code, (0.09, 11)))
        assert "equal to TFLite Micro" in compiled_check.check(writer.write(graph, "tflm"), content)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
@pytest.mark.parametrize("name", NETS)
def test_a_real_network(name: str) -> None:
    pytest.importorskip("tflite_micro")
    assert ZOO is not None
    content = (ZOO / f"{name}.tflite").read_bytes()

    _, checked = compile_file(content, name, "tflm")

    assert checked.startswith("equal to TFLite Micro")


def options_of(code: str) -> Any:
    found: Any = {
        "SOFTMAX": schema.SoftmaxOptionsT,
        "HARD_SWISH": schema.HardSwishOptionsT,
        "FULLY_CONNECTED": schema.FullyConnectedOptionsT,
        "ADD": schema.AddOptionsT,
        "MEAN": schema.ReducerOptionsT,
    }.get(code)
    options: Any = found() if found else None
    if code == "SOFTMAX":
        options.beta = 1.0
    return options


def one(code: str, options: Any, given: tuple[float, int], made: tuple[float, int]) -> tuple[Graph, bytes]:
    """Return a graph of one operator, and its file."""
    rng = np.random.default_rng(3)
    shape = (1, 3, 5, 4) if code == "MEAN" else (1, 12)
    x = Tensor("x", shape, shape, INT8, None, Quantization(np.array([given[0]], np.float32), given[1]))
    shape = {"MEAN": (1, 4), "FULLY_CONNECTED": (1, 7)}.get(code, shape)
    y = Tensor("y", shape, shape, INT8, None, Quantization(np.array([made[0]], np.float32), made[1]))
    inputs = [x]
    if code == "FULLY_CONNECTED":
        data = rng.integers(-127, 128, (7, 12)).astype(np.int8)
        inputs.append(Tensor("w", (7, 12), (7, 12), INT8, data, Quantization(np.array([0.013], np.float32))))
    elif code == "ADD":
        inputs.append(x)
    elif code == "MEAN":
        axes = np.array([1, 2], np.int32)
        inputs.append(Tensor("axes", (2,), (2,), axes.dtype, axes))
    graph = Graph([x], [y])
    graph.add(code, inputs, [y], options, {"FULLY_CONNECTED": 4, "HARD_SWISH": 1}.get(code, 2))
    return graph, flatbuffer.write(graph, "one")
