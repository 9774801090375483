"""Dynamic int8 within a budget: what loses too much is multiplied by blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.errors import ConversionError
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.data.calibration import CalibrationSet
from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.measure.judge import Judge
from edge_infer_converters.measure.metrics import Metric
from edge_infer_converters.passes.int8_blocks import BLOCK, pack, store_in_blocks
from edge_infer_converters.passes.int8_dynamic import to_dynamic_int8
from edge_infer_converters.passes.int8_static import prepare
from edge_infer_converters.report.reporter import LogReporter
from edge_infer_converters.search.dynamic import DynamicSearch, RoundingSession, products_of
from tests.support import zoo
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

WIDTH = 256


def tower(depth: int = 4) -> onnx.ModelProto:
    """Matrices one behind another; the second multiplies rows of which one is thirty times larger than the others."""
    rng = np.random.default_rng(8)
    weights = {f"w{i}": rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32) for i in range(depth)}
    weights["sizes"] = np.array([[30], [1], [1], [1]], np.float32)
    nodes, value = [], "x"
    for i in range(depth):
        if i == 1:
            nodes.append(helper.make_node("Mul", [value, "sizes"], ["scaled"]))
            value = "scaled"
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"p{i}"], name=f"matrix_{i}"))
        product = f"p{i}"
        if i == 1:
            nodes.append(helper.make_node("Div", [product, "sizes"], ["same"]))
            product = "same"
        nodes.append(helper.make_node("Tanh", [product], [f"t{i}" if i < depth - 1 else "y"]))
        value = f"t{i}"
    shape: list[int | str] = [4, WIDTH]
    return onnx.load_from_string(zoo.model(nodes, [zoo.value("x", shape)], [zoo.value("y", shape)], weights))


def inputs(count: int = 12) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{"x": rng.normal(0, 1, (4, WIDTH)).astype(np.float32)} for _ in range(count)]


def judge(model: onnx.ModelProto, budget: Budget) -> tuple[CalibrationSet, Judge]:
    data = CalibrationSet(tuple(inputs()), None, "test")
    references = [run_onnx(model.SerializeToString(), call) for call in data.calls]
    return data, Judge(references, Metric("cosine", data, references), budget, 4)


def test_blocks_give_back_the_matrix() -> None:
    matrix = np.random.default_rng(1).normal(0, 1, (200, 24)).astype(np.float32)

    codes, scales = pack(matrix)

    assert codes.shape == (24, 2, BLOCK)
    back = ((codes.astype(np.float32) - 128) * scales[:, :, None]).reshape(24, -1)[:, :200].T
    assert decibels(float(np.square(back - matrix).sum() / np.square(matrix).sum())) > 40
    assert (codes[:, 1, 72:] == 128).all(), "what fills up the last block is zero"


def test_the_engine_multiplies_by_blocks() -> None:
    model = prepare(tower())

    blocked = store_in_blocks(model, ["matrix_0", "matrix_3"])

    assert [node.op_type for node in blocked.graph.node].count("MatMulNBits") == 2
    calls = inputs(4)
    wanted = [run_onnx(model.SerializeToString(), call) for call in calls]
    got = [run_onnx(blocked.SerializeToString(), call) for call in calls]
    assert 30 < decibels(noise(wanted, got)) < 70


def test_rounding_one_operand_is_what_the_engine_does() -> None:
    model = prepare(tower())
    (call,) = inputs(1)
    names = {product.node for product in products_of(model)}
    session = RoundingSession(prepare(tower()), products_of(model))

    simulated = session.run([call], names)[0]
    real = run_onnx(to_dynamic_int8(tower()).SerializeToString(), call, optimize=True)
    exact = run_onnx(model.SerializeToString(), call)

    assert decibels(noise([real], [simulated])) > decibels(noise([exact], [simulated])) + 10


def test_the_matrix_with_uneven_rows_is_the_one_in_blocks() -> None:
    model = tower()
    data, judged = judge(model, Budget(min_sqnr_db=25))
    everything = to_dynamic_int8(model).SerializeToString()
    plain = [run_onnx(everything, call, optimize=True) for call in data.calls]

    found = DynamicSearch(model, data, judged, LogReporter()).run()

    assert not judged.judge(plain).is_within, "or there would be nothing to search"
    assert found.blocked == ("matrix_1",)
    results = [run_onnx(found.data, call, optimize=True) for call in data.calls]
    assert judged.judge(results).is_within


def test_what_is_good_enough_everywhere_is_dynamic_everywhere() -> None:
    model = tower()
    data, judged = judge(model, Budget(min_sqnr_db=5))

    found = DynamicSearch(model, data, judged, LogReporter()).run()

    assert found.blocked == ()
    assert found.trials == 1


def test_a_budget_that_no_int8_keeps_says_the_best_that_was_found() -> None:
    model = tower()
    data, judged = judge(model, Budget(min_sqnr_db=90))

    with pytest.raises(ConversionError, match=r"SQNR >= 90 dB.*the best found loses .* dB"):
        DynamicSearch(model, data, judged, LogReporter()).run()


def test_a_bundle_says_that_blocks_are_not_for_pages(write_model: WriteModel, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.stack([call["x"] for call in inputs()]))
    recipe = Recipe(("onnx",), ("fp32", "int8-dynamic"), keep_all=True, budget=Budget(min_sqnr_db=25))

    result = convert(
        write_model(tower().SerializeToString()), tmp_path / "t.bundle", evaluation=tmp_path / "data.npz", recipe=recipe
    )

    (dynamic,) = [one for one in result.variants if one.variant.id == "onnx/int8-dynamic"]
    assert dynamic.variant.targets == ("pi",)
    assert dynamic.quality.parity.sqnr_db >= 25
