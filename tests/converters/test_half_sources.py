"""ONNX models that come in half precision: kept as they are, and made float32 for every other variant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

import edge_infer
from edge_infer import Bundle
from edge_infer.errors import ConversionError
from edge_infer.parity import comparison
from edge_infer_converters import Recipe, convert, convert_run
from edge_infer_converters.passes.fp16 import to_fp16
from edge_infer_converters.passes.graphs import graphs_of, sort_nodes, tensors_of
from edge_infer_converters.passes.widen import widen
from edge_infer_converters.sources.factory import open_source
from tests.support import warm_command, zoo
from tests.support.converters.engines import random_feeds, run_onnx
from tests.support.converters.small_models import MODELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.model_files import WriteModel

NODE = helper.make_node
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
WEIGHTS = np.random.default_rng(0).normal(0, 0.3, (16, 16)).astype(np.float16)


def halved(data: bytes, *, keeps_ends: bool) -> bytes:
    """Write a model in half precision as ONNX Runtime's converter does, whose files the Hub has."""
    half = convert_float_to_float16(onnx.load_from_string(data), keep_io_types=keeps_ends)
    sort_nodes(half.graph)
    return bytes(onnx.shape_inference.infer_shapes(half).SerializeToString())


def widened(data: bytes) -> onnx.ModelProto:
    """Return a model in float32, checked: valid, with the same inputs and outputs, and halves at most there."""
    source = onnx.load_from_string(data)
    wide = widen(source)
    assert wide is not None
    onnx.checker.check_model(wide)
    assert source.SerializeToString() == data
    assert ends_of(wide) == ends_of(source)
    assert not [tensor.name for tensor in tensors_of(wide.graph) if tensor.data_type in HALVES]
    assert {name for node in casts(wide, HALVES) for name in node.output} <= {value.name for value in wide.graph.output}
    return wide


def ends_of(model: onnx.ModelProto) -> list[tuple[str, int]]:
    return [(one.name, one.type.tensor_type.elem_type) for one in (*model.graph.input, *model.graph.output)]


def casts(model: onnx.ModelProto, to: Sequence[int] = (TensorProto.FLOAT, *HALVES)) -> list[onnx.NodeProto]:
    return [
        node
        for graph in graphs_of(model.graph)
        for node in graph.node
        if node.op_type == "Cast" and node.attribute[0].i in to
    ]


def nearness(data: bytes, wide: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]] | None = None) -> float:
    """Return how near a model in float32 is to the same in half precision, in decibels."""
    given = random_feeds(data) if feeds is None else feeds
    return comparison.compare([run_onnx(data, given)], [run_onnx(wide.SerializeToString(), given)]).sqnr_db


def branches(dtype: str = "float16") -> bytes:
    """y = x w in one branch, a constant and a cast in the other."""
    kind = zoo.ELEMENT_TYPES[dtype]
    two = numpy_helper.from_array(np.full((2, 16), 2, dtype), "two")
    first = helper.make_graph([NODE("MatMul", ["x", "w"], ["a"])], "first", [], [zoo.value("a", [2, 16], dtype)])
    second = helper.make_graph(
        [NODE("Constant", [], ["c"], value=two), NODE("Cast", ["c"], ["b"], to=kind)],
        *("second", [], [zoo.value("b", [2, 16], dtype)]),
    )
    node = NODE("If", ["flag"], ["y"], then_branch=first, else_branch=second)
    inputs = [zoo.value("x", [2, 16], dtype), zoo.value("flag", [], "bool")]
    return zoo.model([node], inputs, [zoo.value("y", [2, 16], dtype)], {"w": WEIGHTS.astype(dtype)})


def loop() -> bytes:
    """Three times x w, each behind the other, in a loop whose body reads w from outside."""
    body = helper.make_graph(
        [NODE("MatMul", ["given", "w"], ["made"]), NODE("Identity", ["more"], ["again"])],
        "body",
        [zoo.value("i", [], "int64"), zoo.value("more", [], "bool"), zoo.value("given", [2, 16], "float16")],
        [zoo.value("again", [], "bool"), zoo.value("made", [2, 16], "float16")],
    )
    weights: dict[str, np.ndarray[Any, Any]] = {"w": WEIGHTS, "count": np.array(3), "true": np.array(True)}
    ends = [zoo.value("x", [2, 16], "float16")], [zoo.value("y", [2, 16], "float16")]
    return zoo.model([NODE("Loop", ["count", "true", "x"], ["y"], body=body)], *ends, weights)


def function() -> bytes:
    """y = twice(x w), where `twice` is the model's own function with a constant in it."""
    two = numpy_helper.from_array(np.array(2, np.float16), "two")
    nodes = [NODE("Constant", [], ["two"], value=two), NODE("Mul", ["a", "two"], ["b"])]
    opset = [helper.make_opsetid("", zoo.OPSET), helper.make_opsetid("own", 1)]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], nodes, opset[:1])
    graph = helper.make_graph(
        [NODE("MatMul", ["x", "w"], ["m"]), NODE("Twice", ["m"], ["y"], domain="own")],
        *("net", [zoo.value("x", [2, 16], "float16")], [zoo.value("y", [2, 16], "float16")]),
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    model = helper.make_model(graph, opset_imports=opset, functions=[twice], ir_version=10)
    return bytes(model.SerializeToString())


def types_by_attribute() -> bytes:
    """Values whose type only an attribute says, and a list of them."""
    filled = helper.make_tensor("filled", TensorProto.FLOAT16, [1], [0.5])
    nodes = [
        NODE("ConstantOfShape", ["shape"], ["half"], value=filled),
        NODE("EyeLike", ["half"], ["eye"], dtype=TensorProto.FLOAT16),
        NODE("SequenceEmpty", [], ["empty"], dtype=TensorProto.FLOAT16),
        NODE("SequenceInsert", ["empty", "half"], ["one"]),
        NODE("SequenceInsert", ["one", "eye"], ["both"]),
        NODE("ConcatFromSequence", ["both"], ["joined"], axis=0),
        NODE("MatMul", ["joined", "x"], ["y"]),
    ]
    ends = [zoo.value("x", [16, 3], "float16")], [zoo.value("y", [8, 3], "float16")]
    return zoo.model(nodes, *ends, {"shape": np.array([4, 16])})


def through() -> bytes:
    """An output that is an input, one that is a weight, and y = x w."""
    outputs = [zoo.value("x", [2, 16], "float16"), zoo.value("w", [16, 16], "float16")]
    ends = [zoo.value("x", [2, 16], "float16")], [*outputs, zoo.value("y", [2, 16], "float16")]
    return zoo.model([NODE("MatMul", ["x", "w"], ["y"])], *ends, {"w": WEIGHTS})


@pytest.mark.parametrize("keeps_ends", [True, False], ids=["float ends", "half ends"])
@pytest.mark.parametrize("name", list(MODELS))
def test_a_network_in_half_precision_is_the_same_in_float32(name: str, keeps_ends: bool) -> None:
    data = halved(MODELS[name](), keeps_ends=keeps_ends)

    wide = widened(data)

    assert nearness(data, wide) > 60
    ends = {name for name, kind in ends_of(wide) if kind == TensorProto.FLOAT16}
    integers = {value.name for value in wide.graph.input if value.type.tensor_type.elem_type == TensorProto.INT64}
    assert all({*node.input, *node.output} & (ends | integers) for node in casts(wide))  # none is left between floats


@pytest.mark.parametrize("make", [branches, loop, function, types_by_attribute, through])
def test_graphs_within_graphs_functions_lists_and_ends_are_widened(make: Any) -> None:
    data = make()

    assert nearness(data, widened(data)) > 60


def test_both_branches_compute_in_float32() -> None:
    data = branches()
    wide = widened(data)

    for flag in (True, False):
        assert nearness(data, wide, {**random_feeds(data), "flag": np.array(flag)}) > 60


def test_weights_in_halves_that_are_cast_to_float32_lose_their_casts() -> None:
    """As our own `fp16` writes a model with branches; a constant at the end of a branch needs a node before it."""
    half = to_fp16(onnx.load_from_string(branches("float32")))
    wide = widened(half.SerializeToString())

    assert [node.output[0] for node in casts(half)] == ["w", "c", "b"]
    assert [node.output[0] for node in casts(wide)] == ["b"]


def test_bfloat16_is_widened_too() -> None:
    stored = helper.make_tensor("stored", TensorProto.BFLOAT16, [16, 16], WEIGHTS.astype(np.float32).reshape(-1))
    model = onnx.load_from_string(
        zoo.model(
            [NODE("Cast", ["stored"], ["w"], to=TensorProto.FLOAT), NODE("MatMul", ["x", "w"], ["y"])],
            *([zoo.value("x", [2, 16])], [zoo.value("y", [2, 16])]),
        )
    )
    model.graph.initializer.append(stored)
    data = model.SerializeToString()
    wide = widened(data)

    assert nearness(data, wide) > 100
    assert not casts(wide)


def test_numbers_beyond_half_stay_what_the_source_has() -> None:
    """The largest half stays itself, minus infinity infinite; what a cast would make infinite is finite."""
    nodes = [
        NODE("Add", ["x", "mask"], ["masked"]),
        NODE("Cast", ["far"], ["near"], to=TensorProto.FLOAT16),
        NODE("Min", ["masked", "near"], ["least"]),
        NODE("Softmax", ["least"], ["y"], axis=-1),
    ]
    mask = np.array([0, -65504, -np.inf, 0], np.float16)
    ends = [zoo.value("x", [2, 4], "float16")], [zoo.value("y", [2, 4], "float16")]
    data = zoo.model(nodes, *ends, {"mask": mask, "far": np.array(1e9, np.float32)})
    wide = widened(data)

    (stored,) = (numpy_helper.to_array(one) for one in wide.graph.initializer if one.name == "mask")
    np.testing.assert_array_equal(stored, mask.astype(np.float32))
    assert nearness(data, wide) > 60


def bits() -> bytes:
    """The bits of x w, which only a half has."""
    nodes = [NODE("MatMul", ["x", "w"], ["m"]), NODE("BitCast", ["m"], ["y"], to=TensorProto.UINT16)]
    ends = [zoo.value("x", [2, 16], "float16")], [zoo.value("y", [2, 16], "uint16")]
    return zoo.model(nodes, *ends, {"w": WEIGHTS}, opset=26)


def test_a_model_that_reads_the_bits_of_halves_is_kept_alone(write_model: WriteModel, tmp_path: Path) -> None:
    source = open_source(write_model(bits()))
    assert (source.precision, source.is_float) == ("fp16", False)

    result = convert(write_model(bits()), tmp_path / "m.bundle")

    assert [one.variant.id for one in result.variants] == ["onnx/fp16"]


@pytest.mark.parametrize(("name", "keeps_ends"), [("ds_cnn", True), ("vision_transformer", False)])
def test_a_bundle_has_the_source_and_variants_that_verify_holds_to_it(
    write_model: WriteModel, tmp_path: Path, name: str, keeps_ends: bool
) -> None:
    data = halved(MODELS[name](), keeps_ends=keeps_ends)

    result = convert(write_model(data), tmp_path / "m.bundle", precision="fp16,fp32,int8")

    bundle = Bundle.open(tmp_path / "m.bundle")
    assert {"onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32", "tflite/int8"} <= {
        one.variant.id for one in result.variants
    }
    kept = onnx.load_from_string(bundle.read("onnx/model_fp16.onnx"))
    source = onnx.load_from_string(data)
    assert [one.SerializeToString() for one in kept.graph.node] == [
        one.SerializeToString() for one in source.graph.node
    ]
    assert list(kept.graph.initializer) == list(source.graph.initializer)
    wanted = {True: "float32", False: "float16"}[keeps_ends]
    assert {str(spec.dtype) for spec in bundle.manifest.outputs} == {wanted}
    ran = warm_command.run(["verify", "m.bundle"], cwd=tmp_path, timeout_s=600)
    assert ran.returncode == 0, ran.stdout


def test_golden_outputs_are_those_of_the_source(write_model: WriteModel, tmp_path: Path) -> None:
    data = halved(MODELS["ds_cnn"](), keeps_ends=False)
    convert(write_model(data), tmp_path / "m.bundle", format="onnx", precision="int8")

    for feeds, outputs in Bundle.open(tmp_path / "m.bundle").examples():
        (given, wanted) = (
            {name: np.asarray(one).view(np.float16) for name, one in side.items()} for side in (feeds, outputs)
        )
        assert comparison.compare([run_onnx(data, given)], [wanted]).max_err == 0


def test_a_session_takes_and_gives_halves_whatever_the_variant(write_model: WriteModel, tmp_path: Path) -> None:
    data = halved(MODELS["ds_cnn"](), keeps_ends=False)
    convert(write_model(data), tmp_path / "m.bundle", precision="fp32,int8")

    for variant in ("onnx/fp32", "onnx/int8", "tflite/fp32", "tflite/int8"):
        with edge_infer.load(tmp_path / "m.bundle", variant=variant, arrays="numpy") as session:
            (result,) = session.run(random_feeds(data)).values()
        assert result.dtype == np.float16


def test_the_source_is_kept_for_every_target_that_takes_it() -> None:
    def made(source: str, **options: Any) -> list[str]:
        return [plan.id for plan in Recipe.of(**options).plans("fp16", source, is_float=True)]

    assert made("onnx", format="onnx") == ["onnx/fp32", "onnx/fp16", "onnx/int8"]
    assert made("onnx", format="onnx", target="pi") == ["onnx/fp32", "onnx/fp16", "onnx/int8"]
    assert made("onnx", format="onnx", precision="int8") == ["onnx/int8"]
    assert made("onnx", target="mcu") == ["tflite/int8"]
    assert made("tflite", format="tflite", target="pi") == ["tflite/fp16", "tflite/int8"]


def test_what_is_made_is_foreseen(write_model: WriteModel) -> None:
    model = write_model(halved(zoo.mlp(), keeps_ends=True))

    foreseen = convert_run.foresee(model, None, Recipe.of(format="onnx"))

    assert [(one.id, one.nbytes is not None) for one in foreseen.variants] == [
        *(("onnx/fp32", True), ("onnx/fp16", True), ("onnx/int8", True))
    ]


def test_integer_ends_are_not_made_of_half_ones(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="is of float16: inputs and outputs of float32 become integers"):
        convert(write_model(halved(MODELS["ds_cnn"](), keeps_ends=False)), tmp_path / "m.bundle", target="mcu")
