"""`edge-infer tune`: measure the ways to run a model here, and remember the fastest that keeps its quality."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from edge_infer.cli import options, output
from edge_infer.runtime.tuning import tune as tune_bundle

if TYPE_CHECKING:
    from edge_infer.runtime.tuning import Tuning


@click.command()
@click.argument("source")
@options.model_choice
@click.option(
    "--threads",
    "threads",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Only with this many threads; may be repeated. Default: 1, 2, 4 ... up to what this process may use.",
)
@click.option(
    "--max-time-s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="About how many seconds to measure, the loading not counted.",
)
@click.option("--no-save", is_flag=True, help="Only show; `load` goes on choosing as before.")
@options.as_json
def tune(
    source: str,
    device: str,
    backend: str | None,
    variant: str | None,
    threads: tuple[int, ...],
    max_time_s: float,
    no_save: bool,
    as_json: bool,
) -> None:
    """Measure engine x variant x threads on a bundle's golden examples.

    SOURCE is a bundle (folder, .zip or URL), or a .onnx or .tflite file.

    The ways take turns, so that a machine that slows down slows them all. `load` then takes the fastest one that keeps
    the quality, on this processor and with these engine versions; the rule's choice stays where none is surely faster.
    Exits with 1 where nothing that was measured gives the golden outputs.

    \b
    edge-infer tune digits.bundle
    edge-infer tune digits.bundle --device cpu --threads 1 --json
    """  # noqa: D301  click reads the \b
    with output.progress("Measuring") as advance:
        tuning = tune_bundle(
            source,
            device=device,
            backend=backend,
            variant=variant,
            threads=list(threads) or None,
            max_time_s=max_time_s,
            save=not no_save,
            progress=lambda _: advance(1),
        )
    best = tuning.best
    if as_json:
        output.data_json(
            {
                "model": tuning.model,
                "rows": [row._asdict() for row in tuning.rows],
                "failed": [one._asdict() for one in tuning.failed],
                "best": {
                    "variant": best.variant.id,
                    "backend": best.backend,
                    "device": best.device,
                    "threads": best.threads,
                    "why": best.why,
                },
                "path": None if tuning.path is None else str(tuning.path),
            }
        )
    else:
        _show(tuning)
    kept = f"; remembered in {tuning.path}" if tuning.path is not None else ""
    if all(row.verdict == "fail" for row in tuning.rows):
        output.warn(
            f"Nothing that was measured of {tuning.model} gives its golden outputs{kept}", f"edge-infer verify {source}"
        )
        sys.exit(1)
    threads_text = "" if best.threads is None else f", {best.threads} thread{'s' if best.threads > 1 else ''}"
    output.talk(
        f"{tuning.model} runs best here as {best.variant.id} by {best.backend} on {best.device}{threads_text}{kept}"
    )


def _show(tuning: Tuning) -> None:
    fastest = tuning.rows[0].ms
    output.table(
        ["variant", "engine", "device", "threads", "ms", "spread", "x fastest", "sqnr dB", "golden"],
        [
            (
                row.variant,
                f"{row.backend} {row.version}",
                row.device,
                row.threads or "own",
                f"{row.ms:.3g}",
                f"{row.spread:.1%}",
                f"{row.ms / fastest:.2f}",
                "-" if row.sqnr_db is None else f">= {row.sqnr_db:.0f}" if row.sqnr_db >= 100 else f"{row.sqnr_db:.1f}",
                row.verdict,
            )
            for row in tuning.rows
        ],
        right=["threads", "ms", "spread", "x fastest", "sqnr dB"],
    )
    for one in tuning.failed:
        output.warn(f"{one.variant} by {one.backend} on {one.device} does not work here: {one.reason}")
