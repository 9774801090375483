"""Print a conversion's progress, and the table of its variants."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from edge_infer.cli import output
from edge_infer_converters.report.reporter import decibels, score, share

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from edge_infer.parity.comparison import Parity
    from edge_infer_converters.conversion import Conversion, DecoderConversion
    from edge_infer_converters.forecast import Forecast


#: How many layers the terminal shows: more are for a file.
_MOST_LAYERS = 12


class TerminalReporter:
    """Tells the terminal, by way of stderr."""

    def talk(self, text: str) -> None:
        """Print a step."""
        output.talk(text)

    def warn(self, text: str, hint: str) -> None:
        """Print a warning."""
        output.warn(text, hint)

    def progress(self, text: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar while a long job runs."""
        return output.progress(text, total)


def print_table(conversion: Conversion) -> None:
    """Print the variants with their figures, those that were left out too."""
    metric = conversion.metric
    columns = ["variant", "size", "sqnr", "max err/rms", "top-1", *([metric] if metric else []), "latency", "verdict"]
    rows: list[list[str]] = []
    for one in conversion.variants:
        scores = [score(metric, one.quality.score)] if metric else []
        figures = one.quality.parity
        verdict = one.quality.verdict.word if one.is_kept else "left out"
        rows.append(
            [
                one.variant.id,
                output.size(one.nbytes),
                *_distance(figures),
                share(figures.top1),
                *scores,
                "" if one.latency is None else f"{one.latency.ratio:.2f}x",
                verdict,
            ]
        )
    missing = [""] * (len(columns) - 2)
    rows += [[id_, *missing, "left out"] for id_ in conversion.not_made]
    output.table(columns, rows, right=columns[1:-1])


def _distance(figures: Parity) -> tuple[str, str]:
    """Write the noise and the largest error; 8- and 16-bit integers have steps, and no noise to tell."""
    if figures.steps:
        return "" if figures.sqnr_db == inf else decibels(figures.sqnr_db), f"{figures.steps:.0f} steps"
    return decibels(figures.sqnr_db), f"{figures.max_err:.1e}" if figures.max_err else "0"


def print_forecast(forecast: Forecast) -> None:
    """Print what a conversion would try."""
    columns = ["variant", "size", "made by", "calls", "time"]
    rows = [
        [one.id, _between(one.nbytes), one.how, f"{one.calls}", f"{one.seconds:.1f} s"] for one in forecast.variants
    ]
    rows += [[id_, "", "", "", "left out"] for id_ in forecast.left_out]
    output.table(columns, rows, right=["size", "calls", "time"])
    for reason in dict.fromkeys(forecast.left_out.values()):
        ids = [id_ for id_, said in forecast.left_out.items() if said == reason]
        output.talk(f"{', '.join(ids)}: {reason}")
    multiplies = "" if forecast.multiplies is None else f", {forecast.multiplies / 1e6:.2f} M multiply-adds"
    budget = ", ".join(f"{name} {limit}" for name, limit in forecast.budget.items()) or "no limits"
    output.talk(
        f"Nothing is written. {forecast.source} of {output.size(forecast.nbytes)}: one call takes "
        f"{forecast.call_ms:.2f} ms here{multiplies}; measured on {forecast.data}, {budget}; all of it takes about "
        f"{forecast.seconds:.0f} s here"
    )


def _between(nbytes: tuple[int, int] | None) -> str:
    if nbytes is None:
        return "?"
    low, high = (output.size(one) for one in nbytes)
    return low if low == high else f"{low} to {high}"


def print_layers(conversion: Conversion) -> None:
    """Print the layers of what was searched, the worst first."""
    figures = ["alone", "of the error"]
    for id_, layers in conversion.layers.items():
        rows = []
        for one in layers[:_MOST_LAYERS]:
            alone = "-" if one.sqnr_db is None else decibels(one.sqnr_db)
            rows.append((one.name, one.encoding, alone, f"{one.share:.1%}", one.reason))
        output.data("")
        output.table([f"layer of {id_}", "stored as", *figures, "why"], rows, right=figures)
        if len(layers) > _MOST_LAYERS:
            output.talk(f"{len(layers) - _MOST_LAYERS} more layers of {id_}: --json and --report have them all")


def print_decoders(conversion: DecoderConversion) -> None:
    """Print the variants of a model that generates text: how large they are, how near their weights, what they lose."""
    columns = ["variant", "size", "bits a weight", "weights sqnr"]
    rows = [
        [
            one.variant.id,
            output.size(one.nbytes),
            f"{one.nbytes * 8 / max(conversion.parameters, 1):.2f}",
            decibels(one.sqnr_db),
        ]
        for one in conversion.decoders
    ]
    if any(one.loss is not None for one in conversion.decoders):
        columns += ["perplexity", "loss"]
        for row, one in zip(rows, conversion.decoders, strict=True):
            row += [f"{one.perplexity:.4g}", f"{one.loss:+.2%}"]
    output.table(columns, rows, right=columns[1:])
