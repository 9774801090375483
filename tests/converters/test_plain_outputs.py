"""Lists and maps at the end of a model become plain tensors, with the same numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from edge_infer import TensorSpec
from edge_infer.errors import UnsupportedModel
from edge_infer_converters.sources import onnx as source
from tests.support import zoo

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel


def as_it_came(data: bytes, feeds: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
    answers: list[Any] = onnxruntime.InferenceSession(data).run(None, feeds)
    return answers


def sequence(name: str) -> onnx.ValueInfoProto:
    value: onnx.ValueInfoProto = helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
    return value


def classifier(labels: dict[str, Any]) -> bytes:
    """Probabilities of three classes as a list of maps, as skl2onnx writes them by default."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["probabilities"], domain="ai.onnx.ml", **labels),
    ]
    kind = TensorProto.INT64 if "classlabels_int64s" in labels else TensorProto.STRING
    inner = onnx.TypeProto()
    inner.sequence_type.elem_type.map_type.key_type = kind
    inner.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "zoo", [zoo.value("x", ["n", 3])], [onnx.ValueInfoProto(name="probabilities", type=inner)]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [4, 5, 6]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_a_list_of_maps_becomes_the_array_of_probabilities(write_model: WriteModel, labels: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(0, 1, (4, 3)).astype(np.float32)

    model = source.load(write_model(classifier(labels)))

    assert model.outputs == (TensorSpec("probabilities", "float32", ("n", 3)),)
    (maps,) = as_it_came(classifier(labels), {"x": x})
    np.testing.assert_array_equal(
        source.Reference(model).run({"x": x})["probabilities"], [list(one.values()) for one in maps]
    )


def test_a_list_of_tensors_becomes_as_many_outputs(write_model: WriteModel) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("SequenceConstruct", ["x", "n"], ["y"]),
    ]
    data = zoo.model(nodes, [zoo.value("x", ["n", 3])], [sequence("y")])
    x = np.ones((2, 3), np.float32)

    model = source.load(write_model(data))

    assert [spec.name for spec in model.outputs] == ["y_0", "y_1"]
    np.testing.assert_array_equal(list(source.Reference(model).run({"x": x}).values()), as_it_came(data, {"x": x})[0])


@pytest.mark.parametrize("sizes", [None, np.array([1, 3]), np.array(3)])
def test_a_split_of_known_parts_becomes_as_many_outputs(
    write_model: WriteModel, sizes: np.ndarray[Any, Any] | None
) -> None:
    inputs = ["x"] if sizes is None else ["x", "sizes"]
    weights = {} if sizes is None else {"sizes": sizes.astype(np.int64)}
    node = helper.make_node("SplitToSequence", inputs, ["y"], axis=1)
    data = zoo.model([node], [zoo.value("x", ["n", 4])], [sequence("y")], weights)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    model = source.load(write_model(data))

    (wanted,) = as_it_came(data, {"x": x})
    found = list(source.Reference(model).run({"x": x}).values())
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_list_of_unknown_length_is_refused(write_model: WriteModel) -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["y"])
    data = zoo.model([node], [zoo.value("x", ["n", 4])], [sequence("y")])

    with pytest.raises(UnsupportedModel, match=r"Output `y` of .* is a sequence, expected a tensor"):
        source.load(write_model(data))
