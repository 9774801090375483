"""Inputs that become constants, and the branches that they decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.errors import InputError
from edge_infer_converters.sources.bindings import parse_bindings
from edge_infer_converters.sources.onnx import load
from edge_infer_converters.sources.options import SourceOptions
from tests.support import zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from pathlib import Path

X = np.arange(4, dtype=np.float32).reshape(1, 4)


def branches(name: str, inner: onnx.NodeProto | None = None) -> onnx.NodeProto:
    """Return an If on `name` that doubles `x`, or else negates it, by values of the same names in both branches."""
    double = [helper.make_node("Add", ["x", "x"], ["h"]), helper.make_node("Mul", ["h", "one"], ["z"])]
    negate = [inner] if inner else [helper.make_node("Neg", ["x"], ["z"])]
    graphs: dict[str, Any] = {
        which: helper.make_graph(nodes, which, [], [zoo.value("z", None)])
        for which, nodes in (("then_branch", double), ("else_branch", negate))
    }
    return helper.make_node("If", [name], ["z" if name == "is_wide" else "y"], **graphs)


def write(folder: Path) -> tuple[Path, bytes]:
    """Write a model with a rate, whose If holds an If on the width of `x`."""
    width = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["width"]),
        helper.make_node("Equal", ["width", "four"], ["is_wide"]),
    ]
    nodes = [helper.make_node("Equal", ["rate", "high"], ["is_high"]), *width, branches("is_high", branches("is_wide"))]
    weights = {
        "high": np.array(16000),
        "last": np.array(1),
        "four": np.array(4),
        "one": np.ones(1, np.float32),
    }
    inputs = [zoo.value("x", ["batch", "width"]), zoo.value("rate", [], "int64")]
    data = zoo.model(nodes, inputs, [zoo.value("y", ["batch", "width"])], weights)
    (folder / "model.onnx").write_bytes(data)
    return folder / "model.onnx", data


@pytest.mark.parametrize("rate", [16000, 8000])
def test_an_input_becomes_a_constant_and_its_branch_the_graph(tmp_path: Path, rate: int) -> None:
    path, data = write(tmp_path)

    model = load(path, SourceOptions({"x": (1, 4)}, bind={"rate": rate}))

    assert [spec.name for spec in model.inputs] == ["x"]
    assert "If" not in {node.op_type for node in model.proto.graph.node}
    onnx.checker.check_model(model.proto)
    wanted = run_onnx(data, {"x": X, "rate": np.array(rate)})["y"]
    np.testing.assert_array_equal(model.reference().run({"x": X})["y"], wanted)


def test_a_branch_that_nothing_decides_stays(tmp_path: Path) -> None:
    model = load(write(tmp_path)[0], SourceOptions(bind={"rate": 8000}))

    assert "If" in {node.op_type for node in model.proto.graph.node}
    np.testing.assert_array_equal(model.reference().run({"x": X})["y"], 2 * X)


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        ({"rates": 1}, "has no input `rates`; it has `x`, `rate`"),
        ({"rate": [1, 2]}, "2 values, which do not fit its shape"),
        ({"rate": 0.5}, "does not hold every value"),
        ({"rate": 1, "x": 1}, "leaves the model without an input"),
    ],
)
def test_what_cannot_be_bound_is_named(tmp_path: Path, bind: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(write(tmp_path)[0], SourceOptions({"x": (1, 4)}, bind=bind))


@pytest.mark.parametrize("text", ["rate", "=1", "rate=", "rate=fast", "rate=1,"])
def test_a_value_that_cannot_be_read_says_what_is_expected(text: str) -> None:
    with pytest.raises(InputError, match="expected NAME=16000"):
        parse_bindings([text])


def test_values_are_numbers_with_commas_between_or_truths() -> None:
    assert parse_bindings(["a=1,2.5", "b=true"]) == {"a": [1, 2.5], "b": [1]}
