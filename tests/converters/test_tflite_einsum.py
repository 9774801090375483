"""Einsum in TFLite: products of matrices that give what ONNX Runtime gives, weights in int8 among them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.errors import UnsupportedOperator
from edge_infer.parity import comparison
from edge_infer_converters.writers.tflite.writer import FloatGraph
from tests.support import zoo
from tests.support.converters.engines import near, run_onnx, run_tflite

SIZES = {"b": 2, "h": 3, "i": 4, "j": 5, "d": 6, "e": 7}


def shape_of(letters: str) -> list[int]:
    return [SIZES[letter] for letter in letters]


def model(equation: str, *, stored: int = 0) -> bytes:
    """Make an Einsum whose last operands are constant, as many as `stored` says."""
    parts, wanted = equation.split("->")
    terms = parts.split(",")
    names = [f"x{i}" for i in range(len(terms))]
    given = len(terms) - stored
    chance = np.random.default_rng(0)
    weights = {
        name: chance.normal(size=shape_of(term)).astype(np.float32)
        for name, term in zip(names[given:], terms[given:], strict=True)
    }
    inputs = [zoo.value(name, shape_of(term)) for name, term in zip(names[:given], terms, strict=False)]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    return zoo.model([node], inputs, [zoo.value("y", shape_of(wanted))], weights)


def feeds(data: bytes, seed: int = 1) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    return {
        value.name: chance.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in onnx.load_from_string(data).graph.input
    }


@pytest.mark.parametrize(
    ("equation", "stored"),
    [
        ("bhid,bhjd->bhij", 0),
        ("bhij,bhjd->bihd", 0),
        ("bid,hde->bhie", 1),
        ("bid,de,bje->bij", 0),
        ("hi,bij->bhj", 0),
        ("bi,bj->bij", 0),
        ("bid->db", 0),
        ("bij,j->b", 1),
        ("bhij,hij->bi", 1),
    ],
)
def test_it_gives_what_onnx_runtime_gives(equation: str, stored: int) -> None:
    data = model(equation, stored=stored)

    written = FloatGraph.of_onnx(onnx.load_from_string(data), "einsum").write().data

    wanted = run_onnx(data, feeds(data))
    assert min(near(wanted, run_tflite(written, feeds(data))).values()) > 100  # decibels


def test_stored_operands_are_weights_in_int8() -> None:
    data = model("bid,hde->bhie", stored=1)
    calls = [feeds(data, seed) for seed in range(8)]

    written = FloatGraph.of_onnx(onnx.load_from_string(data), "einsum").write("int8", calls)

    assert "FULLY_CONNECTED" in written.operators
    wanted = [run_onnx(data, call) for call in calls]
    assert comparison.compare(wanted, [run_tflite(written.data, call) for call in calls]).sqnr_db > 30


def test_a_letter_twice_in_one_operand_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="a letter twice"):
        FloatGraph.of_onnx(onnx.load_from_string(model("bii->b")), "einsum")
