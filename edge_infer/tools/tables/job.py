"""Predictions of a whole file: in parts of constant size, which a later run goes on from after a kill.

While the job runs, its finished parts and `job.json` lie in the folder `OUT.partial`; at the end they are joined to
`OUT` and to the file of rejects, and the folder is removed.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError
from edge_infer.monitor.counters import Counters, read_counters
from edge_infer.platform.atomic_write import write_file
from edge_infer.tasks.tabular.batch import Names, check_task, names_of, predict, take
from edge_infer.tasks.tabular.frames import predict_batch
from edge_infer.tensors.arrays import has_numpy
from edge_infer.tools.tables.formats import check_library
from edge_infer.tools.tables.reading import Reader
from edge_infer.tools.tables.writing import join, join_lines, write_part, write_rejects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from edge_infer.tasks.pipeline import Pipeline
    from edge_infer.tasks.tabular.batch import Answers
    from edge_infer.tools.tables.batch import Batch

#: The rows of a batch, and of a part.
BATCH, PART = 65_536, 262_144
_JOB = "job.json"


class Done(NamedTuple):
    """What a job did.

    Attributes:
        rows: The rows that have an answer.
        rejected: Those that have none.
        resumed: The rows that an earlier run had done.
    """

    rows: int
    rejected: int
    resumed: int


def rejects_of(output: Path) -> Path:
    """Return where the rows without an answer are told."""
    return output.with_name(f"{output.name}.rejects.jsonl")


def run(
    pipeline: Pipeline,
    source: Path,
    output: Path,
    *,
    keep: Sequence[str] | None = (),
    scores: bool = False,
    restart: bool = False,
    batch_rows: int = BATCH,
    part_rows: int = PART,
    advance: Callable[[int], None] = lambda _rows: None,
    counters: Counters | None = None,
) -> Done:
    """Answer each row of a file.

    Args:
        pipeline: A pipeline for a task of tables.
        source: The file.
        output: The file to write; its ending says the format.
        keep: Columns of the source to write too; None for all.
        scores: Whether the score of each class is written.
        restart: Whether to throw an interrupted job away.
        batch_rows: The rows that run at once.
        part_rows: About how many rows a part has: what a kill costs at most.
        advance: Called with the number of rows after each batch.
        counters: What is counted of all rows is added to them; an interrupted run's are kept in its folder.

    Raises:
        InputError: The file cannot be read, a column is missing or of another type, or an interrupted job was another.
        UnsupportedError: The pipeline is not for tables, or nothing here reads the format.
    """
    check_task(pipeline)
    check_library(output)
    reader = Reader(source, names_of(pipeline), keep)
    job = _Job(output, {**_facts(pipeline, source, keep, scores=scores), "counts": bool(counters)}, restart=restart)
    counted = None if counters is None else Counters(counters.reference)
    if counted is not None:
        pipeline.session.observe(counted.observe)
    resumed = job.read_rows
    advance(resumed)
    waiting: list[dict[str, Any]] = []
    rejects: list[dict[str, Any]] = []
    count = rows = 0
    for batch in reader.batches(min(batch_rows, part_rows), job.read_rows):
        columns, told = _answers(pipeline, batch, keep, scores=scores)
        waiting += [columns] if columns else []
        rejects += told
        read = batch.rows + len(batch.unread)
        count, rows = count + read, rows + (len(columns["row"]) if columns else 0)
        advance(read)
        if count >= part_rows:
            job.add(waiting, rejects, count, rows, counted)
            waiting, rejects, count, rows = [], [], 0, 0
    if count:
        job.add(waiting, rejects, count, rows, counted)
    return job.finish(resumed, counters)


def predicted(pipeline: Pipeline, batch: Batch, *, scores: bool = False, rejects: bool = False) -> Answers:
    """Answer the rows of a batch, by the columns of its names or by one column of lists; see `predict`."""
    types = names_of(pipeline)
    if all(name in batch.columns for name in types):
        columns = {name: batch.read(batch.columns[name], name, kind) for name, kind in types.items()}
        return predict(pipeline, columns, batch.rows, scores=scores, rejects=rejects)
    import pyarrow

    rows = pyarrow.RecordBatch.from_pydict(batch.columns)
    return predict_batch(pipeline, rows, scores=scores, rejects=rejects)


def _answers(
    pipeline: Pipeline, batch: Batch, keep: Sequence[str] | None, *, scores: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the columns to write of a batch, and the rows without an answer."""
    told: list[dict[str, Any]] = [{"row": row, "reason": reason} for row, reason in sorted(batch.unread.items())]
    if not batch.rows:
        return {}, told
    found = predicted(pipeline, batch, scores=scores, rejects=True)
    told += [{"row": batch.numbers[row], "reason": reason} for row, reason in sorted(found.rejected.items())]
    told.sort(key=lambda one: one["row"])
    kept = [name for name in batch.columns if keep is None or name in keep]
    written: dict[str, Any] = {"row": _numbers(batch, found.rows)}
    for name in kept:
        written[name] = _taken(batch.columns[name], found.rows, whole=not found.rejected)
    for name, values in found.columns.items():
        written[name if name not in written else f"{name}_"] = values
    return (written if len(found.rows) else {}), told


def _numbers(batch: Batch, rows: Sequence[int]) -> Any:
    if len(rows) < batch.rows or not has_numpy():
        return [batch.numbers[row] for row in rows]
    import numpy as np

    return np.asarray(batch.numbers)


def _taken(values: Any, rows: Sequence[int], *, whole: bool) -> Any:
    if whole:
        return values
    if hasattr(values, "take") and not hasattr(values, "dtype"):
        return values.take(list(rows))
    return values.gather(list(rows)) if hasattr(values, "gather") else take(values, rows)


def _facts(pipeline: Pipeline, source: Path, keep: Sequence[str] | None, *, scores: bool) -> dict[str, Any]:
    """Return what a run must have in common with an interrupted one to go on from it."""
    stat = source.stat()
    return {
        "version": 1,
        "revision": pipeline.session.bundle.revision,
        "variant": pipeline.session.report().variant,
        "source": str(source.resolve()),
        "size": stat.st_size,
        "modified_ns": stat.st_mtime_ns,
        "keep": None if keep is None else sorted(keep),
        "scores": scores,
    }


class _Job:
    """The folder of a job that runs."""

    def __init__(self, output: Path, facts: dict[str, Any], *, restart: bool) -> None:
        self.output = output
        self._facts = facts
        self._folder = output.with_name(f"{output.name}.partial")
        self._parts: list[dict[str, int]] = []
        if restart and (self._folder / _JOB).is_file():
            shutil.rmtree(self._folder)
        if self._folder.exists() and not (self._folder.is_dir() and not any(self._folder.iterdir())):
            self._parts = self._read()
        else:
            self._folder.mkdir(exist_ok=True)
            self._write()

    @property
    def read_rows(self) -> int:
        """How many rows of the source the finished parts have read."""
        return sum(part["read"] for part in self._parts)

    def add(
        self,
        batches: list[dict[str, Any]],
        rejects: list[dict[str, Any]],
        read: int,
        rows: int,
        counted: Counters | None,
    ) -> None:
        """Keep a part: its files first, then the line of the job that counts it."""
        place = self._part(len(self._parts))
        if batches:
            write_part(place, batches)
        write_rejects(rejects_of(place), rejects)
        if counted is not None:
            write_file(place.with_suffix(".counts"), json.dumps(counted.to_json()).encode())
            counted.clear()
        self._parts.append({"read": read, "rows": rows, "rejected": len(rejects)})
        self._write()

    def finish(self, resumed: int, counters: Counters | None) -> Done:
        """Join the parts, add up what they counted, and remove the folder."""
        places = [self._part(i) for i in range(len(self._parts))]
        rejected = sum(part["rejected"] for part in self._parts)
        told = rejects_of(self.output)
        if rejected:
            join_lines([rejects_of(place) for place in places], told)
        else:
            told.unlink(missing_ok=True)
        written = [place for place, part in zip(places, self._parts, strict=True) if part["rows"]]
        if not written:
            place = self._part(0)
            write_part(place, [{"row": [], "label": Names([], []), "score": []}])
            written = [place]
        join(written, self.output)
        if counters is not None:
            for place in places:
                counters.merge(read_counters(place.with_suffix(".counts").read_bytes(), counters.reference))
        shutil.rmtree(self._folder)
        return Done(sum(part["rows"] for part in self._parts), rejected, resumed)

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:06d}{self.output.suffix.lower()}"

    def _write(self) -> None:
        document = {**self._facts, "parts": self._parts}
        write_file(self._folder / _JOB, (json.dumps(document) + "\n").encode())

    def _read(self) -> list[dict[str, int]]:
        if not (self._folder / _JOB).is_file():
            raise InputError(
                f"`{self._folder}` is there and is not an interrupted job: it has no {_JOB}",
                hint="move it away, or give another -o",
            )
        try:
            document = json.loads((self._folder / _JOB).read_text("utf-8"))
            parts = document.pop("parts")
            good = all(isinstance(part[key], int) for part in parts for key in ("read", "rows", "rejected"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"`{self._folder}` is not an interrupted job: {error}", hint="--restart") from error
        other = next((key for key in self._facts if document.get(key) != self._facts[key]), None)
        if other is not None or not good:
            raise InputError(
                f"`{self._folder}` is an interrupted job of another `{other}`: it cannot go on",
                hint="--restart throws it away",
                field=other,
            )
        return list(parts)
