"""Inputs that become constants, and the branches that they decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.errors import InputError
from edge_infer_converters import convert
from edge_infer_converters.passes.fold_branches import fold_branches
from edge_infer_converters.sources.onnx import load
from edge_infer_converters.sources.options import SourceOptions, parse_bindings
from tests.support import zoo
from tests.support.converters.engines import run_onnx
from tests.support.converters.reporter import Told

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


@pytest.mark.parametrize("value", [None, "high", object(), [[1], [1, 2]], 1j, b"16000"])
def test_a_binding_that_is_no_number_is_refused_by_the_inputs_name(value: object, tmp_path: Path) -> None:
    path, _ = write(tmp_path)

    with pytest.raises(InputError, match=r"Input `rate` is bound to a `.*`, expected a number or an array of numbers"):
        convert(path, tmp_path / "m.bundle", bind={"rate": value})


def test_a_number_may_be_bound_as_text(tmp_path: Path) -> None:
    path, _ = write(tmp_path)

    made = load(path, SourceOptions(bind={"rate": "16000"}))

    assert [spec.name for spec in made.inputs] == ["x"]


def test_int8_of_operators_in_branches_hints_at_the_input_that_decides(tmp_path: Path) -> None:
    """Silero asks for the rate of its sound, and has all weights behind an If on it."""
    graphs: dict[str, Any] = {
        f"{which}_branch": helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w_{which}"], [f"y_{which}"])],
            which,
            [],
            [zoo.value(f"y_{which}", None)],
        )
        for which in ("then", "else")
    }
    nodes = [
        helper.make_node("Equal", ["rate", "high"], ["is_high"]),
        helper.make_node("If", ["is_high"], ["y"], **graphs),
    ]
    weights = {f"w_{which}": np.eye(4, dtype=np.float32) for which in ("then", "else")}
    inputs = [zoo.value("x", ["batch", 4]), zoo.value("rate", [], "int64")]
    data = zoo.model(nodes, inputs, [zoo.value("y", ["batch", 4])], {"high": np.array(16000), **weights})
    (tmp_path / "model.onnx").write_bytes(data)
    told = Told()

    made = convert(tmp_path / "model.onnx", tmp_path / "m.bundle", format="onnx", reporter=told)

    assert "branches of an `If`" in made.not_made["onnx/int8"]
    assert "--bind rate=VALUE, where you always give the same one" in told.hints


@pytest.mark.parametrize("rate", [16000, 8000])
def test_an_input_becomes_a_constant_and_its_branch_the_graph(tmp_path: Path, rate: int) -> None:
    path, data = write(tmp_path)

    model = load(path, SourceOptions({"x": (1, 4)}, bind={"rate": rate}))

    assert [spec.name for spec in model.inputs] == ["x"]
    assert "If" not in {node.op_type for node in model.proto.graph.node}
    onnx.checker.check_model(model.proto)
    wanted = run_onnx(data, {"x": X, "rate": np.array(rate)})["y"]
    np.testing.assert_array_equal(model.reference().run({"x": X})["y"], wanted)


def test_branches_stay_where_inference_fails_on_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference says so by a ValueError of its own, for some damaged files of the ORT format."""

    def infer_shapes(*_: object, **__: object) -> None:
        raise ValueError("Invalid tensor data type 257.")

    proto = onnx.load(write(tmp_path)[0])
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer_shapes)

    assert fold_branches(proto) is proto


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
