"""Matrices in int4 that calibration data fit: their products change less, and only where that holds for other data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer_converters import Recipe, convert
from edge_infer_converters.data.calibration import CalibrationSet
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes.weight_only import prepare, rewrite, weights_of
from edge_infer_converters.search.sensitivity import WeightSession
from edge_infer_converters.writers.fitted_blocks import MIN_CALLS, fit_blocks
from tests.support import zoo
from tests.support.converters.engines import run_onnx
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 72


def net() -> onnx.ModelProto:
    """Two matrices of one input, one as `Gemm` reads it, and one behind them; 72 columns are no whole blocks."""
    draw = np.random.default_rng(0)
    stored = {name: draw.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32) for name in ("first", "second", "third")}
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Gemm", ["x", "second"], ["b"], transB=1),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "third"], ["y"]),
    ]
    values = [zoo.value("x", ["n", WIDTH])], [zoo.value("y", ["n", WIDTH])]
    return prepare(onnx.load_from_string(zoo.model(nodes, *values, stored)))


def alike(count: int, seed: int, directions: int = 1) -> list[dict[str, np.ndarray]]:
    """Inputs along a few directions, with a little of all others; of one `directions` they are always the same."""
    along = np.random.default_rng(directions).normal(0, 1, (12, WIDTH))
    draw = np.random.default_rng(seed)
    rows = draw.normal(0, 1, (count, 8, 12)) @ along + draw.normal(0, 0.3, (count, 8, WIDTH))
    return [{"x": one.astype(np.float32)} for one in rows]


def data_of(calls: list[dict[str, np.ndarray]]) -> CalibrationSet:
    return CalibrationSet(tuple(calls), None, "inputs.npz", "0" * 64)


def test_fitted_matrices_lose_less_on_other_inputs_of_the_kind() -> None:
    model, other = net(), alike(16, seed=2)
    weights = weights_of(model)

    blocks, said = fit_blocks(model, weights, data_of(alike(64, seed=1)))

    assert sorted(blocks) == ["first", "second", "third"]
    assert "3 matrices fitted to 64 samples of inputs.npz" in said
    choice = dict.fromkeys(blocks, "int4")
    wanted = [run_onnx(model.SerializeToString(), call) for call in other]
    files = [rewrite(model, weights, choice, fitted=one).SerializeToString() for one in ({}, blocks)]
    plain, better = (decibels(noise(wanted, [run_onnx(file, call) for call in other])) for file in files)
    assert better > plain + 2
    assert len(files[0]) == len(files[1])


def test_the_search_sees_what_the_file_will_give() -> None:
    model, (call, *_) = net(), alike(1, seed=2)
    weights = weights_of(model)
    blocks, _ = fit_blocks(model, weights, data_of(alike(64, seed=1)))
    choice = dict.fromkeys(blocks, "int4")

    (simulated,) = WeightSession(model, weights, blocks).run([call], choice)
    (unfitted,) = WeightSession(model, weights).run([call], choice)

    written = run_onnx(rewrite(model, weights, choice, fitted=blocks).SerializeToString(), call)
    assert decibels(noise([simulated], [written])) > 110
    assert decibels(noise([unfitted], [written])) < 60


def test_plain_rounding_stays_where_inputs_held_out_are_of_another_kind() -> None:
    model = net()
    calls = alike(64, seed=1)
    calls[3::4] = alike(16, seed=3, directions=2)

    blocks, said = fit_blocks(model, weights_of(model), data_of(calls))

    assert (blocks, said) == ({}, "")


def test_few_inputs_fit_nothing() -> None:
    model = net()

    assert not fit_blocks(model, weights_of(model), data_of(alike(MIN_CALLS - 1, seed=1))).blocks
    assert fit_blocks(model, weights_of(model), data_of(alike(MIN_CALLS, seed=1))).blocks


def test_a_matrix_whose_inputs_are_not_finite_keeps_plain_rounding() -> None:
    model = net()
    place = next(i for i, node in enumerate(model.graph.node) if node.op_type == "Relu")
    model.graph.node[place].CopyFrom(helper.make_node("Log", ["c"], ["d"]))  # NaN of what is negative
    model.graph.output.append(zoo.value("b", ["n", WIDTH]))

    assert "third" not in fit_blocks(model, weights_of(model), data_of(alike(64, seed=1))).blocks


@pytest.mark.parametrize(("precision", "word"), [("int4", "Converted"), ("mixed", "Fitted")])
def test_calibration_data_fit_the_file_and_evaluation_data_do_not(precision: str, word: str, tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    onnx.save(net(), source)
    paths = [tmp_path / name for name in ("calibration.npz", "eval.npz")]
    for seed, path in enumerate(paths):
        np.savez(path, x=np.concatenate([call["x"] for call in alike(40, seed)]))
    recipe = Recipe.of(format="onnx", precision=f"fp32,{precision}", max_size="14kB", keep_all=True)

    def made(name: str, calibration: Path | None = None) -> tuple[bytes, list[str]]:
        told = Told()
        output = tmp_path / name
        result = convert(source, output, recipe=recipe, calibration=calibration, evaluation=paths[1], reporter=told)
        (variant,) = (one.variant for one in result.variants if one.variant.precision == precision)
        return (result.path / variant.file).read_bytes(), [one for one in told.steps if "fitted to" in one]

    fitted, said = made("fitted", paths[0])
    plain, nothing = made("plain")

    assert len(said) == 1
    assert said[0].startswith(word)
    assert nothing == []
    assert fitted != plain
    assert len(fitted) == len(plain)
