"""int64 in TFLite: computed in int32 where that provably gives the same numbers, exact in int64, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edge_infer.errors import UnsupportedOperator
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.tflite.intervals import Interval, intervals_of
from edge_infer_converters.writers.tflite.specialise import specialise
from tests.support import zoo
from tests.support.converters.engines import run_tflite

Arrays = dict[str, np.ndarray[Any, Any]]
INT64, FLOAT = int(TensorProto.INT64), int(TensorProto.FLOAT)
SHAPE = [3, 4]
EDGES = [0, 1, -1, 2, 7, 2**31 - 1, -(2**31), 2**31, 2**32 + 3, -(2**40), 2**62, -(2**62)]


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"the_{op}_{output}", **attributes)


def model(nodes: list[onnx.NodeProto], weights: Arrays | None = None, y: str = "int64", x: str = "int64") -> bytes:
    return zoo.model(nodes, [zoo.value("x", SHAPE, x)], [zoo.value("y", None, y)], weights)


def whole(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values if len(values) > 1 else values[0], np.int64)


def run_reference(data: bytes, feeds: Arrays) -> Arrays:
    """Run ONNX's reference implementation: ONNX Runtime 1.31 compares int64 by their lower halves in places."""
    evaluator = ReferenceEvaluator(onnx.load_from_string(data))
    results: Any = evaluator.run(None, feeds)
    return dict(zip(evaluator.output_names, results, strict=True))


def operators(data: bytes) -> tuple[str, ...]:
    return tflite.write(onnx.load_from_string(data)).operators


def both(data: bytes, x: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    written = tflite.write(onnx.load_from_string(data))
    return run_reference(data, {"x": x})["y"], run_tflite(written.data, {"x": x})["y"]


@pytest.mark.parametrize("op", ["Div", "Pow"])
def test_what_a_clip_bounds_is_computed_in_32_bits(op: str) -> None:
    weights = {"low": whole(-1000), "high": whole(1000), "two": whole(2)}
    data = model([node("Clip", "x low high", "c"), node(op, "c two")], weights)
    x = np.array(EDGES, np.int64).reshape(SHAPE)

    wanted, got = both(data, x)

    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", ["Abs", "Sign"])
def test_what_int64_has_a_formula_for_is_exact_beyond_32_bits(op: str) -> None:
    wanted, got = both(model([node(op, "x")]), np.array(EDGES, np.int64).reshape(SHAPE))

    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("Div", "x two")], {"two": whole(2)}),
        ([node("Clip", "x low high", "c"), node("Pow", "c four")],
         {"low": whole(0), "high": whole(300), "four": whole(4)}),
        ([node("ArgMax", "x", axis=1)], {}),
        ([node("Mod", "x large", "m"), node("Div", "m two")], {"large": whole(2**33), "two": whole(2)}),
        ([node("Mul", "x x", "m"), node("Mod", "m ten", "r"), node("Mul", "r large", "q"), node("Div", "q two")],
         {"ten": whole(10), "large": whole(2**30), "two": whole(2)}),
    ],
    ids=["any input", "a power that grows", "the place of any", "a rest of much", "a product that grows"],
)  # fmt: skip
def test_what_may_not_fit_is_refused_with_the_node_the_reason_and_a_remedy(
    nodes: list[onnx.NodeProto], weights: Arrays
) -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        tflite.write(onnx.load_from_string(model(nodes, weights)))

    assert list(caught.value.nodes.values()) == [[nodes[-1].name]]
    assert nodes[-1].op_type in caught.value.message
    assert "in int32 only" in caught.value.message
    assert "Clip or Mod" in caught.value.message


def test_places_are_found_and_used_in_32_bits_without_a_cast_between() -> None:
    """ArgMax lies below the size of its axis; only the end is int64 again."""
    nodes = [
        node("ArgMax", "x", "place", axis=1),
        node("Add", "place one", "next"),
        node("Div", "next two"),
    ]
    data = model(nodes, {"one": whole(1), "two": whole(2)}, x="float32")

    assert operators(data) == ("ARG_MAX", "RESHAPE", "ADD", "DIV", "CAST")
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    wanted, got = both(data, x)
    np.testing.assert_array_equal(got, wanted)


def test_an_index_that_onnx_accepts_lies_within_its_axis() -> None:
    """Identifiers of words are int64 inputs; that they choose a row bounds them wherever else they are read."""
    nodes = [
        node("Gather", "table x", "rows"),
        node("Div", "x two", "half"),
        helper.make_node("Cast", ["half"], ["f"], to=FLOAT),
        node("Unsqueeze", "f last", "column"),
        node("Mul", "rows column"),
    ]
    table = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    data = model(nodes, {"table": table, "two": whole(2), "last": whole(2).reshape(1)}, y="float32")

    wanted, got = both(data, np.arange(12).reshape(SHAPE))

    np.testing.assert_array_equal(got, wanted)


def test_a_number_beyond_32_bits_names_no_row_of_a_one_hot() -> None:
    """Cut to 32 bits, 2**32 + 1 would be 1."""
    data = model([node("OneHot", "x depth values")], {"depth": whole(4), "values": whole(0, 1)})
    x = np.array([2**32 + 1, 1, -1, 5, -(2**32), 0, 3, 2, 4, -4, -5, 2**40], np.int64).reshape(SHAPE)

    wanted, got = both(data, x)

    np.testing.assert_array_equal(got, wanted)


def test_limits_beyond_the_precision_of_floats_are_exact() -> None:
    weights = {"low": whole(-(2**62) - 1), "high": whole(2**63 - 1)}
    wanted, got = both(
        model([node("Clip", "x low high")], weights), np.array([*EDGES[:-1], -(2**63)], np.int64).reshape(SHAPE)
    )

    np.testing.assert_array_equal(got, wanted)


def test_a_model_that_needs_no_narrowing_is_left_as_it_is() -> None:
    assert operators(model([node("Add", "x x", "s"), node("Mul", "s s")])) == ("ADD", "MUL")


_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_KINDS = ("Abs", "Neg", "Sign", *_BINARY, "Div", "Mod", "Pow", "Clip", "Where", "CumSum", "ArgMax", "TopK", "Concat")


@st.composite
def graphs(draw: st.DrawFn) -> bytes:
    """A chain of operators over int64 [3, 4]; the first one bounds the input, or does not."""
    limit = draw(st.sampled_from([1, 5, 100, 2**15, 2**20, 2**31 - 1, 2**31, 2**40]))
    weights: Arrays = {"low": whole(-limit), "high": whole(limit), "axis": whole(1), "k": whole(4).reshape(1)}
    nodes = [node("Clip", "x low high", "v0")] if draw(st.booleans()) else [node("Mod", "x high", "v0")]
    names = ["v0"]
    for i, kind in enumerate(draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=6)), start=1):
        one, other, result = draw(st.sampled_from(names)), draw(st.sampled_from(names)), f"v{i}"
        number = f"n{i}"
        weights[number] = whole(draw(st.sampled_from([1, 2, 3, 7, -2, 1000, 2**16])))
        if kind in _BINARY:
            nodes.append(node(kind, f"{one} {draw(st.sampled_from([other, number]))}", result))
        elif kind in ("Div", "Mod"):
            nodes.append(node(kind, f"{one} {number}", result))
        elif kind == "Pow":
            weights[number] = whole(draw(st.integers(0, 3)))
            nodes.append(node(kind, f"{one} {number}", result))
        elif kind == "Clip":
            weights[f"{number}z"] = np.maximum(weights[number], 0) + 3
            nodes.append(node(kind, f"{one} {number} {number}z", result))
        elif kind == "Where":
            nodes += [node("Greater", f"{one} {number}", f"{result}c"), node(kind, f"{result}c {one} {other}", result)]
        elif kind == "CumSum":
            nodes.append(node(kind, f"{one} axis", result))
        elif kind == "ArgMax":
            nodes += [node(kind, one, f"{result}p", axis=1), node("Add", f"{result}p {other}", result)]
        elif kind == "TopK":
            made = helper.make_node("TopK", [one, "k"], [f"{result}v", result], name=f"top{i}")
            nodes.append(made)
        elif kind == "Concat":
            weights |= {"begin": whole(1).reshape(1), "end": whole(5).reshape(1), "axes": whole(1).reshape(1)}
            nodes += [
                node("Concat", f"{one} {other}", f"{result}c", axis=1),
                node("Slice", f"{result}c begin end axes", result),
            ]
        else:
            nodes.append(node(kind, one, result))
        names.append(result)
    nodes.append(node("Identity", names[-1], "y"))
    return model(nodes, weights)


def inputs(seed: int) -> np.ndarray[Any, Any]:
    """Small numbers, and those at which 32 and 64 bits end."""
    rng = np.random.default_rng(seed)
    small = rng.integers(-20, 20, SHAPE)
    return np.where(rng.random(SHAPE) < 0.5, small, rng.choice(np.array(EDGES), SHAPE))


@given(data=graphs(), seed=st.integers(0, 2**16))
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_random_arithmetic_is_exact_or_refused(data: bytes, seed: int) -> None:
    try:
        written = tflite.write(onnx.load_from_string(data))
    except UnsupportedOperator as error:
        assert "in int32 only" in error.message
        return
    x = inputs(seed)

    np.testing.assert_array_equal(run_tflite(written.data, {"x": x})["y"], run_reference(data, {"x": x})["y"])


@given(data=graphs(), seed=st.integers(0, 2**16))
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_no_value_lies_outside_of_its_bounds(data: bytes, seed: int) -> None:
    proto = onnx.load_from_string(data)
    bounds = intervals_of(specialise(proto))
    names = sorted({name for one in proto.graph.node for name in one.output} - {"y"})
    typed = onnx.shape_inference.infer_shapes(proto)
    proto.graph.output.extend(value for value in typed.graph.value_info if value.name in names)

    for name, values in run_reference(proto.SerializeToString(), {"x": inputs(seed)}).items():
        low, high = bounds[name]
        assert low <= values.min(), name
        assert values.max() <= high, name


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([node("Sigmoid", "x", "s"), node("Mul", "s k", "m"), node("Floor", "m", "f")], (-1, 101)),
        ([node("Tanh", "x", "t"), node("ReduceSum", "t", "r")], (-13, 13)),
        ([node("Relu", "x", "r"), node("Softsign", "r", "s"), node("Sub", "s k", "d")], (-102, -98)),
    ],
)
def test_floats_with_bounded_results_bound_what_is_cast_from_them(
    nodes: list[onnx.NodeProto], wanted: tuple[int, int]
) -> None:
    last = helper.make_node("Cast", [nodes[-1].output[0]], ["y"], to=INT64)
    data = model([*nodes, last], {"k": np.array(100, np.float32)}, x="float32")

    found = intervals_of(specialise(onnx.load_from_string(data)))["y"]

    assert wanted[0] <= found.low <= found.high <= wanted[1]
    assert Interval(*wanted).fits(np.int32)
