"""The TFLite writer as a whole: the interface that it keeps, what it refuses, the file that it writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper

from edge_infer.errors import ConversionError, UnsupportedOperator
from edge_infer.parity import comparison
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx, run_tflite


def convolution() -> bytes:
    """Score [batch, 3] of image [batch, 2, 6, 6]."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["score"]),
    ]
    weights = {"w": rng.normal(0, 0.5, (3, 2, 3, 3)).astype(np.float32)}
    return zoo.model(nodes, [zoo.value("image", ["batch", 2, 6, 6])], [zoo.value("score", ["batch", 3])], weights)


def test_names_shapes_and_axis_order_stay() -> None:
    written = tflite.write(onnx.load_from_string(convolution()))

    interpreter = Interpreter(model_content=written.data)
    (image,), (score,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert interpreter.get_signature_list() == {"serving_default": {"inputs": ["image"], "outputs": ["score"]}}
    assert (image["name"], list(image["shape_signature"])) == ("image", [-1, 2, 6, 6])
    assert (score["name"], list(score["shape_signature"])) == ("score", [-1, 3])


def test_a_free_batch_can_be_resized() -> None:
    written = tflite.write(onnx.load_from_string(convolution()))
    feeds = random_feeds(convolution(), batch=5)

    got = run_tflite(written.data, feeds)

    assert got["score"].shape == (5, 3)
    assert comparison.compare([run_onnx(convolution(), feeds)], [got]).sqnr_db >= 100


def test_two_inputs_and_two_outputs_keep_their_names() -> None:
    nodes = [
        helper.make_node("MatMul", ["left", "w"], ["product"]),
        helper.make_node("Add", ["product", "right"], ["sum"]),
    ]
    weights = {"w": np.eye(4, dtype=np.float32) * 2}
    inputs = [zoo.value("left", ["n", 4]), zoo.value("right", ["n", 4])]
    model = zoo.model(nodes, inputs, [zoo.value("sum", ["n", 4]), zoo.value("product", ["n", 4])], weights)
    feeds = random_feeds(model, batch=2)

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, feeds)

    assert got.keys() == {"sum", "product"}
    np.testing.assert_allclose(got["product"], feeds["left"] * 2, rtol=1e-6)
    np.testing.assert_allclose(got["sum"], feeds["left"] * 2 + feeds["right"], rtol=1e-6)


def test_an_input_that_is_an_output_is_copied() -> None:
    feeds = random_feeds(zoo.identity(), batch=2)

    got = run_tflite(tflite.write(onnx.load_from_string(zoo.identity())).data, feeds)

    np.testing.assert_array_equal(got["y"], feeds["x"])


def test_one_value_can_be_two_outputs() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["first"]),
        helper.make_node("Identity", ["first"], ["second"]),
    ]
    model = zoo.model(nodes, [zoo.value("x", [3])], [zoo.value("first", [3]), zoo.value("second", [3])])
    feeds = random_feeds(model)

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, feeds)

    np.testing.assert_array_equal(got["first"], -feeds["x"])
    np.testing.assert_array_equal(got["second"], -feeds["x"])


def test_a_constant_output_is_written() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Exp", ["c"], ["e"])]
    outputs = [zoo.value("y", [2]), zoo.value("e", [2])]
    model = zoo.model(nodes, [zoo.value("x", [2])], outputs, {"c": np.array([0, 1], np.float32)})

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, random_feeds(model))

    np.testing.assert_allclose(got["e"], [1, np.e], rtol=1e-6)


def test_local_functions_are_written_out() -> None:
    double = helper.make_function(
        "own", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    graph = helper.make_graph(
        [helper.make_node("Double", ["x"], ["y"], domain="own")],
        "g",
        [zoo.value("x", ["n", 3])],
        [zoo.value("y", ["n", 3])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[double], opset_imports=opsets, ir_version=10)

    got = run_tflite(tflite.write(model).data, {"x": np.ones((2, 3), np.float32)})

    np.testing.assert_array_equal(got["y"], np.full((2, 3), 2, np.float32))


def test_all_operators_that_are_not_written_are_named_at_once() -> None:
    nodes = [
        helper.make_node("LpPool", ["x"], ["a"], name="first", kernel_shape=[1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("LpPool", ["b"], ["c"], name="second", kernel_shape=[1]),
        helper.make_node("LRN", ["c"], ["d"], name="third", size=2),
        helper.make_node("NonZero", ["d"], ["y"], name="fourth"),
    ]
    model = zoo.model(nodes[:-1], [zoo.value("x", [1, 2, 3])], [zoo.value("d", None)])

    with pytest.raises(UnsupportedOperator) as caught:
        tflite.write(onnx.load_from_string(model))

    assert caught.value.nodes == {"LRN (an even size)": ["third"], "LpPool": ["first", "second"]}
    assert caught.value.message == (
        "TFLite is not written for 2 kinds of operators: LRN (an even size): `third`; LpPool: `first`, `second`"
    )


def test_an_attribute_newer_than_the_rules_is_read_or_refused() -> None:
    """SpaceToDepth has modes since operator set 28; a Relu has no rounding yet."""
    nodes = [helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")]
    model = zoo.model(nodes, [zoo.value("x", ["batch", 3, 4, 6])], [zoo.value("y", None)], opset=28)
    x = np.arange(144, dtype=np.float32).reshape(2, 3, 4, 6)

    got = run_tflite(tflite.write(onnx.load_from_string(model)).data, {"x": x})

    assert np.array_equal(got["y"], x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 12, 2, 3))
    nodes = [helper.make_node("Relu", ["x"], ["y"], rounding="down")]
    model = zoo.model(nodes, [zoo.value("x", [1, 4])], [zoo.value("y", None)], opset=28)
    with pytest.raises(UnsupportedOperator, match=r"Relu \(its attribute `rounding`, which is newer"):
        tflite.write(onnx.load_from_string(model))


def test_a_shape_that_depends_on_data_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="shape of `where`"):
        tflite.write(onnx.load_from_string(zoo.nonzero()))


def test_a_free_dimension_that_is_no_batch_is_refused() -> None:
    with pytest.raises(ConversionError, match="Dimension 1 of input `x` is free"):
        tflite.write(onnx.load_from_string(zoo.identity(shape=("batch", "length"))))


def test_the_free_sizes_of_all_inputs_are_in_one_hint() -> None:
    inputs = [zoo.value("x", ["batch", "length"]), zoo.value("state", [2, "many", 8]), zoo.value("scale", [1])]
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"]), helper.make_node("Neg", ["state"], ["z"])]
    data = zoo.model(nodes, inputs, [zoo.value("y", ["batch", "length"]), zoo.value("z", [2, "many", 8])])

    with pytest.raises(ConversionError) as caught:
        tflite.write(onnx.load_from_string(data))

    assert caught.value.hint == "--shape x=?xSIZE --shape state=2xSIZEx8, with sizes of your own"


def test_a_type_that_tflite_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="no type"):
        tflite.write(onnx.load_from_string(zoo.identity("string")))


def test_numbers_that_depend_on_the_batch_fix_it_to_one() -> None:
    """The model adds its own batch size: no TFLite constant can."""
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"], end=1),
        helper.make_node("Cast", ["dims"], ["count"], to=int(TensorProto.FLOAT)),
        helper.make_node("Add", ["x", "count"], ["y"]),
    ]
    model = zoo.model(nodes, [zoo.value("x", ["batch", 3])], [zoo.value("y", ["batch", 3])])

    written = tflite.write(onnx.load_from_string(model))

    assert written.is_batch_fixed
    got = run_tflite(written.data, {"x": np.zeros((1, 3), np.float32)})
    np.testing.assert_array_equal(got["y"], np.ones((1, 3), np.float32))


def test_the_same_model_gives_the_same_bytes() -> None:
    model = onnx.load_from_string(convolution())

    assert tflite.write(model).data == tflite.write(model).data


def test_constants_lie_where_kernels_can_read_them() -> None:
    """The schema asks for 16 bytes; a misaligned weight crashes on arm."""
    data = tflite.write(onnx.load_from_string(convolution())).data
    model: Any = schema.Model.GetRootAs(data)

    offsets = [
        model.Buffers(i)._tab.Vector(model.Buffers(i)._tab.Offset(4))
        for i in range(model.BuffersLength())
        if model.Buffers(i).DataLength()
    ]

    assert data[4:8] == b"TFL3"
    assert offsets
    assert all(offset % 16 == 0 for offset in offsets)


def test_equal_constants_are_stored_once() -> None:
    weights = {name: np.full((64, 64), 0.5, np.float32) for name in ("v", "w")}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    model = zoo.model(nodes, [zoo.value("x", [1, 64])], [zoo.value("y", [1, 64])], weights)

    assert len(tflite.write(onnx.load_from_string(model)).data) < 1.2 * 64 * 64 * 4


def test_only_inputs_and_outputs_keep_their_names() -> None:
    """Names weigh: a tenth of a small file."""
    model = onnx.load_from_string(convolution())

    short, long = tflite.write(model).data, tflite.write(model, keep_names=True).data

    names = {one["name"] for one in Interpreter(model_content=short).get_tensor_details() if one["name"]}
    assert {"image", "score"} <= names
    assert all(len(name) <= 2 for name in names - {"image", "score"})
    assert len(short) < len(long)
