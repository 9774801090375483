"""The steps of tables: the same numbers with numpy, without it and in JavaScript, and errors that name the column."""

from __future__ import annotations

import base64
import json
import math
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_infer.errors import EdgeInferError, InputError
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import read_step
from edge_infer.tasks.tabular import categories, columns, table, tensor
from edge_infer.tasks.tabular.table import Table
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.tensors.tensor import Tensor

PROGRAM = Path(__file__).with_name("run_steps.mjs")
NAMES: dict[str, Any] = {
    "step": "tabular.columns",
    "names": ["age", "city", "size", "old"],
    "types": ["int64", "string", "float64", "bool"],
    "nullable": ["size"],
}
CITIES: dict[str, Any] = {"step": "tabular.categories", "values": {"city": ["Bern", "Chur", "Genf"]}}
STEPS: list[dict[str, Any]] = [
    NAMES,
    CITIES,
    {"step": "tabular.impute", "columns": ["size"], "values": [1.7]},
    {"step": "tabular.scale", "columns": ["age", "size"], "mean": [41.3, 0.1], "scale": [7.7, -0.3]},
    {"step": "tabular.clip", "columns": ["age"], "low": [-1.1], "high": [2.2]},
    {"step": "tabular.tensor"},
]
ROW: dict[str, Any] = {"age": 52, "city": "Genf", "size": 1.83, "old": True, "more": "ignored"}
ROWS = [
    ROW,
    {**ROW, "age": 12, "city": "Bern", "size": None, "old": False},
    {**ROW, "age": 41.0, "size": 0.1},
    {**ROW, "size": 2**53},
]
WRONG: list[dict[str, Any]] = [
    {"age": 52, "city": "Genf", "size": 1},
    {**ROW, "age": "52"},
    {**ROW, "age": 5.5},
    {**ROW, "age": None},
    {**ROW, "city": "Basel"},
    {**ROW, "city": 5},
    {**ROW, "city": None},
    {**ROW, "old": 1},
    {**ROW, "size": 1e300},
    {**ROW, "size": "tall"},
]


def prepared(steps: list[dict[str, Any]], dtype: str = "float32") -> Callable[[Any], Any]:
    inputs = [TensorSpec("x", dtype, ["batch", 4])]
    place = Place(lambda _path: b"", [], inputs, [], "x")
    chain = [read_step(step, "steps").prepare(place) for step in steps]

    def run(value: Any) -> Any:
        for step in chain:
            value = step(value, Item())
        return value

    return run


@pytest.fixture(params=["numpy", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        for module in (columns, table, tensor):
            monkeypatch.setattr(module, "has_numpy", lambda: False)
    return str(request.param)


def test_a_row_becomes_the_tensor_of_its_columns(way: str) -> None:
    made: Tensor = prepared(STEPS)(ROW)

    expected = np.array([min((52 - 41.3) / 7.7, 2.2), 2, (1.83 - 0.1) / -0.3, 1], "f4")
    assert made.shape == (4,)
    assert bytes(made.data()) == expected.tobytes(), way


def test_a_whole_table_gives_what_its_rows_give(way: str) -> None:
    run = prepared(STEPS)
    columns_ = {name: [row[name] for row in ROWS] for name in ROW}

    made = run(Table(dict(columns_), len(ROWS)))
    arrays = run(Table({**columns_, "size": np.array([1.83, math.nan, 0.1, 2.0**53])}, len(ROWS)))

    assert made.shape == (4, 4), way
    assert bytes(made.data()) == b"".join(bytes(run(row).data()) for row in ROWS)
    assert bytes(arrays.data()) == bytes(made.data())


def test_rows_that_cannot_go_on_are_told_and_the_others_stay(way: str) -> None:
    rows = [ROW, *WRONG[1:]]
    made = Table({name: [row[name] for row in rows] for name in ROW}, len(rows), rejects=True)

    prepared(STEPS)(made)

    assert made.rejected is not None, way
    assert sorted(made.rejected) == list(range(1, len(rows)))
    assert made.rejected[4] == "`city` is 'Basel', which is not one of its 3 categories"
    assert made.rejected[8].endswith("e+300, too large for float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_javascript_gives_the_same_numbers_and_the_same_refusals(dtype: str, tmp_path: Path) -> None:
    spec = {"name": "x", "dtype": dtype, "shape": ["batch", 4]}
    unknown = [{**CITIES, "unknown": word} for word in ("missing", "minus_one")]
    given: list[tuple[list[dict[str, Any]], Any]] = [(STEPS, row) for row in (*ROWS, *WRONG)]
    given += [([NAMES, other, STEPS[-1]], {**ROW, "city": "Basel"}) for other in unknown]
    given += [
        ([NAMES, STEPS[-1]], ROW),
        ([{**NAMES, "nullable": ["none"]}], ROW),
        ([NAMES, {**STEPS[3], "mean": [1]}], ROW),
    ]
    file = tmp_path / "cases.json"
    cases = [{"steps": steps, "value": row, "place": {"inputs": [spec], "input": "x"}} for steps, row in given]
    file.write_text(json.dumps(cases), "utf-8")

    done = subprocess.run(["node", str(PROGRAM), str(file)], capture_output=True, text=True, check=True)

    for (steps, row), one in zip(given, json.loads(done.stdout), strict=True):
        try:
            expected = prepared(steps, dtype)(row)
        except EdgeInferError as error:
            assert one.get("code") == error.code, (row, one, error.message)
            continue
        assert base64.b64decode(one["answer"]["data"]) == bytes(expected.data()), (row, one)


def test_a_column_of_a_type_that_would_lose_something_is_refused() -> None:
    run = prepared(STEPS)
    good: dict[str, Any] = {
        "age": np.array([1]),
        "city": ["Bern"],
        "size": np.array([1], "f4"),
        "old": np.array([True]),
    }

    assert run(Table(dict(good), 1)).shape == (1, 4)
    for name, column in {"age": np.array([1.5]), "old": np.array([1]), "size": np.array(["a"])}.items():
        with pytest.raises(InputError, match=f"the column `{name}` is .*, expected"):
            run(Table({**good, name: column}, 1))
    with pytest.raises(InputError, match="does not hold exactly"):
        run(Table({**good, "age": np.array([2**60])}, 1))


def test_a_missing_column_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="the column `size` is missing") as caught:
        prepared(STEPS)({**{k: v for k, v in ROW.items() if k != "size"}, "sise": 1})
    assert "sise" in caught.value.hint


def test_categories_count_from_zero_in_their_order() -> None:
    place = Place(lambda _path: b"", [], [], [])
    step = categories.prepare({"values": {"n": [3, 1.5, 2]}, "unknown": "minus_one"}, place)

    made = step(Table({"n": np.array([2.0, 3.0, 1.5, 9.0, math.nan])}, 5), Item())

    assert list(made.columns["n"])[:4] == [2.0, 0.0, 1.0, -1.0]
    assert math.isnan(made.columns["n"][4])


def test_a_tensor_knows_its_type() -> None:
    assert prepared(STEPS, "float64")(ROW).dtype is DType.FLOAT64
