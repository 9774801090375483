"""Reading a source: what is known of it, and that it runs the same each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer import TensorSpec
from edge_infer.errors import UnsupportedModel
from edge_infer_converters.sources import onnx as source
from tests.support import zoo
from tests.support.converters.engines import random_feeds

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel


def test_specs_keep_symbols_and_leave_initializers_out(write_model: WriteModel) -> None:
    proto = onnx.load_from_string(zoo.mlp())
    proto.graph.input.append(zoo.value("w1", [64, 32]))

    model = source.load(write_model(proto.SerializeToString()))

    assert model.inputs == (TensorSpec("x", "float32", ("batch", 64)),)
    assert model.outputs == (TensorSpec("logits", "float32", ("batch", 10)),)
    assert model.precision == "fp32"


def test_a_dimension_without_a_name_gets_one(write_model: WriteModel) -> None:
    proto = onnx.load_from_string(zoo.identity())
    proto.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")

    model = source.load(write_model(proto.SerializeToString()))

    assert model.inputs[0].shape == ("x_0", 3)


def test_the_reference_gives_the_same_bits_each_time(write_model: WriteModel) -> None:
    model = source.load(write_model(zoo.mlp()))
    feeds = random_feeds(zoo.mlp(), batch=7)

    first, second = (source.Reference(model).run(feeds)["logits"] for _ in range(2))

    np.testing.assert_array_equal(first, second)


def test_a_contributed_operator_of_onnx_runtime_is_fine(write_model: WriteModel) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")],
        "g",
        [zoo.value("x", [3])],
        [zoo.value("y", [3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    assert source.load(write_model(data)).outputs[0].name == "y"


def test_a_four_bit_input_is_refused(write_model: WriteModel) -> None:
    with pytest.raises(UnsupportedModel, match="int4, which numpy cannot hold"):
        source.load(write_model(zoo.dequantize("int4")))
