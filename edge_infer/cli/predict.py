"""`edge-infer predict`: answers to the rows of a table's file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from edge_infer.cli import options, output
from edge_infer.cli.counter_files import added
from edge_infer.platform.atomic_write import write_file


@click.command()
@click.argument("source")
@click.argument("table")
@click.option("--output", "-o", "target", required=True, metavar="FILE", help="The file to write.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Write a column of the table too; `all` keeps each.")
@click.option("--scores", is_flag=True, help="Write the score of each class, and not only the best.")
@click.option("--restart", is_flag=True, help="Throw an interrupted run away instead of going on from it.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="The engine's threads. Default: its own choice.")
@click.option("--monitor", metavar="FILE", help="Count for `edge-infer monitor report`; an older FILE is added to.")
@options.as_json
@options.model_choice
def predict(
    source: str,
    table: str,
    target: str,
    keep: tuple[str, ...],
    scores: bool,
    restart: bool,
    threads: int | None,
    monitor: str | None,
    as_json: bool,
    device: str,
    backend: str | None,
    variant: str | None,
) -> None:
    """Answer each row of TABLE by a bundle for tabular-classification or tabular-regression.

    Files are .parquet, .arrow (or .feather), .csv (or .tsv) and .jsonl, of any size: memory does not grow with them.
    Columns are found by their names; further ones are ignored. A row that has no answer is told, with the reason, in
    FILE.rejects.jsonl, and the exit code is 1 then. A run that was interrupted goes on where it was.

    \b
    edge-infer predict risk.bundle people.parquet -o answers.parquet --keep id
    edge-infer predict risk.bundle people.csv -o answers.csv --keep all --scores
    """  # noqa: D301  click reads the \b
    from edge_infer.tasks.pipeline import pipeline
    from edge_infer.tasks.tabular.batch import names_of
    from edge_infer.tools.tables import job
    from edge_infer.tools.tables.reading import Reader

    kept = None if "all" in keep else keep
    choice: dict[str, Any] = {"device": device, "backend": backend, "variant": variant, "threads": threads}
    with pipeline(source, **{name: value for name, value in choice.items() if value is not None}) as run:
        reader = Reader(table, names_of(run), kept)
        if not reader.library and reader.format == "csv":
            output.warn("The CSV file is read by Python alone, which is slower than most models", "pip install pyarrow")
        counters = None
        if monitor:
            counters = added(run.session.bundle, [monitor] if Path(monitor).exists() else [])
        start = time.perf_counter()
        with output.progress("Predicting", reader.rows) as advance:
            done = job.run(
                run,
                Path(table),
                Path(target),
                keep=kept,
                scores=scores,
                restart=restart,
                advance=advance,
                counters=counters,
            )
        seconds = time.perf_counter() - start
    if counters is not None and monitor:
        write_file(Path(monitor), (json.dumps(counters.to_json()) + "\n").encode())
    rejects = str(job.rejects_of(Path(target))) if done.rejected else None
    if as_json:
        output.data_json(
            {
                **done._asdict(),
                "output": target,
                "rejects": rejects,
                "size": Path(target).stat().st_size,
                "seconds": round(seconds, 3),
            }
        )
    if done.rejected:
        output.warn(f"{done.rejected:,} rows have no answer", f"see {rejects}")
    speed = (done.rows + done.rejected - done.resumed) / max(seconds, 1e-9)
    again = f", {done.resumed:,} of them earlier" if done.resumed else ""
    output.talk(
        f"Answered {done.rows:,} rows{again}, {speed:,.0f} a second, wrote {target}, "
        f"{output.size(Path(target).stat().st_size)}"
    )
    if done.rejected:
        sys.exit(1)
