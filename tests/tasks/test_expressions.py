"""Expressions over columns: the same bits with numpy, without it and in JavaScript; statistics as pandas has them."""

from __future__ import annotations

import base64
import json
import math
import random
import statistics
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge_infer
from edge_infer import col
from edge_infer.errors import EdgeInferError, InputError, ManifestError
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.sources import tables
from edge_infer.tasks.sources.facts import Facts
from edge_infer.tasks.steps import read_step
from edge_infer.tasks.tabular import evaluation
from edge_infer.tasks.tabular.expression_tree import BINARY, UNARY, check
from edge_infer.tasks.tabular.plain_operators import log, log1p
from edge_infer.tasks.tabular.table import Table
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Path(__file__).with_name("run_steps.mjs")
ODD = [0.0, -0.0, 1.0, -1.5, 3.0, 1e308, -1e308, 5e-324, 1e-310, 0.1, 2.0**53, 1.0000000000000002, -0.5]
ROW: dict[str, Any] = {"a": 1.5, "b": -2.0, "gap": None, "city": "Bern", "none": None}
TYPES = {"a": "float64", "b": "float64", "gap": "float64", "city": "string", "none": "string"}
CITIES = ["lookup", ["col", "city"], ["Bern", "Chur"], [1.5, -2]]
PEOPLE: dict[str, list[Any]] = {
    "city": ["Bern", "Chur", "Bern", None, "Chur", "Genf", "Bern"],
    "zone": [1, 2, 1, 2, 2, 3, 1],
    "income": [1e9 + 0.5, 3.25, 1e9 - 0.25, 4.0, None, None, 1e9 + 0.75],
}


def columns_step(names: dict[str, str]) -> dict[str, Any]:
    return {
        "step": "tabular.columns",
        "names": list(names),
        "types": list(names.values()),
        "nullable": list(names),
    }


def numbers(chance: random.Random, depth: int) -> Any:
    """Return some expression that gives numbers."""
    if depth == 0 or chance.random() < 0.1:
        leaf = chance.choice(["a", "b", "gap", None, "number", "city"])
        if leaf == "number":
            return chance.choice([*ODD, chance.uniform(-9, 9)])
        return leaf if leaf is None else CITIES if leaf == "city" else ["col", leaf]
    kind = chance.choice(["binary", "binary", "unary", "unary", "clip", "when", "lookup", "texts"])
    part = [numbers(chance, depth - 1) for _ in range(3)]
    if kind == "binary":
        return [chance.choice(BINARY), *part[:2]]
    if kind == "unary":
        word = chance.choice(UNARY)
        return [word, texts(chance) if word == "length" else part[0]]
    if kind == "clip":
        return ["clip", part[0], chance.choice([None, 0.0, -1]), chance.choice([None, 2.5])]
    if kind == "when":
        return ["when", *part]
    if kind == "lookup":
        return ["lookup", ["floor", part[0]], [1, 2.0, -3, 0, 2**53 + 1], [0.5, 7, -0.0, 2, 3]]
    return [chance.choice(["==", "!="]), texts(chance), chance.choice([None, texts(chance)])]


def texts(chance: random.Random) -> Any:
    """Return some expression that gives texts."""
    leaf = [["col", "city"], ["col", "none"], ["text", "Bern"], ["text", "Z\u00fcrich \U0001f600"]]
    kind = chance.choice(["leaf", "when", "fill_null"])
    if kind == "leaf":
        return chance.choice(leaf)
    if kind == "when":
        return ["when", numbers(chance, 1), chance.choice(leaf), chance.choice([None, *leaf])]
    return ["fill_null", chance.choice(leaf), chance.choice([None, *leaf])]


def derive(tree: Any) -> dict[str, Any]:
    return {"step": "tabular.derive", "names": ["x"], "expressions": [tree], "nullable": ["x"]}


def computed(tree: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """Return what the step makes of some rows."""
    table: Any = Table({name: [row[name] for row in rows] for name in TYPES}, len(rows))
    for step in (columns_step(TYPES), derive(tree)):
        table = read_step(step, "steps").prepare(Place(lambda _path: b"", [], [], []))(table, Item())
    return list(table.columns["x"])


def bits(values: list[float]) -> list[bytes]:
    return [struct.pack("<d", one) for one in values]


def without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "has_numpy", lambda: False)


def test_numpy_plain_python_and_javascript_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(23)
    trees = [numbers(chance, 4) for _ in range(400)]
    rows = [ROW, {**ROW, "city": "Chur"}, {**ROW, "city": None, "gap": 4.0}]
    rows += [{**ROW, "a": chance.choice(ODD), "b": chance.choice(ODD), "city": "Genf"} for _ in range(5)]
    spec = {"name": "x", "dtype": "float64", "shape": ["batch", 1]}
    cases = [
        {
            "steps": [columns_step(TYPES), derive(tree), {"step": "tabular.tensor"}],
            "value": row,
            "place": {"inputs": [spec], "input": "x"},
        }
        for tree in trees
        for row in rows
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases), "utf-8")

    by_numpy = [computed(tree, rows) for tree in trees]
    done = subprocess.run(
        ["node", str(PROGRAM), str(tmp_path / "cases.json")], capture_output=True, text=True, check=True
    )
    in_page = [base64.b64decode(one["answer"]["data"]) for one in json.loads(done.stdout)]
    without_numpy(monkeypatch)

    kinds = {math.isnan(one) for values in by_numpy for one in values}
    assert kinds == {True, False}
    for at, (tree, found) in enumerate(zip(trees, by_numpy, strict=True)):
        assert bits(found) == bits(computed(tree, rows)), tree
        assert bits(found) == in_page[at * len(rows) : (at + 1) * len(rows)], tree


@given(st.floats(min_value=5e-324, allow_infinity=False))
def test_logarithms_are_right_to_the_last_bits(x: float) -> None:
    assert math.isclose(log(x), math.log(x), rel_tol=1e-15, abs_tol=5e-324)
    assert math.isclose(log1p(x), math.log1p(x), rel_tol=2e-15, abs_tol=5e-324)


def test_a_division_by_zero_is_infinite_and_missing_stays_missing() -> None:
    table = {"a": [1.0, -1.0, 0.0, None], "b": [0.0, 0.0, 0.0, 2.0]}
    made = edge_infer.fit_features({"x": col("a") / col("b"), "y": ~(col("a") > 0) | (col("b") == 2)}, table).table(
        table
    )
    assert made["x"].tolist()[:2] == [math.inf, -math.inf]
    assert np.isnan(made["x"][2:]).all()
    assert made["y"].tolist() == [0.0, 1.0, 1.0, 1.0]


def _deviation(group: pandas.Series) -> float:
    return statistics.stdev(group.dropna()) if group.count() > 1 else math.nan


@pytest.mark.parametrize("statistic", ["count", "sum", "mean", "std", "min", "max"])
@pytest.mark.parametrize("by", ["city", "zone"])
def test_a_statistic_of_groups_is_that_of_pandas(statistic: str, by: str) -> None:
    frame = pandas.DataFrame(PEOPLE)
    group = col(by, "string" if by == "city" else "int64")
    expression = getattr(col("income"), statistic)().over(group)

    features = edge_infer.fit_features({"x": expression}, PEOPLE)

    # The deviation of pandas is off by 2e-8 for numbers that are large and differ little.
    right = _deviation if statistic == "std" else statistic
    expected = frame.groupby(by)["income"].transform(right).to_numpy(float)
    if statistic == "sum":  # of no value it is 0 there, too
        expected = np.where(frame[by].isna(), np.nan, expected)
    np.testing.assert_allclose(features.table(PEOPLE)["x"], expected, rtol=1e-14)
    assert features.table({**PEOPLE, by: [9 if by == "zone" else "Basel"] * 7})["x"].tolist() == pytest.approx(
        [math.nan] * 7, nan_ok=True
    )


def test_parts_of_any_library_give_the_numbers_of_the_whole() -> None:
    chance = np.random.default_rng(1)
    frame = pandas.DataFrame({"city": chance.choice(["a", "b", "c"], 999), "income": chance.normal(1e6, 1, 999)})
    expressions = {
        "x": (col("income") - col("income").mean().over("city")) / col("income").std(),
        "y": col("income").max().over("city"),
    }

    whole = edge_infer.fit_features(expressions, frame)

    parts = [frame[:1], polars.DataFrame(frame[1:400]), pyarrow.table(dict(frame[400:].items()))]
    assert edge_infer.fit_features(expressions, iter(parts)).expressions == whole.expressions
    for table in (pyarrow.table(dict(frame.items())), polars.DataFrame(frame), frame):
        made = whole.table(table)
        assert type(made) is type(table)
        assert bits(list(np.asarray(made["x"]))) == bits(list(whole.table(frame)["x"]))


@pytest.mark.parametrize(
    ("expressions", "message"),
    [
        (lambda: {"x": (col("income") - col("income").mean()).std()}, "of another statistic"),
        (lambda: {"x": col("income").over("city")}, "stands behind a statistic"),
        (lambda: {"x": col("city", "string").mean()}, "is of texts"),
        (lambda: {"x": (1 / (col("zone") - 1)).mean()}, "infinite"),
        (lambda: {"x": col("income").clip(0) if col("income") > 1 else None}, "neither true nor false"),
        (lambda: {"x": col("income") + math.inf}, "takes no inf"),
        (lambda: {"x": col("income", "int64") + col("income")}, "is int64 and float64"),
        (lambda: {"x": col("income") + 10**400}, "no number of more than"),
        (lambda: {"x": col("income").clip("low")}, "not what `clip` takes"),  # type: ignore[arg-type]
        (lambda: {"x": sum_of(2000)}, "is too large"),
        (lambda: {"x": sum_of(2000).mean()}, "is too large"),
        (lambda: {"x": doubled(40)}, "is too large"),
        (lambda: {"x": (col("income") * 1e200).std().over("city")}, "a std is too large for float64"),
        (lambda: {"x": col("incomes")}, "the column `incomes` is missing"),
        (lambda: {"x": 5}, "expected an expression"),
        (dict, "name no column"),
    ],
)
def test_what_cannot_be_computed_is_refused(expressions: Callable[[], dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        edge_infer.fit_features(expressions(), PEOPLE).table(PEOPLE)


def sum_of(parts: int) -> edge_infer.Expression:
    whole = col("income")
    for _ in range(parts):
        whole = whole + 1
    return whole


def doubled(times: int) -> edge_infer.Expression:
    """Return what has 2^times parts, and few objects."""
    whole = col("income")
    for _ in range(times):
        whole = whole + whole
    return whole


def test_what_stands_for_a_missing_text_needs_no_word() -> None:
    features = edge_infer.fit_features({"x": (col("zone") > 1).when("far")}, PEOPLE)
    assert features.table(PEOPLE)["x"] == [None, "far", None, "far", "far", "far", None]


HOSTILE: list[Any] = [
    ["eval", 1],
    ["col"],
    ["col", 5],
    ["+", 1],
    ["+", 1, 2, 3],
    ["clip", 1, "a", None],
    ["lookup", ["col", "city"], ["a", "a"], [1, 2]],
    ["lookup", ["col", "city"], ["a", 1], [1, 2]],
    ["lookup", ["col", "city"], ["a"], [None]],
    ["lookup", ["col", "city"], ["a"], []],
    ["lookup", ["col", "a"], ["a"], [1]],
    ["lookup", ["col", "a"], [2**53, 2**53 + 1], [1, 2]],  # one number in float64
    ["text", None],
    {"col": "a"},
    "a",
    True,
    [],
    [[1]],
    ["+", ["col", "city"], 1],
    ["==", ["col", "city"], 1],
    ["log", ["text", "a"]],
    ["length", ["col", "a"]],
    ["clip", ["col", "city"], 0, 1],
    ["when", ["col", "city"], 1, 2],
    ["col", "unknown"],
    ["__proto__", 1],
]


def test_javascript_and_python_refuse_the_same_expressions(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(80):
        deep = ["neg", deep]
    wide = ["+", 1, 2]
    for _ in range(12):
        wide = ["+", wide, wide]
    trees = [*HOSTILE, deep, wide]
    cases = [{"steps": [columns_step(TYPES), derive(tree)], "value": ROW} for tree in trees]
    (tmp_path / "cases.json").write_text(json.dumps(cases), "utf-8")
    done = subprocess.run(
        ["node", str(PROGRAM), str(tmp_path / "cases.json")], capture_output=True, text=True, check=True
    )
    for tree, one in zip(trees, json.loads(done.stdout), strict=True):
        with pytest.raises(ManifestError):
            computed(tree, [ROW])
        assert one.get("code") == "manifest_error", (tree, one)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*BINARY, *UNARY, "col", "clip", "lookup"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=2), inside, max_size=2),
    max_leaves=12,
)


@given(JSON)
def test_any_data_are_an_expression_or_refused(tree: Any) -> None:
    try:
        check(tree, "x")
        computed(tree, [ROW])
    except EdgeInferError:
        pass


def test_a_row_that_lacks_a_feature_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_plain in (False, True):
        if is_plain:
            without_numpy(monkeypatch)
        table: Any = Table({name: [ROW[name]] * 2 for name in TYPES} | {"a": [0.0, 2.0]}, 2, rejects=True)
        step = {**derive(["/", 1, ["col", "a"]]), "nullable": []}
        for one in (columns_step(TYPES), step):
            table = read_step(one, "steps").prepare(Place(lambda _path: b"", [], [], []))(table, Item())
        assert table.rejected == {0: "`x` is infinite"}


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["x", "y"]},
        {"names": [], "expressions": []},
        {"names": ["x", "x"], "expressions": [1, 2]},
        {"nullable": ["z"]},
        {"expressions": {"x": 1}},
    ],
)
def test_a_step_that_does_not_fit_itself_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        read_step({**derive(1), **change}, "steps").prepare(Place(lambda _path: b"", [], [], []))


def test_features_stand_before_the_steps_of_the_model_that_reads_them() -> None:
    features = edge_infer.fit_features({"x": col("income") / 2, "y": col("zone") + 1}, PEOPLE)
    columns: list[dict[str, Any]] = [
        {"name": "x", "dtype": "float64", "nullable": True},
        {"name": "y", "dtype": "float64"},
    ]
    found = tables.with_features(features.steps(), facts_of(columns), None)
    (steps,) = found.definition.inputs.values()
    assert [step.name for step in steps] == ["tabular.columns", "tabular.derive", "tabular.tensor"]
    assert steps[1].parameters["nullable"] == ["x"]

    with pytest.raises(InputError, match="the features are `x`, `y`, and the model has `y`, `x`"):
        tables.with_features(features.steps(), facts_of(columns[::-1]), None)
    with pytest.raises(InputError, match="are not the steps"):
        tables.with_features(features.steps()[:1], facts_of(columns), None)


def facts_of(columns: list[dict[str, Any]]) -> Facts:
    """Return the facts of a regression over columns."""
    document = {"source": "scikit-learn", "answer": "value", "columns": columns}
    inputs = (TensorSpec("in", "float32", ["batch", len(columns)]),)
    outputs = (TensorSpec("variable", "float32", ["batch", 1]),)
    return Facts("onnx", inputs, outputs, {}, {}, {tables.KEY: json.dumps(document)}, ())
