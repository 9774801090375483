"""Weights in fewer bits: each encoding runs on the engine, saves bytes, and gives what `round_trip` says it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes import packing
from edge_infer_converters.passes.int8_dynamic import to_dynamic_int8
from edge_infer_converters.passes.int8_static import to_int8
from edge_infer_converters.passes.weight import Weight
from edge_infer_converters.passes.weight_only import engine_options, prepare, rewrite, weights_of
from edge_infer_converters.search.sensitivity import WeightSession
from tests.support import zoo
from tests.support.converters.engines import run_onnx
from tests.support.converters.ranker import ranker, tokens
from tests.support.converters.small_cnn import calibration, small_cnn

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("shape", [(5, 64), (3, 40), (1, 7), (2, 32)])
def test_blocks_of_four_bits_come_back_near(shape: tuple[int, int]) -> None:
    values = RNG.normal(0, 1, shape).astype(np.float32)

    packed = packing.pack_blocks(values)
    back = packing.unpack_blocks(packed, shape[1])

    assert back.shape == shape
    assert packed.codes.min() >= -8
    assert packed.codes.max() <= 7
    assert decibels(float(np.square(back - values).sum() / np.square(values).sum())) > 18


def test_clipping_a_block_never_adds_error() -> None:
    """Against the plain rule: the extreme becomes -8, nothing is clipped but the other end."""
    values = RNG.standard_t(3, (64, 32)).astype(np.float32)
    extreme = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, None], axis=1)
    scales = packing.halved(extreme / -8)
    plain = np.clip(np.rint(values / scales), -8, 7) * scales

    back = packing.unpack_blocks(packing.pack_blocks(values), 32)

    errors = np.square(back - values).sum(axis=1)
    assert (errors <= np.square(plain - values).sum(axis=1) * (1 + 1e-5)).all()
    assert errors.sum() < np.square(plain - values).sum() * 0.98


def test_scales_are_stored_in_half_precision_where_it_has_all_its_bits() -> None:
    values = np.array([[1e-9] * 32, [0.3] * 32, [9e9] * 32], np.float32)

    scales = packing.pack_slices(values, 0).scales.reshape(-1)

    assert packing.is_half(scales[1:2])
    assert not packing.is_half(scales[:1]), "below 2^-14 half precision loses bits"
    assert not packing.is_half(scales[2:])
    assert np.allclose(scales * 127, values[:, 0], rtol=1e-3)


def test_zeros_stay_zeros() -> None:
    zeros = np.zeros((2, 32), np.float32)

    assert not packing.unpack_blocks(packing.pack_blocks(zeros), 32).any()
    assert not packing.unpack_slices(packing.pack_slices(zeros, 0)).any()


def test_the_weights_of_a_model_are_found_with_what_they_can_be() -> None:
    found = weights_of(prepare(ranker()))

    assert [(weight.name, weight.label, weight.kind, weight.encodings[-1]) for weight in found] == [
        ("table", "embed", "table", "int4"),
        ("filter", "mix", "filter", "int4"),
        ("matrix", "widen", "matrix", "int4"),
        ("gemm", "score", "matrix", "int4"),
        ("bias", "score", "other", "fp16"),
    ]


def test_filters_need_an_operator_set_that_knows_blocks() -> None:
    older = {weight.name: weight.encodings[-1] for weight in weights_of(prepare(ranker(opset=18)))}
    model = prepare(ranker())

    small = rewrite(model, weights_of(model), {"filter": "int4"})

    assert older["filter"] == "int8"
    assert [entry.version for entry in small.opset_import if not entry.domain] == [21]
    onnx.checker.check_model(small, full_check=True)


def test_a_bias_of_packed_weights_is_stored_once() -> None:
    model = prepare(ranker())
    weights = weights_of(model)

    small = rewrite(model, weights, {"gemm": "int4", "bias": "fp16"})

    assert [tensor.data_type for tensor in small.graph.initializer if list(tensor.dims) == [64]] == [
        onnx.TensorProto.FLOAT16
    ]


@pytest.mark.parametrize(("encoding", "share", "limit"), [("fp16", 0.52, 60), ("int8", 0.31, 35), ("int4", 0.2, 13)])
def test_every_encoding_runs_and_saves_what_it_promises(encoding: str, share: float, limit: float) -> None:
    model = prepare(ranker())
    weights = weights_of(model)
    choice = {weight.name: encoding if encoding in weight.encodings else weight.encodings[-1] for weight in weights}

    small = rewrite(model, weights, choice).SerializeToString()

    wanted = run_onnx(model.SerializeToString(), tokens())
    got = run_onnx(small, tokens())
    assert len(small) <= share * model.ByteSize()
    assert decibels(noise([wanted], [got])) >= limit
    assert [value.name for value in onnx.load_from_string(small).graph.input] == ["tokens"]


@pytest.mark.parametrize("encoding", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("name", ["table", "filter", "matrix", "gemm"])
def test_a_weight_fed_as_input_gives_what_the_file_gives(name: str, encoding: str) -> None:
    model = prepare(ranker())
    weights = weights_of(model)
    if encoding not in next(weight for weight in weights if weight.name == name).encodings:
        encoding = "int8"

    (simulated,) = WeightSession(model, weights).run([tokens()], {name: encoding})
    written = run_onnx(rewrite(model, weights, {name: encoding}).SerializeToString(), tokens())

    assert decibels(noise([simulated], [written])) > 110
    exact = run_onnx(model.SerializeToString(), tokens())
    assert decibels(noise([exact], [written])) < 90, "something was packed"


def test_the_estimate_of_a_file_is_near_its_size() -> None:
    model = prepare(ranker())
    weights = weights_of(model)
    for encoding in ("fp16", "int8", "int4"):
        choice = {weight.name: encoding if encoding in weight.encodings else weight.encodings[-1] for weight in weights}
        saved = sum(weight.nbytes("fp32") - weight.nbytes(choice[weight.name]) for weight in weights)

        size = rewrite(model, weights, choice).ByteSize()

        assert abs(model.ByteSize() - saved - size) < 0.02 * model.ByteSize()


def test_a_weight_with_two_readers_is_packed_once_for_both() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    stored = {"w": RNG.normal(0, 0.2, (64, 64)).astype(np.float32)}
    data = zoo.model(nodes, [zoo.value("x", ["n", 64])], [zoo.value("y", ["n", 64])], stored)
    model = prepare(onnx.load_from_string(data))
    feeds = {"x": RNG.normal(0, 1, (2, 64)).astype(np.float32)}
    (weight,) = weights_of(model)

    for encoding, limit in [("fp16", 60.0), ("int8", 35.0), ("int4", 14.0)]:
        small = rewrite(model, [weight], {"w": encoding}).SerializeToString()
        assert decibels(noise([run_onnx(data, feeds)], [run_onnx(small, feeds)])) > limit
        assert len(small) < len(data) * 0.6


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_left_alone(value: float) -> None:
    weights = {"w": np.full((64, 64), value, np.float32)}
    data = zoo.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [zoo.value("x", ["n", 64])],
        [zoo.value("y", ["n", 64])],
        weights,
    )

    assert weights_of(onnx.load_from_string(data)) == ()


def test_what_half_precision_cannot_hold_is_not_stored_in_it() -> None:
    weights = {"w": np.linspace(-1e6, 1e6, 4096).reshape(64, 64).astype(np.float32)}
    data = zoo.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [zoo.value("x", ["n", 64])],
        [zoo.value("y", ["n", 64])],
        weights,
    )

    (weight,) = weights_of(onnx.load_from_string(data))

    assert weight == Weight("w", "w", "matrix", (64, 64), 1, False, ("fp32", "int8", "int4"))


def test_dynamic_int8_computes_in_int8_and_packs_tables_by_row() -> None:
    model = ranker()

    small = to_dynamic_int8(model)

    operators = [node.op_type for node in small.graph.node]
    assert operators.count("MatMulInteger") == 2
    assert operators.count("Gather") == 2
    wanted = run_onnx(model.SerializeToString(), tokens())
    assert decibels(noise([wanted], [run_onnx(small.SerializeToString(), tokens(), optimize=True)])) > 33
    sizes = {tensor.data_type for tensor in small.graph.initializer if len(tensor.dims) == 2 and tensor.dims[1] > 1}
    assert sizes == {onnx.TensorProto.INT8}


def test_static_int8_stores_biases_once_and_still_fuses(tmp_path: Path) -> None:
    model = small_cnn()

    small = to_int8(model, calibration(model))

    assert onnx.TensorProto.INT32 not in {tensor.data_type for tensor in small.graph.initializer}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(small.SerializeToString(), options)
    fused = [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    assert "QLinearConv" in fused
    assert "QGemm" in fused
    assert not {"Conv", "Gemm"} & set(fused)


def test_int4_filters_are_unpacked_once_and_not_in_each_call(tmp_path: Path) -> None:
    model = prepare(ranker())
    weights = weights_of(model)
    choice = {"filter": "int4"}
    settings = engine_options(weights, choice)

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 4
    for name, value in (settings or {})["onnxruntime"].items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(rewrite(model, weights, choice).SerializeToString(), options)

    assert "DequantizeLinear" not in [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    assert engine_options(weights, {"matrix": "int4", "filter": "int8"}) is None
