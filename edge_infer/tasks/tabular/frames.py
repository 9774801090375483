"""Tables of other libraries: read column by column, and given back in the same library.

What exports the Arrow C stream interface (`__arrow_c_stream__`: pyarrow, polars, duckdb, nanoarrow) is read by pyarrow
or polars, whichever is installed; their buffers are shared and not copied. A table of pandas stays one of pandas.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.tasks.tabular.batch import Names, check_task, names_of, predict
from edge_infer.tasks.tabular.columns import wrong_type
from edge_infer.tasks.tabular.rows import rows_of
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.tasks.tabular.batch import Answers, Pipeline

#: The rows that run at once.
ROWS = 16_384


def predict_table(pipeline: Pipeline, table: Any, *, scores: bool = False) -> Any:
    """Answer the rows of a table; `Pipeline.predict_table` documents it."""
    check_task(pipeline)
    library, known = known_table(table)
    if library == "dict":
        return _of_dict(pipeline, known, scores=scores)
    if library == "pandas":
        return _of_pandas(pipeline, known, scores=scores)
    return (_of_arrow if library == "pyarrow" else _of_polars)(pipeline, known, scores=scores)


def known_table(table: Any) -> tuple[str, Any]:
    """Return the library of a table, or `dict`, and the table; what exports the Arrow C interface becomes pyarrow's.

    Raises:
        InputError: It is not a table.
        UnsupportedError: Neither pyarrow nor polars is installed to read it.
    """
    if isinstance(table, dict):
        return "dict", table
    library = type(table).__module__.partition(".")[0]
    if library in ("pandas", "polars"):
        return library, table
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise InputError(
            f"{type(table).__name__} is not a table",
            hint="give columns by name, or a table of pyarrow, polars, pandas or what exports the Arrow C interface",
            got=type(table).__name__,
        )
    try:
        import pyarrow
    except ImportError:
        pass
    else:
        return "pyarrow", pyarrow.table(table)
    try:
        import polars
    except ImportError as error:
        raise UnsupportedError("a table of Arrow is read by pyarrow or polars", hint="pip install pyarrow") from error
    return "polars", polars.DataFrame(table)


def columns_of(table: Any, types: Mapping[str, str]) -> tuple[dict[str, Any], int]:
    """Return some columns of a table as the steps take them, those that it has, and how many rows it has.

    Raises:
        InputError: It is not a table, or a column is of a type without numbers or texts.
        UnsupportedError: Neither pyarrow nor polars is installed to read it.
    """
    library, known = known_table(table)
    if library == "dict":
        return known, _rows(known)
    if library == "pandas":
        return {str(name): _of_series(known[name]) for name in known.columns if str(name) in types}, len(known)
    if library == "polars":
        names = [name for name in types if name in known.columns]
        return {name: of_polars(known[name], name, types[name]) for name in names}, len(known)
    whole = known.combine_chunks()
    names = [name for name in types if name in whole.schema.names]
    chunks = {name: whole.column(name).combine_chunks() for name in names}
    return {name: of_arrow(chunks[name], name, types[name]) for name in names}, whole.num_rows


def like(table: Any, columns: dict[str, Any]) -> Any:
    """Return columns of the steps as a table of another one's library."""
    library, known = known_table(table)
    if library == "pandas":
        import pandas

        return pandas.DataFrame(columns, index=known.index)
    if library == "polars":
        import polars

        return polars.DataFrame(columns)
    if library == "pyarrow":
        import pyarrow

        return pyarrow.table(to_arrow(columns))
    return columns


def _rows(table: dict[str, Any]) -> int:
    if not table or not all(hasattr(values, "__len__") for values in table.values()):
        rows_of(table, {})  # says what is wrong
        raise InputError("a table has columns, and this is one row", hint='{"age": [41, 52], "city": ["Bern", "Chur"]}')
    lengths = {len(values) for values in table.values()}
    if len(lengths) != 1:
        rows_of(table, {})
    return lengths.pop()


def _of_dict(pipeline: Pipeline, table: dict[str, Any], *, scores: bool) -> dict[str, Any]:
    answers = predict(pipeline, table, _rows(table), scores=scores)
    return {name: one.tolist() if isinstance(one, Names) else one for name, one in answers.columns.items()}


def _of_pandas(pipeline: Pipeline, table: Any, *, scores: bool) -> Any:
    import pandas

    known = names_of(pipeline)
    columns = {str(name): _of_series(table[name]) for name in table.columns if str(name) in known}
    answers = predict(pipeline, columns, len(table), scores=scores)
    found = {
        name: pandas.Categorical.from_codes(one.codes, one.names).astype(str) if isinstance(one, Names) else one
        for name, one in answers.columns.items()
    }
    return pandas.DataFrame(found, index=table.index)


def _of_series(series: Any) -> Any:
    if series.dtype.kind in "fiub":
        return series.to_numpy()
    if str(series.dtype).lower() in ("object", "str", "string", "category"):
        values = series.astype(object).where(series.notna(), None)
        return values.to_numpy(dtype=object)
    if series.dtype.kind in "mM":
        raise InputError(
            f"the column `{series.name}` is {series.dtype}, which is not a type of numbers", hint="cast it to one"
        )
    return series.to_numpy(dtype=object, na_value=None)


def _of_polars(pipeline: Pipeline, table: Any, *, scores: bool) -> Any:
    import polars

    known = names_of(pipeline)
    parts = []
    for start in range(0, len(table), ROWS):
        part = table.slice(start, ROWS)
        columns = {name: of_polars(part[name], name, kind) for name, kind in known.items() if name in part.columns}
        answers = predict(pipeline, columns, len(part), scores=scores)
        found = {
            name: polars.Series(one.names, dtype=polars.String).gather(one.codes) if isinstance(one, Names) else one
            for name, one in answers.columns.items()
        }
        parts.append(polars.DataFrame(found))
    return polars.concat(parts) if parts else polars.DataFrame()


def of_polars(series: Any, name: str, kind: str) -> Any:
    """Return a column of polars as the steps take it: an array of numbers, or a list.

    Raises:
        InputError: It is of a type without numbers or texts.
    """
    import polars

    dtype = series.dtype
    if dtype.is_numeric() and not dtype.is_decimal():
        return series.to_list() if series.null_count() and dtype.is_integer() else series.to_numpy()
    if dtype == polars.Boolean:
        return series.to_list() if series.null_count() else series.to_numpy()
    if dtype in (polars.String, polars.Categorical, polars.Enum, polars.Null):
        return series.cast(polars.String).to_list()
    raise wrong_type(name, dtype, kind)


def _of_arrow(pipeline: Pipeline, table: Any, *, scores: bool) -> Any:
    import pyarrow

    parts = []
    for batch in table.to_batches(ROWS):
        answers = predict_batch(pipeline, batch, scores=scores)
        parts.append(pyarrow.table(to_arrow(answers.columns)))
    if not parts:
        return pyarrow.table({})
    return pyarrow.concat_tables(parts).unify_dictionaries()


def predict_batch(pipeline: Pipeline, batch: Any, *, scores: bool, rejects: bool = False) -> Answers:
    """Answer the rows of a record batch of pyarrow."""
    whole = _list_of(pipeline, batch)
    known = names_of(pipeline)
    if whole is not None and rejects and (rows := _with_gaps(batch.column(whole), pipeline)) is not None:
        columns = {name: rows[:, i] for i, name in enumerate(known)}
        return predict(pipeline, columns, batch.num_rows, scores=scores, rejects=True)
    if whole is not None:
        return predict(pipeline, {}, batch.num_rows, scores=scores, matrix=_tensor(batch.column(whole), pipeline))
    columns = {
        name: of_arrow(batch.column(name), name, kind) for name, kind in known.items() if name in batch.schema.names
    }
    return predict(pipeline, columns, batch.num_rows, scores=scores, rejects=rejects)


def of_arrow(column: Any, name: str, kind: str) -> Any:
    """Return a column of pyarrow as the steps take it: an array of numbers that shares its buffer, or a list.

    Raises:
        InputError: It is of a type without numbers or texts, such as a date or a struct.
    """
    import pyarrow

    types, dtype = pyarrow.types, column.type
    if types.is_dictionary(dtype):
        return of_arrow(column.dictionary_decode(), name, kind)
    if types.is_floating(dtype) or (types.is_integer(dtype) and not column.null_count):
        return _numbers(column)
    if types.is_boolean(dtype) and not column.null_count:
        return _numbers(column.cast(pyarrow.uint8())).astype(bool)
    if (
        types.is_integer(dtype)
        or types.is_boolean(dtype)
        or types.is_null(dtype)
        or types.is_string(dtype)
        or types.is_large_string(dtype)
        or types.is_string_view(dtype)
    ):
        return column.to_pylist()
    raise wrong_type(name, dtype, kind)


def _numbers(column: Any) -> Any:
    """Return numbers as an array that shares their buffer; NaN for missing ones.

    `to_numpy` of pyarrow would import pandas, which takes 45 MB.
    """
    import numpy as np

    if column.null_count:
        column = column.fill_null(float("nan"))
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.empty(0, column.type.to_pandas_dtype())
    found = np.frombuffer(data, column.type.to_pandas_dtype())
    return found[column.offset : column.offset + len(column)]


def to_arrow(columns: dict[str, Any]) -> dict[str, Any]:
    """Return answers as arrays of pyarrow: numbers share their buffers, names become a dictionary."""
    return {name: _to_arrow(one) for name, one in columns.items()}


def _to_arrow(values: Any) -> Any:
    import pyarrow

    if isinstance(values, Names):
        codes = values.codes.astype("i4") if hasattr(values.codes, "dtype") else values.codes
        return pyarrow.DictionaryArray.from_arrays(_to_arrow(codes), _texts(values.names))
    if isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)):
        return values
    if hasattr(values, "dtype") and values.dtype.kind in "fi" and values.flags.c_contiguous:
        # `pyarrow.array` of an array would import pandas, which takes 60 MB.
        kind = pyarrow.from_numpy_dtype(values.dtype)
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])
    return pyarrow.array(list(values) if not hasattr(values, "dtype") else values)


def _texts(names: list[str]) -> Any:
    """Return texts as an array of pyarrow, without an import of pandas."""
    import pyarrow

    data = [name.encode() for name in names]
    ends = array("i", [0, *accumulate(map(len, data))])
    return pyarrow.StringArray.from_buffers(len(data), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(data)))


def _list_of(pipeline: Pipeline, table: Any) -> str | None:
    """Return the one column of a table that holds whole rows of numbers for the model; None where there is none."""
    import pyarrow

    steps = [step.name for chain in pipeline.definition.inputs.values() for step in chain]
    width = len(names_of(pipeline))
    if steps != ["tabular.columns", "tabular.tensor"] or table.num_columns != 1:
        return None
    dtype = table.schema.types[0]
    fits = pyarrow.types.is_fixed_size_list(dtype) and dtype.list_size == width
    return str(table.schema.names[0]) if fits else None


def _with_gaps(column: Any, pipeline: Pipeline) -> Any:
    """Return a column of lists as rows with NaN for what is missing; None where nothing is missing or infinite."""
    import numpy as np

    _check_inner(column, pipeline)
    width = column.type.list_size
    rows = _numbers(column.values.slice(column.offset * width, len(column) * width)).reshape(len(column), width)
    missing = np.array(column.is_null().to_pylist(), bool)
    if not missing.any() and np.isfinite(rows).all():
        return None
    return np.where(missing[:, None], np.float32("nan"), rows)


def _check_inner(column: Any, pipeline: Pipeline) -> None:
    import pyarrow

    inner = column.type.value_type
    expected = pyarrow.float32() if pipeline.session.inputs[0].dtype is DType.FLOAT32 else pyarrow.float64()
    if inner != expected:
        raise wrong_type("rows", f"lists of {inner}", f"lists of {expected}")


def _tensor(column: Any, pipeline: Pipeline) -> Any:
    """Return a column of lists as the model's input, without a copy.

    Raises:
        InputError: The numbers are not float32, or one is missing.
    """
    import numpy as np

    spec = pipeline.session.inputs[0]
    _check_inner(column, pipeline)
    if column.null_count or column.values.null_count:
        raise InputError("a row or a number of the list is missing", hint="fill the table up, or use columns by name")
    width = column.type.list_size
    numbers = _numbers(column.values.slice(column.offset * width, len(column) * width))
    nullable = next(s for s in pipeline.definition.inputs[spec.name] if s.name == "tabular.columns").parameters[
        "nullable"
    ]
    if not nullable and not np.isfinite(numbers).all():
        row = int(np.nonzero(~np.isfinite(numbers))[0][0]) // width
        raise InputError(f"row {row} has a number that is missing or infinite", hint="leave the row out")
    return numbers.reshape(len(column), width)  # no `Tensor`, which copies what cannot be written
