"""Half precision of graphs as other tools leave them: subgraphs, `Constant` weights, inputs with a default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge_infer_converters.passes.fp16 import has_float_weights, to_fp16
from edge_infer_converters.sources.factory import open_source
from tests.support import zoo
from tests.support.converters.engines import random_feeds, run_onnx

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)


def half_of(data: bytes, folder: Path) -> onnx.ModelProto:
    """Return the fp16 form of a model, checked: it is smaller, valid, and gives the same up to rounding."""
    (folder / "model.onnx").write_bytes(data)
    source, _ = open_source(folder / "model.onnx").cleaned(None, prunes=False)
    proto = source.release(("onnx",))[1]
    assert has_float_weights(proto)
    half = to_fp16(proto)
    onnx.checker.check_model(half)
    assert half.ByteSize() < 0.9 * len(data)
    feeds = random_feeds(data)
    expected, got = run_onnx(data, feeds), run_onnx(half.SerializeToString(), feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=0.02, atol=0.02)
    return half


def test_weights_that_are_inputs_too(tmp_path: Path) -> None:
    """IR 3 lists every initializer as an input."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs = [zoo.value("x", ["batch", 16]), zoo.value("w", [16, 16])]
    model = onnx.load_from_string(zoo.model(nodes, inputs, [zoo.value("y", ["batch", 16])], {"w": WEIGHTS}))
    model.ir_version = 3
    half_of(model.SerializeToString(), tmp_path)


def test_weights_in_constant_nodes(tmp_path: Path) -> None:
    weights = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(WEIGHTS))
    nodes = [weights, helper.make_node("MatMul", ["x", "w"], ["y"])]
    half_of(zoo.model(nodes, [zoo.value("x", [2, 16])], [zoo.value("y", [2, 16])]), tmp_path)


def test_weights_in_branches(tmp_path: Path) -> None:
    def branch(number: int) -> onnx.GraphProto:
        value = numpy_helper.from_array(WEIGHTS + number)
        nodes = [
            helper.make_node("Constant", [], [f"w{number}"], value=value),
            helper.make_node("MatMul", ["x", f"w{number}"], [f"y{number}"]),
            helper.make_node("MatMul", [f"y{number}", "shared"], [f"z{number}"]),
        ]
        return helper.make_graph(nodes, "branch", [], [zoo.value(f"z{number}", [2, 16])])

    nodes = [helper.make_node("If", ["which"], ["y"], then_branch=branch(1), else_branch=branch(2))]
    inputs = [zoo.value("x", [2, 16]), zoo.value("which", [], "bool")]
    half_of(zoo.model(nodes, inputs, [zoo.value("y", [2, 16])], {"shared": WEIGHTS / 16}), tmp_path)


def test_a_value_that_two_float_operators_read(tmp_path: Path) -> None:
    """ONNX Runtime's converter writes a cast of one name for each of the readers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Min", ["m", "one"], ["low"]),
        helper.make_node("Max", ["m", "one"], ["high"]),
        helper.make_node("Add", ["low", "high"], ["y"]),
    ]
    weights = {"w": WEIGHTS, "one": np.ones(16, np.float32)}
    half_of(zoo.model(nodes, [zoo.value("x", [2, 16])], [zoo.value("y", [2, 16])], weights, opset=13), tmp_path)


def test_a_grid_stays_float(tmp_path: Path) -> None:
    """ONNX Runtime fails on an AffineGrid of halves."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["theta"]),
        helper.make_node("AffineGrid", ["theta", "size"], ["grid"]),
        helper.make_node("Mul", ["grid", "half"], ["y"]),
    ]
    constants = {
        "w": np.tile(WEIGHTS, (16, 1))[:, :6],
        "shape": np.array([1, 2, 3]),
        "size": np.array([1, 1, 4, 4]),
        "half": np.array([0.5], np.float32),
    }
    half_of(zoo.model(nodes, [zoo.value("x", [1, 256])], [zoo.value("y", [1, 4, 4, 2])], constants, opset=20), tmp_path)


@pytest.mark.parametrize(
    ("operator", "reduction", "is_float"),
    [
        *(("ScatterND", one, one != "none") for one in ("none", "add", "mul", "max", "min")),
        *(("ScatterElements", one, one in ("add", "mul")) for one in ("none", "add", "mul", "max", "min")),
    ],
)
def test_a_scatter_that_reduces_stays_float(tmp_path: Path, operator: str, reduction: str, is_float: bool) -> None:
    """ONNX Runtime has no such kernel for halves; a scatter that it has one for is not slowed down."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["data"]),
        helper.make_node("MatMul", ["rows", "w"], ["updates"]),
        helper.make_node(operator, ["data", "places", "updates"], ["y"], reduction=reduction),
    ]
    places = np.array([[1]]) if operator == "ScatterND" else np.ones((1, 16), np.int64)
    inputs = [zoo.value("x", [2, 16]), zoo.value("rows", [1, 16])]
    model = zoo.model(nodes, inputs, [zoo.value("y", [2, 16])], {"w": WEIGHTS / 4, "places": places}, opset=18)
    half = half_of(model, tmp_path)
    scatter = next(node for node in half.graph.node if node.op_type == operator)
    inferred = onnx.shape_inference.infer_shapes(half).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*inferred.value_info, *inferred.output)}
    assert types[scatter.output[0]] == (onnx.TensorProto.FLOAT if is_float else onnx.TensorProto.FLOAT16)


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    outputs = [zoo.value("y", [2, 16]), zoo.value("x", [2, 16])]
    half_of(zoo.model(nodes, [zoo.value("x", [2, 16])], outputs, {"w": WEIGHTS}), tmp_path)


def test_float_weights_beside_quantized_layers(tmp_path: Path) -> None:
    """Before operator set 19 a `DequantizeLinear` gives float32 only."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("MatMul", ["m", "d"], ["y"]),
    ]
    weights: dict[str, np.ndarray[Any, Any]] = {
        "w": WEIGHTS,
        "q": np.clip(WEIGHTS * 40, -127, 127).astype(np.int8),
        "scale": np.array(0.025, np.float32),
        "zero": np.array(0, np.int8),
    }
    half_of(zoo.model(nodes, [zoo.value("x", [2, 16])], [zoo.value("y", [2, 16])], weights, opset=13), tmp_path)


@pytest.mark.parametrize("size", [-1, -5])
def test_negative_dimensions_are_free(tmp_path: Path, size: int) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    data = zoo.model(nodes, [zoo.value("x", [size, 3])], [zoo.value("y", [size, 3])])
    (tmp_path / "model.onnx").write_bytes(data)

    source = open_source(tmp_path / "model.onnx")

    assert [str(dim) for dim in source.inputs[0].shape] == ["x_0", "3"]
