"""Channels that no input changes are taken out, and every answer stays what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_infer.errors import InputError
from edge_infer_converters import Recipe, convert
from edge_infer_converters.passes.prune_channels import prune_channels
from edge_infer_converters.passes.prune_weak import measure_channels, prune_weak
from tests.support import zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def chain(
    *, dead: tuple[int, ...] = (), bias: float = 0.3, pads: int = 1, activation: str = "Relu", seed: int = 0
) -> onnx.ModelProto:
    """Three layers, 3 to 8 to 6 channels to 5 classes; the dead channels of the first have no weights but a bias."""
    rng = np.random.default_rng(seed)
    weights: dict[str, Any] = {
        "w0": rng.normal(0, 1, (8, 3, 3, 3)),
        "b0": rng.normal(0, 1, 8),
        "w1": rng.normal(0, 1, (6, 8, 3, 3)),
        "w2": rng.normal(0, 1, (6, 5)),
    }
    weights["w0"][list(dead)] = 0
    weights["b0"][list(dead)] = bias
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], name="first", pads=[1] * 4),
        helper.make_node(activation, ["c0"], ["a0"]),
        helper.make_node("Conv", ["a0", "w1"], ["c1"], name="second", pads=[pads] * 4),
        helper.make_node("Relu", ["c1"], ["a1"]),
        helper.make_node("GlobalAveragePool", ["a1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="head"),
    ]
    stored = {name: value.astype(np.float32) for name, value in weights.items()}
    data = zoo.model(nodes, [zoo.value("x", ["n", 3, 9, 9])], [zoo.value("y", ["n", 5])], stored)
    return onnx.load_from_string(data)


def equal_answers(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    x = np.random.default_rng(9).normal(0, 2, (3, 3, 9, 9)).astype(np.float32)
    wanted, got = (run_onnx(model.SerializeToString(), {"x": x})["y"] for model in (one, other))
    return bool(np.allclose(wanted, got, rtol=1e-4, atol=1e-4 * np.abs(wanted).max()))


@pytest.mark.parametrize(
    ("bias", "pads", "removed"), [(-0.5, 1, {"first": 2}), (0.3, 0, {"first": 2}), (0.3, 1, {}), (0.0, 1, {"first": 2})]
)
def test_channels_without_weights_go_where_their_constant_can(bias: float, pads: int, removed: dict[str, int]) -> None:
    model = chain(dead=(1, 6), bias=bias, pads=pads)

    pruned = prune_channels(model)

    assert pruned.removed == removed
    assert equal_answers(model, pruned.model)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in pruned.model.graph.initializer}
    assert shapes["w0"][0] == shapes["w1"][1] == 8 - sum(removed.values())
    onnx.checker.check_model(pruned.model, full_check=True)


def test_a_relu_that_no_sum_can_reach_is_dead() -> None:
    """Behind a ReLU all inputs are positive: with negative weights and bias the sum never is."""
    model = chain()
    rng = np.random.default_rng(2)
    (tensor,) = [one for one in model.graph.initializer if one.name == "w1"]
    weights = onnx.numpy_helper.to_array(tensor).copy()
    weights[4] = -np.abs(weights[4])
    tensor.CopyFrom(onnx.numpy_helper.from_array(weights, "w1"))
    last = onnx.numpy_helper.from_array(rng.normal(0, 1, (7, 6, 1, 1)).astype(np.float32), "w3")
    bias = onnx.numpy_helper.from_array(np.full(6, -0.1, np.float32), "b1")
    model.graph.initializer.extend([last, bias])
    nodes = list(model.graph.node)[:4]
    nodes[2].input.append("b1")
    nodes.append(helper.make_node("Conv", ["a1", "w3"], ["y"], name="third"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.output[0].CopyFrom(zoo.value("y", ["n", 7, 9, 9]))

    pruned = prune_channels(model)

    assert pruned.removed == {"second": 1}
    assert equal_answers(model, pruned.model)


@pytest.mark.parametrize("activation", ["Sigmoid", "Softmax"])
def test_other_activations_are_left_alone(activation: str) -> None:
    assert prune_channels(chain(dead=(1,), bias=-1, activation=activation)).removed == {}


def test_a_layer_that_is_read_twice_is_left_alone() -> None:
    model = chain(dead=(1,), bias=-1)
    model.graph.output.append(zoo.value("a0", ["n", 8, 9, 9]))

    assert prune_channels(model).removed == {}


def test_all_channels_dead_keep_the_layer() -> None:
    model = chain(dead=tuple(range(8)), bias=-1)

    assert prune_channels(model).removed == {}


@settings(max_examples=10, deadline=None)
@given(st.sets(st.integers(0, 7), max_size=7), st.floats(-2, 2), st.sampled_from([0, 1]), st.integers(0, 1000))
def test_no_answer_changes(dead: set[int], bias: float, pads: int, seed: int) -> None:
    model = chain(dead=tuple(dead), bias=bias, pads=pads, seed=seed)

    assert equal_answers(model, prune_channels(model).model)


def test_the_command_removes_them_where_it_is_asked(write_model: WriteModel, tmp_path: Path) -> None:
    model = write_model(chain(dead=(1, 2, 3), bias=-1).SerializeToString())

    plain, pruned = (
        convert(model, tmp_path / f"{prunes}.bundle", recipe=Recipe(("onnx",), ("fp32",), prunes=prunes))
        for prunes in (False, True)
    )

    assert pruned.variants[0].nbytes < plain.variants[0].nbytes - 900
    assert pruned.variants[0].quality.verdict.word == "ok"


def calls(count: int = 8) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{"x": rng.normal(0, 1, (1, 3, 9, 9)).astype(np.float32)} for _ in range(count)]


def test_the_channels_that_matter_least_go_first() -> None:
    model = chain()
    (weights,) = [one for one in model.graph.initializer if one.name == "w1"]
    values = onnx.numpy_helper.to_array(weights).copy()
    values[:, [2, 5]] *= 1e-3  # hardly read
    weights.CopyFrom(onnx.numpy_helper.from_array(values, "w1"))
    channels = measure_channels(model, calls())

    pruned, removed = prune_weak(model, channels, 0.25)

    assert removed == 2
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in pruned.graph.initializer}
    np.testing.assert_array_equal(stored["w1"], values[:, [0, 1, 3, 4, 6, 7]])


def test_a_removed_channel_leaves_its_mean_behind() -> None:
    """A channel that is the same for every input, whatever its size, changes nothing when it goes."""
    model = chain(dead=(3,), bias=2.0, pads=0)
    pruned, removed = prune_weak(model, {"a0": measure_channels(model, calls())["a0"]}, 0.125)

    assert removed == 1
    assert equal_answers(model, pruned)


def test_pruning_stays_within_the_budget_and_makes_the_file_smaller(write_model: WriteModel, tmp_path: Path) -> None:
    model = write_model(spare().SerializeToString())
    options: dict[str, Any] = {"format": "onnx", "precision": "fp32,mixed", "min_sqnr": 30, "cache": False}

    plain = convert(model, tmp_path / "plain.bundle", **options)
    pruned = convert(model, tmp_path / "pruned.bundle", prune="50%", **options)

    assert pruned.variants[1].nbytes < 0.8 * plain.variants[1].nbytes
    assert pruned.variants[1].quality.parity.sqnr_db >= 30


def test_a_network_without_spare_channels_is_left_as_it_is(write_model: WriteModel, tmp_path: Path) -> None:
    model = write_model(chain().SerializeToString())
    options: dict[str, Any] = {"format": "onnx", "precision": "fp32,mixed", "min_sqnr": 40, "cache": False}

    plain, pruned = (convert(model, tmp_path / f"{share}.bundle", prune=share, **options) for share in (None, "50%"))

    assert pruned.variants[1].nbytes == plain.variants[1].nbytes


def spare() -> onnx.ModelProto:
    """Two layers with 64 channels between them, half of which are hardly read."""
    rng = np.random.default_rng(3)
    weights = {"w0": rng.normal(0, 1, (64, 3, 3, 3)), "w1": rng.normal(0, 1, (32, 64, 3, 3))}
    weights["w1"][:, ::2] *= 1e-3
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], name="first"),
        helper.make_node("Relu", ["c0"], ["a0"]),
        helper.make_node("Conv", ["a0", "w1"], ["y"], name="second"),
    ]
    stored = {name: value.astype(np.float32) for name, value in weights.items()}
    model = zoo.model(nodes, [zoo.value("x", ["n", 3, 9, 9])], [zoo.value("y", ["n", 32, 5, 5])], stored)
    return onnx.load_from_string(model)


@pytest.mark.parametrize("given", [{"prune": "30%"}, {"transport": "palette"}])
def test_options_of_mixed_ask_for_it_or_say_that_it_is_missing(given: dict[str, Any]) -> None:
    assert "onnx/mixed" in [plan.id for plan in Recipe.of(**given).plans("fp32")]
    with pytest.raises(InputError, match="shape onnx/mixed"):
        Recipe.of(format="tflite", **given)
    for source in (("int8", "onnx"), ("fp32", "tflite")):  # nothing to search, and no ONNX file unless asked for
        with pytest.raises(InputError, match="shape onnx/mixed"):
            Recipe.of(**given).plans(*source)
    assert "onnx/mixed" in [plan.id for plan in Recipe.of(format="both", **given).plans("fp32", "tflite")]


@pytest.mark.parametrize("share", ["100%", "-1%", 1.5])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(InputError, match=r"--prune|share of the channels"):
        Recipe.of(prune=share)
