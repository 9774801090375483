"""Tables through a pipeline: the same answers from every library and file, and a job that goes on after a stop."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.tasks.tabular.frames import predict_batch
from edge_infer.tools.tables import formats, job
from tests.support.tasks import pipelines, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 500
ROWS = tables.rows(COUNT)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edge_infer.Pipeline]:
    folder = tables.risk(tmp_path_factory.mktemp("bundles") / "risk.bundle")
    with edge_infer.pipeline(folder, threads=1) as found:
        yield found


@pytest.fixture(scope="module")
def expected(pipeline: edge_infer.Pipeline) -> list[str]:
    return [answer[0]["label"] for answer in pipeline(ROWS)]


def written(folder: Path, kind: str, columns: dict[str, list[Any]] = ROWS) -> Path:
    """Write rows as a file."""
    path, table = folder / f"rows.{kind}", pyarrow.table(columns)
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=64)
    elif kind == "arrow":
        with pyarrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=70)
    elif kind == "feather":
        with pyarrow.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table, max_chunksize=70)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), "utf-8")
    else:
        table.to_pandas().to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    return path


def read(path: Path) -> dict[str, list[Any]]:
    """Read a file of answers."""
    if path.suffix == ".parquet":
        return dict(pyarrow.parquet.read_table(path).to_pydict())
    if path.suffix == ".arrow":
        return dict(pyarrow.ipc.open_file(path).read_all().to_pydict())
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in file]
        else:
            rows = [{**row, "row": int(row["row"]), "score": float(row["score"])} for row in csv.DictReader(file)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_the_same_table_of_any_library_gives_the_same_answers(
    pipeline: edge_infer.Pipeline, expected: list[str]
) -> None:
    arrow = pyarrow.table(ROWS)

    class Foreign:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return arrow.__arrow_c_stream__(requested_schema)

    found = [
        pipeline.predict_table(ROWS)["label"],
        pipeline.predict_table(arrow)["label"].to_pylist(),
        pipeline.predict_table(Foreign())["label"].to_pylist(),
        pipeline.predict_table(polars.DataFrame(ROWS))["label"].to_list(),
        pipeline.predict_table(pandas.DataFrame(ROWS))["label"].tolist(),
    ]

    assert found == [expected] * 5
    both = pipeline.predict_table(arrow, scores=True)
    assert np.allclose(both["score_bad"].to_numpy() + both["score_good"].to_numpy(), 1)


def test_rows_of_numbers_reach_the_model_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"step": "tabular.columns", "names": ["a", "b", "c"], "types": ["float64"] * 3}
    numbers = np.arange(12, dtype="f4").reshape(4, 3)
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numbers.reshape(-1)), 3)
    taken: list[int] = []

    with edge_infer.pipeline(tables.risk(tmp_path / "rows.bundle", [columns, {"step": "tabular.tensor"}])) as pipeline:
        run = pipeline.session.run

        def watched(inputs: Any, outputs: Any = None) -> Any:
            taken.append(np.asarray(inputs["x"]).__array_interface__["data"][0])
            return run(inputs, outputs)

        monkeypatch.setattr(pipeline.session, "run", watched)
        whole = pipeline.predict_table(pyarrow.table({"rows": rows}))
        parts = pipeline.predict_table({name: numbers[:, i] for i, name in enumerate("abc")})
        with pytest.raises(InputError, match="row 1 has a number that is missing"):
            numbers[1, 1] = np.nan
            pipeline.predict_table(pyarrow.table({"rows": rows}))

        answers = predict_batch(pipeline, pyarrow.record_batch({"rows": rows}), scores=False, rejects=True)
        some = pyarrow.array([[0, 1, 2], None, [6, 7, 8]], pyarrow.list_(pyarrow.float32(), 3))
        others = predict_batch(pipeline, pyarrow.record_batch({"rows": some}), scores=False, rejects=True)
        assert (list(answers.rows), list(answers.rejected)) == ([0, 2, 3], [1])
        assert (list(others.rows), list(others.rejected)) == ([0, 2], [1])
        assert answers.columns["label"].tolist() == [parts["label"][i] for i in (0, 2, 3)]

    assert taken[0] == numbers.__array_interface__["data"][0]
    assert whole["label"].to_pylist() == parts["label"]


@pytest.mark.parametrize("library", ["pyarrow", "polars", ""])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather", "csv", "tsv", "jsonl"])
def test_every_file_gives_the_same_answers(
    pipeline: edge_infer.Pipeline,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    library: str,
) -> None:
    monkeypatch.setattr(formats, "library", lambda: library)
    source = written(tmp_path, kind)
    target = tmp_path / ("out.csv" if not library else "out.arrow" if kind == "jsonl" else "out.parquet")
    if not library and kind in ("parquet", "arrow", "feather"):
        with pytest.raises(UnsupportedError, match="neither is installed"):
            job.run(pipeline, source, target)
        return
    if library == "polars" and kind == "feather":
        return  # polars reads files of Arrow, and no streams

    done = job.run(pipeline, source, target, keep=["id"], batch_rows=60, part_rows=130)

    assert done == job.Done(COUNT, 0, 0)
    found = read(target)
    assert found["row"] == list(range(COUNT))
    assert found["id"] == ROWS["id"]
    assert found["label"] == expected
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_a_stopped_job_goes_on_where_it_was(
    pipeline: edge_infer.Pipeline, expected: list[str], tmp_path: Path, kind: str
) -> None:
    source, target = written(tmp_path, kind), tmp_path / f"out.{kind}"
    seen = 0

    def stop(rows: int) -> None:
        nonlocal seen
        seen += rows
        if seen > 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.run(pipeline, source, target, batch_rows=50, part_rows=100, advance=stop)
    assert not target.exists()
    with pytest.raises(InputError, match="interrupted job of another `scores`"):
        job.run(pipeline, source, target, scores=True)
    done = job.run(pipeline, source, target, batch_rows=50, part_rows=100)

    assert done.rows == COUNT
    assert done.resumed >= 200
    assert read(target)["row"] == list(range(COUNT))
    assert read(target)["label"] == expected


@pytest.mark.parametrize("library", ["pyarrow", ""])
def test_rows_without_an_answer_are_told_by_number_and_reason(
    pipeline: edge_infer.Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(formats, "library", lambda: library)
    lines = written(tmp_path, "csv").read_text("utf-8").splitlines()
    lines[3] = "n2,1,2"
    lines[11] = "n10,1.5,old,Bern,1"
    lines[301] = "n300,,44,Basel,1"
    lines[402] += ",more"
    (tmp_path / "rows.csv").write_text("\n".join(lines), "utf-8")
    target = tmp_path / "out.jsonl"

    done = job.run(pipeline, tmp_path / "rows.csv", target, batch_rows=64, part_rows=128)

    assert (done.rows, done.rejected) == (COUNT - 4, 4)
    assert [json.loads(line) for line in job.rejects_of(target).read_text("utf-8").splitlines()] == [
        {"row": 2, "reason": "3 values, expected 5"},
        {"row": 10, "reason": "`age` is 'old', expected int64"},
        {"row": 300, "reason": "`city` is 'Basel', which is not one of its 3 categories"},
        {"row": 401, "reason": "6 values, expected 5"},
    ]
    assert read(target)["row"] == [row for row in range(COUNT) if row not in (2, 10, 300, 401)]


def test_the_command_writes_answers_and_says_how_many(tmp_path: Path, pipeline: edge_infer.Pipeline) -> None:
    source, target = written(tmp_path, "parquet"), tmp_path / "out.parquet"
    arguments = ["predict", str(tables.risk(tmp_path / "risk.bundle")), str(source), "-o", str(target)]

    done = CliRunner().invoke(cli, [*arguments, "--json", "--keep", "all", "--threads", "1"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == COUNT
    assert set(read(target)) == {*ROWS, "row", "label", "score"}


def test_a_pipeline_for_something_else_takes_no_table(tmp_path: Path) -> None:
    with (
        edge_infer.pipeline(pipelines.colours(tmp_path / "colours.bundle")) as pipeline,
        pytest.raises(UnsupportedError, match="takes no table"),
    ):
        pipeline.predict_table(ROWS)
