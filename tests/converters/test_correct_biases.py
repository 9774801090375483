"""Biases take back what rounded weights shift, learnt in the pass that finds the ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer_converters import convert
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes.correct_biases import Biases
from edge_infer_converters.passes.int8_static import prepare, to_int8
from edge_infer_converters.passes.ranges import activation_ranges
from tests.support import zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from collections.abc import Sequence
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


def corrected_by(model: onnx.ModelProto, given: Sequence[dict[str, Any]]) -> onnx.ModelProto:
    biases = Biases(model)
    activation_ranges(model, given, "minmax", biases.see)
    return biases.corrected()


@pytest.mark.parametrize("has_bias", [True, False])
def test_inputs_that_nobody_learnt_from_are_the_better_for_it(has_bias: bool) -> None:
    model, held_out = depthwise(has_bias=has_bias), calls(8, seed=1)

    plain, corrected = (to_int8(model, calls(24), corrects=corrects) for corrects in (False, True))

    assert sqnr(model, corrected, held_out) > sqnr(model, plain, held_out) + 1


def conv(seed: int) -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A convolution with any settings, and inputs of two sizes."""
    rng = np.random.default_rng(seed)
    axes, groups, inputs, outputs = (int(one) for one in rng.integers(1, [3, 4, 4, 4]))
    kernel, strides, dilations = (rng.integers(1, high, axes).tolist() for high in (4, 4, 3))
    settings: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": groups}
    pads = rng.choice(["pads", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    settings |= {"pads": rng.integers(0, 3, 2 * axes).tolist()} if pads == "pads" else {"auto_pad": str(pads)}
    if pads.startswith("SAME"):
        settings["dilations"] = [1] * axes  # ONNX Runtime forgets them in what it pads
    weights = rng.normal(0, 1, (groups * outputs, inputs, *kernel)).astype(np.float32)
    stored = {"w": weights, "b": rng.normal(0, 1, groups * outputs).astype(np.float32)}
    free = [f"d{i}" for i in range(axes)]
    ends = [zoo.value(name, [1, channels, *free]) for name, channels in (("x", groups * inputs), ("y", len(weights)))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", **settings)]
    model = prepare(onnx.load_from_string(zoo.model(nodes, ends[:1], ends[1:], stored)))
    sizes = rng.integers(6, 12, (2, axes))
    given = [{"x": rng.uniform(0, 1, (1, groups * inputs, *sizes[i % 3 // 2])).astype(np.float32)} for i in range(5)]
    return model, given


def rounded(model: onnx.ModelProto, name: str = "w") -> onnx.ModelProto:
    """The model with weights that 8 bits hold."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.name == name:
            values = numpy_helper.to_array(tensor)
            scales = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True) / 127
            tensor.CopyFrom(numpy_helper.from_array((np.rint(values / scales) * scales).astype(np.float32), name))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_on_what_it_learnt_from_a_layer_keeps_its_mean_and_is_never_worse(seed: int) -> None:
    model, given = conv(seed)
    corrected = corrected_by(model, given)

    def outputs(one: onnx.ModelProto) -> np.ndarray:
        found = [run_onnx(one.SerializeToString(), call)["y"] for call in given]
        return np.concatenate([np.moveaxis(y, 1, 0).reshape(y.shape[1], -1) for y in found], axis=1)

    wanted, plain, better = (outputs(one) for one in (model, rounded(model), rounded(corrected)))

    np.testing.assert_allclose(better.mean(axis=1), wanted.mean(axis=1), atol=1e-5)
    worse = np.square(better - wanted).mean(axis=1) - np.square(plain - wanted).mean(axis=1)
    assert worse.max() <= 1e-9


def test_what_weights_in_8_bits_shift_is_taken_back_in_a_net() -> None:
    model = prepare(depthwise())
    back = rounded(corrected_by(model, calls(16)), "w0")
    for one in (model, back):
        one.graph.output.append(onnx.ValueInfoProto(name="c0"))
    wanted, got = (
        np.mean([run_onnx(one.SerializeToString(), call)["c0"] for call in calls(16)], axis=(0, 1, 3, 4))
        for one in (model, back)
    )

    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_values_that_are_not_finite_correct_nothing() -> None:
    model = prepare(depthwise())

    assert corrected_by(model, [{"x": np.full((1, 16, 8, 8), np.inf, np.float32)}]) == model


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

    assert corrected_by(model, [{"x": np.ones((3, 8), np.float32)}]) == model


def test_weights_that_8_bits_hold_exactly_keep_their_file() -> None:
    model = depthwise()
    for tensor in model.graph.initializer:
        if tensor.name.startswith("w"):
            values = np.rint(numpy_helper.to_array(tensor) * 127).astype(np.float64) / 127
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))

    plain, corrected = (to_int8(model, calls(8), corrects=corrects) for corrects in (False, True))

    assert sqnr(plain, corrected, calls(8, seed=1)) > 100


def test_a_conversion_corrects_by_default(write_model: WriteModel, tmp_path: Path) -> None:
    model, data = write_model(depthwise().SerializeToString()), tmp_path / "data.npz"
    np.savez(data, x=np.concatenate([call["x"] for call in calls(24)]))

    made = convert(model, tmp_path / "made.bundle", format="onnx", precision="int8", calibration=data, keep_all=True)

    plain = sqnr(depthwise(), to_int8(depthwise(), calls(24), corrects=False), calls(24))
    assert made.variants[0].quality.parity.sqnr_db > plain + 1
