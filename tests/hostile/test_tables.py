"""Wrong and damaged tables: an error that names the file, the column and the row, and no file half-written."""

from __future__ import annotations

import datetime
import json
import resource
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer.errors import EdgeInferError, InputError
from edge_infer.tools.tables import formats, job
from tests.support.tasks import tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4), st.binary(max_size=3)
)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edge_infer.Pipeline]:
    folder = tables.risk(tmp_path_factory.mktemp("bundles") / "risk.bundle")
    with edge_infer.pipeline(folder, threads=1) as found:
        yield found


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pyarrow.array([datetime.date(2026, 1, 1)] * 2), "date32"),
        (pyarrow.array([{"a": 1}] * 2), "struct"),
        (pyarrow.array([[1.0]] * 2), "list"),
        (pyarrow.array([b"x"] * 2), "binary"),
        (pyarrow.array(["1", "2"]), "'1', expected int64"),
        (pyarrow.array([1.5, 2.5]), "double, expected int64|float64, expected int64"),
        (pyarrow.array([2**60, 1]), "does not hold exactly"),
        (pyarrow.array([None, 4]), "missing"),
        (pyarrow.nulls(2), "missing"),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_named(pipeline: edge_infer.Pipeline, column: Any, said: str) -> None:
    table = pyarrow.table({"age": column, "city": ["Bern", "Chur"], "income": [1.0, 2.0]})

    for one in (table, polars.DataFrame(table) if "date" not in said else table):
        with pytest.raises(InputError, match=f"`age`.*({said}|expected)|{said}"):
            pipeline.predict_table(one)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["age", "city", "income", "other"]), st.lists(VALUES, max_size=4), max_size=4))
def test_any_columns_are_answered_or_refused(pipeline: edge_infer.Pipeline, table: dict[str, Any]) -> None:
    try:
        found = pipeline.predict_table(table)
    except EdgeInferError as error:
        assert error.message
        return
    assert set(found) <= {"label", "score"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), ending=st.sampled_from(["csv", "jsonl", "parquet", "arrow", "tsv"]))
def test_any_bytes_are_a_table_or_refused(
    pipeline: edge_infer.Pipeline, tmp_path: Path, data: bytes, ending: str
) -> None:
    path = tmp_path / f"any.{ending}"
    path.write_bytes(data)
    try:
        job.run(pipeline, path, tmp_path / "out.csv", restart=True)
    except EdgeInferError as error:
        assert error.hint


@pytest.mark.parametrize("cut", [4, 100, -9, -1])
def test_a_damaged_parquet_is_refused(pipeline: edge_infer.Pipeline, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table(tables.rows(50)), path)
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(InputError, match=r"rows.parquet` cannot be read"):
        job.run(pipeline, path, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_bytes_changed_inside_a_parquet_are_refused_or_harmless(pipeline: edge_infer.Pipeline, tmp_path: Path) -> None:
    good, path = tmp_path / "good.parquet", tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table(tables.rows(200)), good)
    chance = np.random.default_rng(5)
    for _ in range(25):
        data = bytearray(good.read_bytes())
        for place in chance.integers(0, len(data), 3):
            data[place] ^= int(chance.integers(1, 256))
        path.write_bytes(data)
        try:
            job.run(pipeline, path, tmp_path / "out.csv", restart=True)
        except EdgeInferError as error:
            assert error.hint


def test_a_missing_column_is_named_before_any_row_is_read(pipeline: edge_infer.Pipeline, tmp_path: Path) -> None:
    rows = tables.rows(5)
    del rows["city"]
    for ending in ("csv", "jsonl", "parquet"):
        path = tmp_path / f"rows.{ending}"
        frame = pandas.DataFrame(rows)
        if ending == "csv":
            frame.to_csv(path, index=False)
        elif ending == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path)
        with pytest.raises(InputError, match="no column `city`") as caught:
            job.run(pipeline, path, tmp_path / "out.csv", restart=True)
        assert "income" in caught.value.hint


def test_a_name_twice_and_a_text_that_is_not_utf8_are_refused(pipeline: edge_infer.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,city,income,age\n1,Bern,2,3\n", "utf-8")
    with pytest.raises(InputError, match="the column `age` twice"):
        job.run(pipeline, path, tmp_path / "out.csv")
    path.write_bytes(b"age,city,income\n1,B\xffrn,2\n")
    with pytest.raises(InputError, match="cannot be read"):
        job.run(pipeline, path, tmp_path / "out.csv", restart=True)


def test_the_folder_of_another_job_is_not_gone_on_from(pipeline: edge_infer.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,city,income\n1,Bern,2\n", "utf-8")
    (tmp_path / "out.csv.partial").mkdir()
    for content in (b"", b"{}", b'{"parts": [{}]}', b'{"parts": 5}'):
        (tmp_path / "out.csv.partial/job.json").write_bytes(content)
        with pytest.raises(InputError, match="interrupted job") as caught:
            job.run(pipeline, path, tmp_path / "out.csv")
        assert caught.value.hint.startswith("--restart")
    (tmp_path / "out.csv.partial/job.json").rename(tmp_path / "out.csv.partial/notes.txt")
    for restart in (False, True):
        with pytest.raises(InputError, match=r"has no job\.json"):
            job.run(pipeline, path, tmp_path / "out.csv", restart=restart)
    (tmp_path / "out.csv.partial/notes.txt").unlink()
    assert job.run(pipeline, path, tmp_path / "out.csv").rows == 1, "an empty folder is what a kill leaves"


@pytest.mark.parametrize("library", ["pyarrow", ""])
def test_each_line_of_csv_is_answered_or_told(
    pipeline: edge_infer.Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(formats, "library", lambda: library)
    path, output = tmp_path / "rows.csv", tmp_path / "out.csv"
    for lines, rows, rejected in (["1", "2,Bern"], 0, [0, 1]), (["1", "", "2,Bern,3", "", "4"], 1, [0, 2]):
        path.write_text("\n".join(["age,city,income", *lines, ""]), "utf-8")
        done = job.run(pipeline, path, output)
        told = [json.loads(line)["row"] for line in job.rejects_of(output).read_text("utf-8").splitlines()]
        assert (done.rows, done.rejected, told) == (rows, len(rejected), rejected)


@pytest.mark.parametrize(("ending", "library"), [("csv", "pyarrow"), ("parquet", "polars")])
def test_one_column_of_another_name_is_told(
    pipeline: edge_infer.Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, library: str
) -> None:
    monkeypatch.setattr(formats, "library", lambda: library)
    path = tmp_path / f"rows.{ending}"
    frame = pandas.DataFrame({"weight": [1, 2]})
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)

    with pytest.raises(InputError, match="no column `age` and 2 more") as caught:
        job.run(pipeline, path, tmp_path / "out.csv")

    assert caught.value.hint == "it has weight"


@pytest.mark.long
def test_a_csv_larger_than_what_memory_may_grow_is_read(pipeline: edge_infer.Pipeline, tmp_path: Path) -> None:
    path, line = tmp_path / "rows.csv", "44,Bern,1.25," + "x" * 80 + "\n"
    with path.open("w", encoding="utf-8") as file:
        file.write("age,city,income,filler\n")
        for _ in range(10):
            file.write(line * 50_000)
    job.run(pipeline, path, tmp_path / "warm.csv", batch_rows=16_384)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with path.open("a", encoding="utf-8") as file:
        for _ in range(30):
            file.write(line * 50_000)
    done = job.run(pipeline, path, tmp_path / "out.csv", batch_rows=16_384)

    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert done.rows == 2_000_000
    assert grown < 30e6, grown
