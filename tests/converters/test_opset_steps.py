"""Models in another operator set give the numbers that they gave, by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.opset import to_opset


def floats(*shape: int) -> Any:
    return np.random.default_rng(7).normal(size=shape).astype("f4")


def model_of(
    operator: str, opset: int, inputs: list[Any], stored: dict[int, Any], **attributes: Any
) -> onnx.ModelProto:
    """Make a model of one node; its inputs are given, stored, or left out."""
    count = max([len(inputs), *(place + 1 for place in stored)])
    names = [f"i{k}" if k < len(inputs) or k in stored else "" for k in range(count)]
    given = [
        helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
        for k, one in enumerate(inputs)
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        "graph",
        given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(one, f"i{place}") for place, one in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def result(model: onnx.ModelProto, inputs: list[Any]) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: value for one, value in zip(session.get_inputs(), inputs, strict=True)})[0]


BOXES = np.array([[0, 0, 4, 5], [1, 1, 7, 3]], "f4")
ROIS = [floats(1, 2, 8, 8), BOXES, np.array([0, 0])]
HOW = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
OLD_HOW = HOW | {"coordinate_transformation_mode": "output_half_pixel"}
SIZES = {3: np.array([1, 1, 3, 8])}


@pytest.mark.parametrize(
    ("operator", "inputs", "stored", "attributes", "own", "opset"),
    [
        ("RoiAlign", ROIS, {}, HOW, 11, 17),
        ("RoiAlign", ROIS, {}, OLD_HOW, 17, 11),
        ("DFT", [floats(1, 6, 8, 1)], {}, {}, 17, 20),
        ("DFT", [floats(1, 6, 8, 1)], {}, {"axis": 2}, 17, 20),
        ("DFT", [floats(1, 6, 8, 1)], {}, {}, 20, 17),
        ("DFT", [floats(1, 6, 8, 1)], {2: np.array(1)}, {}, 20, 17),
        *(("GridSample", [floats(1, 1, 4, 4), floats(1, 2, 3, 2)], {}, how, own, opset)
          for own, opset, how in ((16, 20, {}), (16, 20, {"mode": "bilinear"}), (16, 20, {"mode": "nearest"}),
                                  (16, 20, {"mode": "bicubic"}), (20, 16, {}), (20, 16, {"mode": "cubic"}))),
        ("Resize", [floats(1, 1, 4, 5)], SIZES, {"mode": "linear"}, 13, 11),
        ("ReduceMean", [floats(2, 3)], {1: np.zeros(0, "i8")}, {}, 18, 13),
    ],
)  # fmt: skip
def test_a_node_means_the_same_in_another_operator_set(
    operator: str, inputs: list[Any], stored: dict[int, Any], attributes: dict[str, Any], own: int, opset: int
) -> None:
    model = model_of(operator, own, inputs, stored, **attributes)

    converted = to_opset(model, opset)

    np.testing.assert_allclose(result(converted, inputs), result(model, inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "inputs", "stored", "attributes", "own", "opset"),
    [
        ("RoiAlign", ROIS, {}, HOW, 17, 11),
        ("ReduceMean", [floats(2, 3)], {1: np.zeros(0, "i8")}, {"noop_with_empty_axes": 1}, 18, 13),
    ],
)
def test_what_an_older_set_cannot_say_is_refused(
    operator: str, inputs: list[Any], stored: dict[int, Any], attributes: dict[str, Any], own: int, opset: int
) -> None:
    with pytest.raises(ConversionError, match=f"cannot be written in {opset}: it lacks `{operator}`"):
        to_opset(model_of(operator, own, inputs, stored, **attributes), opset)


@pytest.mark.parametrize("as_node", [False, True], ids=["initializer", "constant"])
def test_two_branches_may_store_other_axes_by_one_name(as_node: bool) -> None:
    def branch(axis: int, name: str) -> onnx.GraphProto:
        axes = numpy_helper.from_array(np.array([axis]), "axes")
        nodes = [helper.make_node("ReduceSum", ["x", "axes"], [name], keepdims=0)]
        if as_node:
            nodes.insert(0, helper.make_node("Constant", [], ["axes"], value=axes))
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])]
        return helper.make_graph(nodes, name, [], made, [] if as_node else [axes])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch(0, "down"), else_branch=branch(1, "across"))
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = floats(2, 3)

    converted = to_opset(model, 11)

    for is_down in (True, False):
        np.testing.assert_allclose(result(converted, [x, np.array(is_down)]), x.sum(0 if is_down else 1), rtol=1e-6)


def split(size: int | str) -> onnx.ModelProto:
    """Make a model that cuts rows into four parts, of which the last may be smaller."""
    names = [f"y{i}" for i in range(4)]
    graph = helper.make_graph(
        [helper.make_node("Split", ["x"], names, axis=1, num_outputs=4)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, size])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, None]) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("opset", [17, 13, 11])
@pytest.mark.parametrize("size", [7, 8])
def test_a_split_into_uneven_parts_names_their_sizes_before_set_18(opset: int, size: int) -> None:
    x = floats(2, size)

    def parts(model: onnx.ModelProto) -> list[Any]:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return [part.tolist() for part in session.run(None, {"x": x})]

    assert parts(to_opset(split(size), opset)) == parts(split(size))


def test_a_split_along_an_unknown_size_is_refused_before_set_18() -> None:
    with pytest.raises(ConversionError, match="a Split into parts of which the last may be smaller"):
        to_opset(split("n"), 17)
