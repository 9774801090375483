"""Write a table in parts that survive a kill, and join them."""

from __future__ import annotations

import csv
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.platform.atomic_write import write_file
from edge_infer.tasks.tabular.batch import Names
from edge_infer.tasks.tabular.frames import to_arrow
from edge_infer.tools.tables.formats import check_library, format_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COPY = 2**20


def write_part(path: Path, batches: Sequence[dict[str, Any]]) -> None:
    """Write a part of a table whole or not at all.

    Args:
        path: The file; its ending says the format.
        batches: The columns of each batch, of one set of names.
    """
    format_, library = format_of(path), check_library(path)
    temporary = path.with_name(f"writing{path.suffix}")
    if format_ in ("csv", "jsonl"):
        _write_lines(temporary, batches, format_, delimiter="\t" if path.suffix == ".tsv" else ",")
    elif library == "pyarrow":
        _write_arrow(temporary, batches, format_)
    else:
        _write_polars(temporary, batches, format_)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def join(parts: Sequence[Path], path: Path) -> None:
    """Join parts to one file, in constant memory, and put it into place in one step."""
    format_, library = format_of(path), check_library(path)
    temporary = path.with_name(f".{path.stem}.joining{path.suffix}")
    try:
        if format_ in ("csv", "jsonl") or not parts:
            with temporary.open("wb") as target:
                for i, one in enumerate(parts):
                    with one.open("rb") as source:
                        if format_ == "csv" and i:
                            source.readline()  # its names
                        shutil.copyfileobj(source, target, _COPY)
        elif library == "pyarrow":
            _join_arrow(parts, temporary, format_)
        else:
            import polars

            scan = polars.scan_parquet(list(parts)) if format_ == "parquet" else polars.scan_ipc(list(parts))
            scan.sink_parquet(temporary) if format_ == "parquet" else scan.sink_ipc(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_rejects(path: Path, rejects: Sequence[dict[str, Any]]) -> None:
    """Write the rows without an answer as lines of JSON: `{"row", "reason"}`."""
    write_file(path, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rejects).encode())


def join_lines(parts: Sequence[Path], path: Path) -> None:
    """Join files of lines."""
    temporary = path.with_name(f".{path.name}.joining")
    with temporary.open("wb") as target:
        for one in parts:
            with one.open("rb") as source:
                shutil.copyfileobj(source, target, _COPY)
        target.flush()
        os.fsync(target.fileno())
    temporary.replace(path)


def _write_lines(path: Path, batches: Sequence[dict[str, Any]], format_: str, delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for i, columns in enumerate(batches):
            names = list(columns)
            rows = zip(*(_list(values) for values in columns.values()), strict=True)
            if format_ == "csv":
                table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
                if i == 0:
                    table.writerow(names)
                table.writerows([["" if one is None else one for one in row] for row in rows])
            else:
                for row in rows:
                    file.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str) + "\n")
        file.flush()


def _list(values: Any) -> list[Any]:
    """Return the values of a column; a float32 has the shortest text that gives it back."""
    if getattr(values, "dtype", None) is not None and str(values.dtype) == "float32":
        return [float(str(one)) for one in values]
    for way in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, way):
            found: list[Any] = getattr(values, way)()
            return found
    return list(values)


def _write_arrow(path: Path, batches: Sequence[dict[str, Any]], format_: str) -> None:
    import pyarrow
    import pyarrow.parquet

    tables = [pyarrow.table(to_arrow(columns)) for columns in batches]
    table = pyarrow.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    if format_ == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)


def _join_arrow(parts: Sequence[Path], path: Path, format_: str) -> None:
    import pyarrow
    import pyarrow.parquet

    if format_ == "parquet":
        schema = pyarrow.parquet.read_schema(parts[0])
        with pyarrow.parquet.ParquetWriter(path, schema) as target:
            for one in parts:
                table = pyarrow.parquet.read_table(one)
                target.write_table(_same(table, schema, path))
        return
    with pyarrow.ipc.open_file(str(parts[0])) as first:
        schema = first.schema
    with pyarrow.ipc.new_file(str(path), schema) as file:
        for one in parts:
            with pyarrow.ipc.open_file(str(one)) as source:
                file.write_table(_same(source.read_all(), schema, path))


def _same(table: Any, schema: Any, path: Path) -> Any:
    try:
        return table.cast(schema)
    except (ValueError, TypeError, NotImplementedError) as error:  # pyarrow raises the last of a cast it lacks
        raise InputError(
            f"`{path}` cannot be joined: a kept column has several types: {error}", hint="keep other columns"
        ) from error


def _write_polars(path: Path, batches: Sequence[dict[str, Any]], format_: str) -> None:
    import polars

    frames = [
        polars.DataFrame(
            {
                name: polars.Series(values.names, dtype=polars.String).gather(values.codes)
                if isinstance(values, Names)
                else values
                for name, values in columns.items()
            }
        )
        for columns in batches
    ]
    table = polars.concat(frames, how="vertical_relaxed")
    table.write_parquet(path) if format_ == "parquet" else table.write_ipc(path)
