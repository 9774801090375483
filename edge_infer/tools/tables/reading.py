"""Read a table's file batch by batch, whatever its size."""

from __future__ import annotations

import csv
import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.tasks.tabular import frames
from edge_infer.tools.tables import formats
from edge_infer.tools.tables.batch import Batch, part
from edge_infer.tools.tables.formats import check_library, format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

#: What stands in a text file where a value is missing.
MISSING = ("", "NA", "NaN", "nan", "null", "NULL")
_BLOCK = 2**20
_TRUTHS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
#: The longest line of JSON, in characters: a file that is not a table may have no line ends.
_MAX_LINE = 2**24


class Reader:
    """A table's file.

    Args:
        path: The file.
        types: By name the columns that the model reads, with their types; the text of a CSV file becomes them.
        keep: Further columns that are wanted, or None for all.

    Attributes:
        format: `parquet`, `arrow`, `csv` or `jsonl`.
        library: What reads it: `pyarrow`, `polars`, or `` for Python itself.

    Raises:
        InputError: There is no such file, it is damaged, or a column is missing.
        UnsupportedError: Neither pyarrow nor polars is installed, and its format needs one.
    """

    def __init__(self, path: str | Path, types: Mapping[str, str], keep: Iterable[str] | None = ()) -> None:
        self.path = Path(path)
        self.format = format_of(path)
        self.library = check_library(path)
        if self.format == "jsonl" or (self.format == "csv" and self.library == "polars"):
            self.library = ""
        self._types = dict(types)
        self._keep = None if keep is None else tuple(keep)
        if not self.path.is_file():
            raise InputError(
                f"there is no file `{path}`", hint="edge-infer predict BUNDLE data.parquet -o answers.parquet"
            )

    @property
    def rows(self) -> int | None:
        """The number of rows where the file says it, for the progress."""
        if self.format != "parquet":
            return None
        with self._translated():
            if self.library == "pyarrow":
                import pyarrow.parquet

                return int(pyarrow.parquet.read_metadata(self.path).num_rows)
            import polars

            return int(polars.scan_parquet(self.path).select(polars.len()).collect().item())

    def batches(self, rows: int, skip: int = 0) -> Iterator[Batch]:
        """Give the rows.

        Args:
            rows: The most of a batch.
            skip: How many to leave out at the beginning, the unreadable ones included.

        Raises:
            InputError: The file is damaged, or a column is missing or there twice.
        """
        ways: dict[tuple[str, str], Callable[[int, int], Iterator[Batch]]] = {
            ("parquet", "pyarrow"): self._parquet,
            ("arrow", "pyarrow"): self._arrow,
            ("csv", "pyarrow"): self._csv,
            ("parquet", "polars"): self._polars,
            ("arrow", "polars"): self._polars,
        }
        way = ways.get((self.format, self.library), self._plain)
        with self._translated():
            yield from way(rows, skip)

    def _wanted(self, names: list[str]) -> list[str]:
        """Return the columns to read, in the file's order.

        Raises:
            InputError: One that is asked for is missing, or a name is there twice.
        """
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise InputError(f"`{self.path}` has the column `{twice}` twice", hint="rename one of them")
        for name in self._keep or ():
            if name not in names:
                raise InputError(
                    f"`{self.path}` has no column `{name}` to keep", hint=f"it has {', '.join(names[:20])}"
                )
        missing = [name for name in self._types if name not in names]
        # One column of lists may stand for all of them; a text file has none, and pyarrow alone reads them.
        may_be_lists = len(names) == 1 and self.format != "csv" and formats.library() == "pyarrow"
        if missing and not may_be_lists:
            raise InputError(
                f"`{self.path}` has no column `{missing[0]}`"
                + (f" and {len(missing) - 1} more of the model's" if len(missing) > 1 else ""),
                hint=f"it has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
                if names
                else "it is empty: begin with a line of names",
                missing=missing,
            )
        return names if self._keep is None or missing else [n for n in names if n in self._types or n in self._keep]

    # -- pyarrow --

    def _parquet(self, rows: int, skip: int) -> Iterator[Batch]:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self.path, buffer_size=_BLOCK // 4, pre_buffer=False) as file:
            names = self._wanted(file.schema_arrow.names)
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            first = start = 0
            while first < len(counts) and start + counts[first] <= skip:  # groups that are done already
                start += counts[first]
                first += 1
            groups = list(range(first, len(counts)))
            batches = file.iter_batches(rows, groups, columns=names, use_threads=False)
            yield from self._of_arrow(batches, rows, start, skip)

    def _arrow(self, rows: int, skip: int) -> Iterator[Batch]:
        import pyarrow

        with pyarrow.memory_map(str(self.path)) as source:
            try:
                file = pyarrow.ipc.open_file(source)
            except pyarrow.ArrowInvalid:
                source.seek(0)
                stream = pyarrow.ipc.open_stream(source)
                names = self._wanted(stream.schema.names)
                yield from self._of_arrow((batch.select(names) for batch in stream), rows, 0, skip)
                return
            names = self._wanted(file.schema.names)
            batches = (file.get_batch(i).select(names) for i in range(file.num_record_batches))
            yield from self._of_arrow(batches, rows, 0, skip)

    def _of_arrow(self, batches: Iterable[Any], rows: int, start: int, skip: int) -> Iterator[Batch]:
        for found in batches:
            for at in range(0, found.num_rows, rows):
                piece = found.slice(at, rows)
                numbers = range(start, start + piece.num_rows)
                start += piece.num_rows
                if start <= skip:
                    continue
                columns = dict(zip(piece.schema.names, piece.columns, strict=True))
                batch = Batch(columns, piece.num_rows, numbers, {}, frames.of_arrow)
                yield batch if numbers[0] >= skip else part(batch, skip - numbers[0], batch.rows)

    def _csv(self, rows: int, skip: int) -> Iterator[Batch]:
        """Read texts, so that a wrong value rejects its row and not its block."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        unread: dict[int, str] = {}

        def ragged(row: Any) -> str:
            unread[row.number - 2] = f"{row.actual_columns} values, expected {row.expected_columns}"
            return "skip"

        with self.path.open("rb") as file:
            header = file.readline(_BLOCK).decode("utf-8-sig", "replace")
        delimiter = "\t" if self.path.suffix.lower() == ".tsv" else ","
        names = self._wanted(next(csv.reader([header], delimiter=delimiter), []))
        reader = arrow_csv.open_csv(
            self.path,
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, invalid_row_handler=ragged, newlines_in_values=True
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()),
                include_columns=names,
                null_values=list(MISSING),
                strings_can_be_null=True,
            ),
        )
        number = 0
        for found in reader:
            # The handler has the rows of this block by now; the good ones take the numbers between them.
            numbers: list[int] = []
            while len(numbers) < found.num_rows:
                if number not in unread:
                    numbers.append(number)
                number += 1
            while number in unread:
                number += 1
            told = {row: unread.pop(row) for row in sorted(unread) if row < number}
            for at in range(0, max(found.num_rows, 1), rows):
                piece = found.slice(at, rows)
                columns = dict(zip(piece.schema.names, piece.columns, strict=True))
                end = number if at + rows >= found.num_rows else numbers[at + rows]
                here = {row: told.pop(row) for row in list(told) if row < end}
                batch = Batch(columns, piece.num_rows, numbers[at : at + rows], here, _of_text)
                yield from _after(batch, skip)
        if unread:  # a file without any good row has no block
            yield from _after(Batch({}, 0, [], unread, _of_text), skip)

    # -- polars --

    def _polars(self, rows: int, skip: int) -> Iterator[Batch]:
        import polars

        scan = polars.scan_parquet(self.path) if self.format == "parquet" else polars.scan_ipc(self.path)
        frame = scan.select(self._wanted(scan.collect_schema().names()))
        while len(found := frame.slice(skip, rows).collect()):
            columns = {name: found[name] for name in found.columns}
            yield Batch(columns, len(found), range(skip, skip + len(found)), {}, frames.of_polars)
            skip += len(found)

    # -- Python alone --

    def _plain(self, rows: int, skip: int) -> Iterator[Batch]:
        names: list[str] = []
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            if self.format == "csv":
                delimiter = "\t" if self.path.suffix.lower() == ".tsv" else ","
                lines: Iterator[Any] = csv.reader(file, delimiter=delimiter)
                names = self._wanted(header := list(next(lines, [])))
                places = [header.index(name) for name in names]
                parsed: Iterator[Any] = (_of_line(line, places, len(header)) for line in lines if line)
            else:
                parsed = (_of_json(line) for line in _lines(file) if line.strip())
            start = 0
            read = _of_text if self.format == "csv" else _unchanged
            while chunk := list(islice(parsed, rows)):
                unread = {start + i: one for i, one in enumerate(chunk) if isinstance(one, str)}
                good = [(start + i, one) for i, one in enumerate(chunk) if not isinstance(one, str)]
                start += len(chunk)
                if start <= skip:
                    continue
                if self.format == "jsonl" and good and not names:
                    names = self._wanted(list(dict.fromkeys(name for _, one in good for name in one)))
                columns = {
                    name: [one.get(name) for _, one in good] if read is _unchanged else [one[i] for _, one in good]
                    for i, name in enumerate(names)
                }
                batch = Batch(columns, len(good), [number for number, _ in good], unread, read)
                yield from _after(batch, skip)

    def _translated(self) -> Any:
        return _Translated(self.path)


class _Translated:
    """Tells what a reader raised as an error of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (InputError, GeneratorExit, KeyboardInterrupt, MemoryError)):
            return
        root = type(error).__module__.partition(".")[0]
        is_readers = isinstance(error, (ValueError, csv.Error, OSError, KeyError)) or root in ("polars", "pyarrow")
        if is_readers:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"`{self._path}` cannot be read: {said[:200]}",
                hint="is it whole, and of the format that its name ends with?",
            ) from error


def _after(batch: Batch, skip: int) -> Iterator[Batch]:
    """Give the rows of a batch from a number on."""
    if not batch.rows or batch.numbers[0] >= skip:
        left = {row: why for row, why in batch.unread.items() if row >= skip}
        if batch.rows or left:
            yield batch._replace(unread=left)
        return
    at = next((i for i, number in enumerate(batch.numbers) if number >= skip), batch.rows)
    left = {row: why for row, why in batch.unread.items() if row >= skip}
    if at < batch.rows or left:
        yield part(batch, at, batch.rows)._replace(unread=left)


def _of_line(line: list[str], places: list[int], width: int) -> list[str | None] | str:
    if len(line) != width:
        return f"{len(line)} values, expected {width}"
    return [None if line[place] in MISSING else line[place] for place in places]


def _lines(file: Any) -> Iterator[str]:
    while line := file.readline(_MAX_LINE):
        if len(line) == _MAX_LINE and not line.endswith("\n"):
            raise InputError(f"a line is longer than {_MAX_LINE} characters", hint="one row of JSON in each line")
        yield line


def _of_json(line: str) -> dict[str, Any] | str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {str(error)[:100]}"
    return found if isinstance(found, dict) else f"{type(found).__name__}, expected an object"


def _unchanged(values: Any, name: str, kind: str) -> Any:  # noqa: ARG001
    return values


def _of_text(values: Any, name: str, kind: str) -> Any:
    """Return a column of texts as numbers; a text that is none stays, and its row is rejected by the steps."""
    if kind == "string":
        return values if isinstance(values, list) else values.to_pylist()
    if not isinstance(values, list):
        import pyarrow
        import pyarrow.compute

        wide = {"int64": pyarrow.int64(), "bool": pyarrow.bool_()}.get(kind, pyarrow.float64())
        try:
            found = pyarrow.compute.cast(values, wide)
        except pyarrow.ArrowInvalid:
            values = values.to_pylist()
        else:
            return found.to_pylist() if kind == "string" else frames.of_arrow(found, name, kind)
    return [_number(one, kind) for one in values]


def _number(text: str | None, kind: str) -> Any:
    if text is None:
        return None
    if kind == "bool":
        return _TRUTHS.get(text, text)
    try:
        return int(text) if kind == "int64" else float(text)
    except ValueError:
        return text
