"""Biases take back what rounded weights shift: learnt on some inputs, kept where others are the better for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer_converters import convert
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes.correct_biases import correct_biases
from edge_infer_converters.passes.int8_static import prepare, to_int8
from tests.support import zoo
from tests.support.converters.engines import run_onnx
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def depthwise(*, has_bias: bool = True) -> onnx.ModelProto:
    """Depthwise convolutions with one large weight in nine, whose rounding errors the others suffer, on inputs >= 0."""
    rng = np.random.default_rng(8)
    weights: dict[str, Any] = {}
    nodes, value = [], "x"
    for i in range(3):
        filters = rng.uniform(0.004, 0.01, (16, 1, 3, 3)) * rng.choice([-1, 1], (16, 1, 1, 1))
        filters[:, 0, 1, 1] = 1
        weights |= {f"w{i}": filters, **({f"b{i}": rng.normal(0, 0.1, 16)} if has_bias else {})}
        given = [value, f"w{i}", *([f"b{i}"] if has_bias else [])]
        nodes += [
            helper.make_node("Conv", given, [f"c{i}"], name=f"conv{i}", group=16, pads=[1] * 4),
            helper.make_node("Relu", [f"c{i}"], [f"a{i}"]),
        ]
        value = f"a{i}"
    nodes[-1].output[0] = "y"
    stored = {name: one.astype(np.float32) for name, one in weights.items()}
    model = zoo.model(nodes, [zoo.value("x", [1, 16, 8, 8])], [zoo.value("y", [1, 16, 8, 8])], stored)
    return onnx.load_from_string(model)


def calls(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.uniform(0, 1, (1, 16, 8, 8)).astype(np.float32)} for _ in range(count)]


def sqnr(model: onnx.ModelProto, other: onnx.ModelProto, given: list[dict[str, Any]]) -> float:
    wanted, got = ([run_onnx(one.SerializeToString(), call) for call in given] for one in (model, other))
    return decibels(noise(wanted, got))


@pytest.mark.parametrize("has_bias", [True, False])
def test_inputs_that_nobody_learnt_from_are_the_better_for_it(has_bias: bool) -> None:
    model, held_out = depthwise(has_bias=has_bias), calls(8, seed=1)

    plain, corrected = (to_int8(model, calls(24), corrects=count) for count in (0, 24))

    assert sqnr(model, corrected, held_out) > sqnr(model, plain, held_out) + 1


def test_what_weights_in_8_bits_shift_is_taken_back() -> None:
    model = prepare(depthwise())
    corrected = correct_biases(model, calls(16))
    rounded = onnx.ModelProto()
    rounded.CopyFrom(corrected)
    for tensor in rounded.graph.initializer:
        if tensor.name == "w0":
            values = numpy_helper.to_array(tensor)
            scales = np.abs(values).max(axis=(1, 2, 3), keepdims=True) / 127
            tensor.CopyFrom(numpy_helper.from_array((np.rint(values / scales) * scales).astype(np.float32), "w0"))
    for one in (model, rounded):
        one.graph.output.append(onnx.ValueInfoProto(name="c0"))
    wanted, got = (
        np.mean([run_onnx(one.SerializeToString(), call)["c0"] for call in calls(16)], axis=(0, 1, 3, 4))
        for one in (model, rounded)
    )

    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_shared_weights_and_biases_of_other_shapes_are_left_alone() -> None:
    rng = np.random.default_rng(2)
    stored = {"w": rng.normal(0, 1, (8, 4)), "c": rng.normal(0, 1, (3, 4)), "v": rng.normal(0, 1, (4, 4))}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["one"], name="one"),
        helper.make_node("Gemm", ["one", "v"], ["two"], name="two"),
        helper.make_node("Gemm", ["two", "v"], ["y"], name="three"),
    ]
    floats = {name: value.astype(np.float32) for name, value in stored.items()}
    model = onnx.load_from_string(zoo.model(nodes, [zoo.value("x", [3, 8])], [zoo.value("y", [3, 4])], floats))

    assert correct_biases(model, [{"x": np.ones((3, 8), np.float32)}]) == model


def test_a_budget_tries_it_and_says_what_it_gained(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(depthwise().SerializeToString()), tmp_path / "data.npz"
    np.savez(data, x=np.concatenate([call["x"] for call in calls(40)]))
    options: dict[str, Any] = {"format": "onnx", "precision": "fp32,int8", "calibration": data, "keep_all": True}
    told = Told()

    plain = convert(model, tmp_path / "plain.bundle", **options)
    tried = convert(model, tmp_path / "tried.bundle", min_sqnr=20, reporter=told, **options)

    assert any("biases corrected: +" in line for line in told.steps)
    assert tried.variants[1].quality.parity.sqnr_db > plain.variants[1].quality.parity.sqnr_db


def test_it_is_not_kept_where_it_does_not_win(write_model: WriteModel, tmp_path: Path) -> None:
    """Weights that 8 bits hold exactly shift nothing: the file is the one without it, byte for byte."""
    model = depthwise()
    for tensor in model.graph.initializer:
        if tensor.name.startswith("w"):
            values = np.rint(numpy_helper.to_array(tensor) * 127) / 127
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    path = write_model(model.SerializeToString())
    options: dict[str, Any] = {"format": "onnx", "precision": "fp32,int8", "keep_all": True}

    plain = convert(path, tmp_path / "plain.bundle", **options)
    tried = convert(path, tmp_path / "tried.bundle", min_sqnr=20, **options)

    files = [(made.path / "onnx/model_int8.onnx").read_bytes() for made in (plain, tried)]
    assert files[0] == files[1]
