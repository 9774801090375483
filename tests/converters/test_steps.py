"""The steps: what each changes, what it leaves, and how much the numbers move."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer.errors import ConversionError
from edge_infer.parity import comparison, quantization_steps
from edge_infer_converters.passes.clean_up import clean_up
from edge_infer_converters.passes.fold_batch_norm import fold_batch_norm
from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.fp16 import engine_options, has_float_weights, to_fp16
from edge_infer_converters.passes.int8_static import is_quantizable, to_int8
from edge_infer_converters.passes.shorten_names import shorten_names
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx
from tests.support.converters.small_cnn import calibration, small_cnn


def test_clean_up_drops_notes_and_keeps_the_model() -> None:
    model = small_cnn()
    model.doc_string = model.graph.doc_string = model.graph.node[0].doc_string = "long"
    model.metadata_props.add(key="a", value="b")
    model.graph.node[0].metadata_props.add(key="stack", value="trace")
    model.graph.value_info.append(zoo.value("w", [8, 3, 3, 3]))

    cleaned = clean_up(model)

    assert cleaned == small_cnn()
    assert model.graph.node[0].doc_string == "long", "the source is not changed"


def test_clean_up_reaches_subgraphs() -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["z"], doc_string="note")], "b", [], [zoo.value("z", [1])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    inputs = [zoo.value("x", [1]), zoo.value("c", [], "bool")]
    model = onnx.load_from_string(zoo.model([node], inputs, [zoo.value("y", [1])]))

    cleaned = clean_up(model)

    assert b"note" not in cleaned.SerializeToString()


def test_a_batch_normalization_becomes_part_of_its_convolution() -> None:
    model = small_cnn()
    feeds = random_feeds(model.SerializeToString(), batch=2)

    folded = fold_batch_norm(model)

    assert [node.op_type for node in folded.graph.node][:2] == ["Conv", "Relu"]
    assert {tensor.name for tensor in folded.graph.initializer} == {"norm/weight", "norm/bias", "v", "c"}
    wanted, got = run_onnx(model.SerializeToString(), feeds), run_onnx(folded.SerializeToString(), feeds)
    assert comparison.judge(comparison.compare([wanted], [got]), "fp32").word == "ok"


def test_a_convolution_with_two_readers_keeps_its_batch_normalization() -> None:
    model = small_cnn()
    model.graph.output.append(zoo.value("conv", ["batch", 8, 8, 8]))

    folded = fold_batch_norm(model)

    assert "BatchNormalization" in {node.op_type for node in folded.graph.node}


def test_fp16_halves_the_weights_and_keeps_float32_at_both_ends() -> None:
    model = small_cnn()
    feeds = random_feeds(model.SerializeToString(), batch=4)

    half = to_fp16(model)

    onnx.checker.check_model(half, full_check=True)
    ends = [value.type.tensor_type.elem_type for value in (*half.graph.input, *half.graph.output)]
    assert ends == [onnx.TensorProto.FLOAT] * 2
    assert {tensor.data_type for tensor in half.graph.initializer} == {onnx.TensorProto.FLOAT16}
    wanted, got = run_onnx(model.SerializeToString(), feeds), run_onnx(half.SerializeToString(), feeds)
    assert comparison.judge(comparison.compare([wanted], [got]), "fp16").word == "ok"


def test_fp16_leaves_integer_tensors_alone() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["g"]),
        helper.make_node("Add", ["g", "one"], ["y"]),
    ]
    weights = {"table": np.ones((5, 3), np.float32), "one": np.array([1], np.float32)}
    model = zoo.model(nodes, [zoo.value("rows", ["n"], "int64")], [zoo.value("y", ["n", 3])], weights)

    half = to_fp16(onnx.load_from_string(model))

    got = run_onnx(half.SerializeToString(), {"rows": np.array([0, 4], np.int64)})
    np.testing.assert_array_equal(got["y"], np.full((2, 3), 2, np.float32))


def test_a_model_without_weights_has_nothing_to_make_smaller() -> None:
    assert not has_float_weights(onnx.load_from_string(zoo.identity()))
    assert not is_quantizable(onnx.load_from_string(zoo.identity()))
    assert has_float_weights(small_cnn())
    assert is_quantizable(small_cnn())


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_int8_keeps_float_ends_and_30_decibels(opset: int) -> None:
    model = small_cnn(opset)
    feeds = random_feeds(model.SerializeToString(), batch=1, seed=100)

    small = to_int8(model, calibration(model))

    ends = [value.type.tensor_type.elem_type for value in (*small.graph.input, *small.graph.output)]
    assert ends == [onnx.TensorProto.FLOAT] * 2
    wanted = run_onnx(model.SerializeToString(), feeds)
    got = run_onnx(small.SerializeToString(), feeds, optimize=True)
    assert comparison.judge(comparison.compare([wanted], [got]), "int8").word == "ok"


def test_int8_weights_are_signed_full_range_and_per_channel() -> None:
    small = to_int8(small_cnn(), calibration(small_cnn()))

    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in small.graph.initializer}
    kernels = [value for value in stored.values() if value.dtype == np.int8 and value.ndim > 1]
    assert sorted(kernel.shape for kernel in kernels) == [(8, 3, 3, 3), (8, 4)]
    for kernel, axis in zip(sorted(kernels, key=lambda one: one.ndim), ((0,), (1, 2, 3)), strict=True):
        assert (np.abs(kernel.astype(int)).max(axis=axis) == 127).all(), "7-bit weights would end at 64"
    activations = [value for value in stored.values() if value.dtype == np.uint8]
    assert activations
    assert all(zero_point.ndim == 0 for zero_point in activations)


def test_int8_is_the_same_with_and_without_fusions_in_precise_mode() -> None:
    """What the integer kernels give is what the graph says, within one step: nothing saturates on the way."""
    model = small_cnn()
    small = to_int8(model, calibration(model)).SerializeToString()
    calls = calibration(model, 32)

    fused = [run_onnx(small, call, optimize=True, precise=True) for call in calls]
    as_written = [run_onnx(small, call) for call in calls]

    assert quantization_steps.steps_apart(as_written, fused) <= 1


def test_int8_is_the_same_each_time() -> None:
    model = small_cnn()

    first, second = (to_int8(model, calibration(model)).SerializeToString(deterministic=True) for _ in range(2))

    assert first == second


def test_int8_knows_a_model_whose_gemm_weights_are_transposed_and_shapes_stored() -> None:
    """ONNX Runtime's own preparation dies of this: inferred and stored shape differ."""
    model = onnx.shape_inference.infer_shapes(small_cnn())
    model.graph.value_info.append(zoo.value("v", [4, 8]))

    small = to_int8(model, calibration(model, 2))

    assert "QuantizeLinear" in {node.op_type for node in small.graph.node}
    assert not small.metadata_props


def test_int8_of_a_model_that_does_not_run_on_the_data_is_refused() -> None:
    with pytest.raises(ConversionError, match="cannot be quantized"):
        to_int8(small_cnn(), [{"image": np.zeros((1, 2, 8, 8), np.float32)}])


def test_weights_that_two_nodes_share_load_in_precise_mode() -> None:
    """ONNX Runtime adds unsigned copies of int8 weights once for each reader, and refuses the second."""
    weights = {"w": np.random.default_rng(0).normal(0, 0.3, (8, 8)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    model = onnx.load_from_string(zoo.model(nodes, [zoo.value("x", [2, 8])], [zoo.value("y", [2, 8])], weights))

    small = to_int8(model, calibration(model)).SerializeToString()

    feeds = random_feeds(small)
    wanted = run_onnx(model.SerializeToString(), feeds)
    assert comparison.compare([wanted], [run_onnx(small, feeds, optimize=True, precise=True)]).sqnr_db > 30


def test_constants_are_computed_and_what_would_grow_is_not() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("Identity", ["turned"], ["same"]),
        helper.make_node("Expand", ["one", "size"], ["many"]),
        helper.make_node("Gemm", ["x", "same"], ["g"]),
        helper.make_node("Add", ["g", "many"], ["y"]),
    ]
    weights: dict[str, np.ndarray[Any, Any]] = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "one": np.ones((1,), np.float32),
        "size": np.array([1000, 2], np.int64),
    }
    model = zoo.model(nodes, [zoo.value("x", [1, 3])], [zoo.value("y", [1000, 2])], weights)
    feeds = random_feeds(model)

    folded = fold_constants(onnx.load_from_string(model))

    assert [node.op_type for node in folded.graph.node] == ["Expand", "Gemm", "Add"]
    np.testing.assert_array_equal(run_onnx(folded.SerializeToString(), feeds)["y"], run_onnx(model, feeds)["y"])


def some(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)


_SCALES = np.array([1, 1, 1.5, 1.3], np.float32)
_ALONE: dict[str, tuple[int, dict[str, np.ndarray[Any, Any]], dict[str, Any]]] = {
    "Resize": (
        18,
        {"a": some(1, 2, 5, 5), "": np.zeros(0), "s": _SCALES},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "Softmax": (11, {"a": some(2, 3, 4)}, {}),
    "LpNormalization": (18, {"a": some(3, 6)}, {"p": 1}),
    "DequantizeLinear": (17, {"a": np.arange(-4, 4, dtype=np.int8), "s": np.array(0.5, np.float32)}, {}),
    "Pad": (18, {"a": some(6), "p": np.array([-1, -2])}, {}),
    "GatherElements": (18, {"a": some(2, 4), "i": np.array([[-1, 0], [2, 3]])}, {"axis": -1}),
    "GridSample": (16, {"a": some(1, 1, 4, 4), "g": some(1, 3, 3, 2)}, {"mode": "bicubic"}),
    "Upsample": (9, {"a": some(1, 1, 2, 2), "s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
}


@pytest.mark.parametrize("op", _ALONE)
def test_a_constant_is_what_the_engine_computes(op: str) -> None:
    """ONNX's reference implementation fails on these, or gives other numbers."""
    opset, weights, settings = _ALONE[op]
    nodes = [
        helper.make_node(op, list(weights), ["made"], **settings),
        helper.make_node("Add", ["x", "made"], ["y"]),
    ]
    stored = {name: value for name, value in weights.items() if name}
    model = zoo.model(nodes, [zoo.value("x", [1])], [zoo.value("y", None)], stored, opset=opset)

    folded = fold_constants(onnx.load_from_string(model))

    assert [node.op_type for node in folded.graph.node] == ["Add"]
    feeds = random_feeds(model)
    np.testing.assert_array_equal(run_onnx(folded.SerializeToString(), feeds)["y"], run_onnx(model, feeds)["y"])


@pytest.mark.parametrize(
    ("op", "inputs"), [("SequenceEmpty", []), ("SequenceConstruct", ["w"]), ("LRN", ["w"]), ("Reshape", ["w", "w"])]
)
def test_what_is_no_tensor_or_cannot_be_computed_stays(op: str, inputs: list[str]) -> None:
    nodes = [helper.make_node(op, inputs, ["made"]), helper.make_node("Identity", ["x"], ["y"])]
    model = zoo.model(nodes, [zoo.value("x", [2])], [zoo.value("y", [2])], {"w": some(2, 3)})

    folded = fold_constants(onnx.load_from_string(model))

    assert [node.op_type for node in folded.graph.node] == [op, "Identity"]


def test_a_made_up_name_is_none_of_the_model() -> None:
    statistics = {f"bn/{name}": some(4) ** 2 + 1 for name in ("weight", "bias", "mean", "var")}
    weights = {"w": some(4, 3, 3, 3), **statistics}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *statistics], ["bn"]),
        helper.make_node("Add", ["bn", "bn/weight"], ["y"]),
    ]
    model = zoo.model(nodes, [zoo.value("x", [1, 3, 8, 6])], [zoo.value("y", None)], weights)
    feeds = random_feeds(model)

    folded = fold_batch_norm(onnx.load_from_string(model))

    names = [tensor.name for tensor in folded.graph.initializer]
    assert len(set(names)) == len(names)
    got = run_onnx(folded.SerializeToString(), feeds)["y"]
    np.testing.assert_allclose(got, run_onnx(model, feeds)["y"], atol=1e-5)


def test_inner_names_become_short_and_outer_ones_stay() -> None:
    model = small_cnn()
    feeds = random_feeds(model.SerializeToString())

    short = onnx.ModelProto()
    short.CopyFrom(model)
    shorten_names(short)

    assert [value.name for value in (*short.graph.input, *short.graph.output)] == ["image", "logits"]
    inner = {name for node in short.graph.node for name in (*node.input, *node.output)} - {"image", "logits"}
    assert all(len(name) == 1 for name in inner)
    assert not any(node.name for node in short.graph.node)
    np.testing.assert_array_equal(
        run_onnx(short.SerializeToString(), feeds)["logits"], run_onnx(model.SerializeToString(), feeds)["logits"]
    )


def test_a_short_name_is_never_that_of_an_input() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["inner"]), helper.make_node("Neg", ["inner"], ["b"])]
    model = zoo.model(nodes, [zoo.value("a", [2])], [zoo.value("b", [2])])

    short = onnx.load_from_string(model)
    shorten_names(short)

    assert [list(node.output) for node in short.graph.node] == [["c"], ["b"]]


def test_half_precision_attention_names_the_fusion_that_crashes() -> None:
    """ONNX Runtime 1.31 on x86 dies of a moved batch axis that is fused into a float16 MatMul."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    weights = {"w": np.random.default_rng(0).normal(0, 0.3, (8, 8)).astype(np.float32)}
    model = zoo.model(nodes, [zoo.value("x", [2, 5, 8])], [zoo.value("y", [5, 2, 8])], weights)

    half = to_fp16(onnx.load_from_string(model))

    assert engine_options(half) == {
        "onnxruntime": {"optimization.disable_specified_optimizers": "MatmulTransposeFusion"}
    }
    assert engine_options(to_fp16(small_cnn())) == {}


def test_int8_of_a_shared_bias_whose_copy_would_have_the_name_of_a_value() -> None:
    """ONNX Runtime's quantizer names the copy `bias1`, which overwrote a value of that name."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((4, 4)).astype(np.float32) for i in range(2)}
    weights["bias"] = rng.standard_normal(4).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "bias"], ["bias1"]),
        helper.make_node("Neg", ["bias1"], ["n"]),
        helper.make_node("Gemm", ["n", "w1", "bias"], ["y"]),
    ]
    data = zoo.model(nodes, [zoo.value("x", [2, 4])], [zoo.value("y", [2, 4])], weights)
    feeds = random_feeds(data)

    quantized = to_int8(onnx.load_from_string(data), [feeds])

    difference = run_onnx(quantized.SerializeToString(), feeds)["y"] - run_onnx(data, feeds)["y"]
    assert np.abs(difference).max() < 0.2
