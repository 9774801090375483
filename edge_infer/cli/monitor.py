"""`edge-infer monitor`: whether a model's data have changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import options, output
from edge_infer.cli.counter_files import added
from edge_infer.platform.atomic_write import write_file


@click.group()
def monitor() -> None:
    """Compare what a model is given with what it was made for.

    \b
    edge-infer monitor reference risk.bundle people.parquet      # once: what is usual
    edge-infer predict risk.bundle new.parquet -o out.parquet --monitor counters.json
    edge-infer monitor report risk.bundle counters.json -o report.html
    """  # noqa: D301  click reads the \b


@monitor.command()
@click.argument("source")
@click.argument("table")
def reference(source: str, table: str) -> None:
    """Keep in the bundle SOURCE what the rows of TABLE look like: bins and counts, and no row.

    TABLE is a file as `edge-infer predict` takes it. The bundle must be a folder; its revision changes.
    """
    from edge_infer.tasks.pipeline import pipeline
    from edge_infer.tools.tables.referencing import add_reference

    with pipeline(source) as run:
        size, rows = add_reference(run, Path(source), Path(table))
    output.talk(f"Kept a reference of {rows:,} rows in {source}, {output.size(size)}")


@monitor.command()
@click.argument("source")
@click.argument("counters", nargs=-1, required=True)
@click.option("--output", "-o", "target", metavar="FILE", help="Write an HTML page, such as report.html.")
@click.option("--fail-on-drift", is_flag=True, help="Exit with 1 where the data have changed.")
@options.as_json
def report(source: str, counters: tuple[str, ...], target: str | None, fail_on_drift: bool, as_json: bool) -> None:
    """Say whether COUNTERS, files that are added up, differ from the reference of the bundle SOURCE.

    Below 500 rows nothing is decided. All features together give a false alarm in one of a thousand decisions.
    """
    from edge_infer.monitor.decision import decide
    from edge_infer.monitor.report import write_report

    bundle = Bundle.open(source)
    total = added(bundle, counters)
    verdict = decide(total)
    if target is not None:
        write_file(Path(target), write_report(bundle.manifest.name, total, verdict).encode())
    if as_json:
        output.data_json(verdict.to_json())
    else:
        rows = [
            [
                one.feature,
                "drift" if one.drifted else "missing" if one.missing_drifted else "",
                f"{one.distance:.3f}",
                f"{one.effect:.3f}",
                f"{one.missing:.1%}",
                f"{one.outside:.1%}",
            ]
            for one in verdict.findings
        ]
        columns = ["FEATURE", "VERDICT", "DISTANCE", "EFFECT", "MISSING", "OUTSIDE"]
        output.table(columns, rows, right=columns[2:])
    size = f", wrote {target}, {output.size(Path(target).stat().st_size)}" if target else ""
    more = f" ({verdict.least_rows} rows are needed)" if verdict.word == "not enough data" else ""
    output.talk(f"{verdict.word.capitalize()}: {verdict.rows:,} rows{more}{size}")
    if fail_on_drift and verdict.word == "drift":
        sys.exit(1)


@monitor.command()
@click.argument("source")
@click.argument("counters", nargs=-1, required=True)
@click.option("--output", "-o", "target", required=True, metavar="FILE", help="The file to write.")
def merge(source: str, counters: tuple[str, ...], target: str) -> None:
    """Add COUNTERS of several devices, pages or days up to one file."""
    total = added(Bundle.open(source), counters)
    write_file(Path(target), (json.dumps(total.to_json()) + "\n").encode())
    output.talk(f"Added {len(counters)} files up, {total.rows:,} rows, wrote {target}")
