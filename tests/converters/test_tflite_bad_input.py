"""What TFLite cannot hold is refused before any file is written: the node, the operator, the reason, a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.errors import ConversionError, UnsupportedModel, UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.sources import onnx_file
from edge_infer_converters.writers import tflite
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.model_files import WriteModel


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"the_{op}", **attributes)


def model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int] = (2, 3), dtype: str = "float32", **weights: Any
) -> bytes:
    stored = {name: np.asarray(value) for name, value in weights.items()}
    return zoo.model(nodes, [zoo.value("x", shape, dtype)], [zoo.value("y", shape, dtype)], stored)


def branches() -> dict[str, onnx.GraphProto]:
    return {
        f"{word}_branch": helper.make_graph([node(op, "x", op)], word, [], [zoo.value(op, [2, 3])])
        for word, op in (("then", "Relu"), ("else", "Neg"))
    }


def loop() -> bytes:
    body = helper.make_graph(
        [node("Identity", "go", "more"), node("Relu", "h", "h_next")],
        "body",
        [zoo.value("i", [], "int64"), zoo.value("go", [], "bool"), zoo.value("h", [2, 3])],
        [zoo.value("more", [], "bool"), zoo.value("h_next", [2, 3])],
    )
    one = helper.make_node("Loop", ["times", "", "x"], ["y"], name="the_Loop", body=body)
    return zoo.model([one], [zoo.value("x", [2, 3]), zoo.value("times", [], "int64")], [zoo.value("y", [2, 3])])


def foreign() -> bytes:
    one = helper.make_node("FusedMatMul", ["x", "x"], ["y"], name="the_FusedMatMul", domain="com.microsoft")
    graph = helper.make_graph([one], "g", [zoo.value("x", [3, 3])], [zoo.value("y", [3, 3])])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def dynamic_rank() -> bytes:
    inputs = [zoo.value("x", [6]), zoo.value("shape", ["rank"], "int64")]
    return zoo.model([node("Reshape", "x shape")], inputs, [zoo.value("y", None)])


REFUSED = {
    "control flow, If": (
        model([node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c"), node("If", "c", **branches())],
              zero=np.float32(0)),
        "the_If", "control flow",
    ),
    "control flow, Loop": (loop(), "the_Loop", "control flow"),
    "an operator of another domain": (foreign(), "the_FusedMatMul", "not ONNX's own"),
    "a rank that depends on data": (dynamic_rank(), "the_Reshape", "not known before the model runs"),
    "float64": (model([node("Add", "x x")], dtype="float64"), "the_Add", "float64: cast them"),
    "float16": (model([node("Mul", "x x")], dtype="float16"), "the_Mul", "float16: cast them"),
    "uint64": (model([node("Add", "x x")], dtype="uint64"), "the_Add", "uint64: cast them"),
    "int64 without bounds": (model([node("Div", "x x")], dtype="int64"), "the_Div", "bound it by a Clip"),
    "a pool over nothing": (
        model([node("MaxPool", "x", kernel_shape=[2, 2])], (0, 3, 4, 4)), "the_MaxPool", "holds nothing",
    ),
    "a product of nothing": (
        zoo.model([node("MatMul", "x z")], [zoo.value("x", [2, 0]), zoo.value("z", [0, 3])], [zoo.value("y", None)]),
        "the_MatMul", "holds nothing",
    ),
    "three dimensions": (
        model([node("MaxPool", "x", kernel_shape=[2, 2, 2])], (1, 1, 4, 4, 4)), "the_MaxPool", "3 spatial dimensions",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "name", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_written_is_named_with_its_reason_and_a_remedy(data: bytes, name: str, reason: str) -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        tflite.write(onnx.load_from_string(data))

    assert [names for names in caught.value.nodes.values() if name in names]
    assert f"`{name}`" in caught.value.message
    assert name.removeprefix("the_") in caught.value.message
    assert reason in caught.value.message
    assert "--format onnx" in caught.value.hint


def test_values_without_elements_pass_where_kernels_take_them() -> None:
    """The empty cache of a decoder's first step, joined with its first key."""
    from tests.support.converters.engines import run_tflite

    inputs = [zoo.value("past", [1, 4, 0, 8]), zoo.value("key", [1, 4, 1, 8])]
    data = zoo.model([node("Concat", "past key", axis=2)], inputs, [zoo.value("y", None)])
    key = np.ones((1, 4, 1, 8), np.float32)

    got = run_tflite(
        tflite.write(onnx.load_from_string(data)).data, {"past": np.zeros((1, 4, 0, 8), np.float32), "key": key}
    )

    np.testing.assert_array_equal(got["y"], key)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b")], "`the_Add`.*`b`.*in a circle"),
        ([node("Add", "x nowhere")], "`the_Add`.*`nowhere`.*nothing gives it"),
    ],
    ids=["circle", "value from nowhere"],
)
def test_a_graph_that_does_not_hang_together_is_refused(
    nodes: list[onnx.NodeProto], said: str, write_model: WriteModel, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=said):
        tflite.write(onnx.load_from_string(model(nodes)))
    with pytest.raises(ConversionError, match="not a valid ONNX model"):
        convert(write_model(model(nodes), "m.onnx"), tmp_path / "m.bundle")
    assert not (tmp_path / "m.bundle").exists()


def test_a_model_that_no_message_can_hold_is_refused(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real limit is 2 GB; a lower one is as good a test, and quicker."""
    path = write_model(zoo.mlp(), "m.onnx")
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 5_000)

    with pytest.raises(ConversionError, match="expected at most 5000") as caught:
        convert(path, tmp_path / "m.bundle")

    assert caught.value.hint
    assert not (tmp_path / "m.bundle").exists()


def test_a_custom_operator_is_named_before_any_work(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperator, match="Frobnicate"):
        convert(write_model(zoo.unknown_operator(), "m.onnx"), tmp_path / "m.bundle")


def test_an_operator_set_of_the_future_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="operator set 999"):
        convert(write_model(zoo.future_opset(), "m.onnx"), tmp_path / "m.bundle")
