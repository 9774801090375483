"""The command `edge-infer convert`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from edge_infer.cli import output

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("source")
@click.option("-o", "--output", "target", type=_FILE, required=True, metavar="OUT.bundle", help="The folder to write.")
@click.option("--name", help="What to call the model; the file's name unless given.")
@click.option(
    "--calibration",
    type=_FILE,
    metavar="FILE",
    help="Typical inputs, for the ranges of int8: .npz .npy .safetensors, a folder of .npy files or images, or "
    "module:function that yields samples.",
)
@click.option(
    "--calibrate",
    type=click.Choice(["minmax", "percentile", "mse", "auto"]),
    default="minmax",
    show_default=True,
    help="How static int8 finds its ranges; auto takes the one that measures best.",
)
@click.option(
    "--eval", "evaluation", type=_FILE, metavar="FILE", help="Inputs to measure on; `labels` in it are right classes."
)
@click.option("--labels", type=_FILE, metavar="FILE", help="Class names: a JSON list, or one on each line.")
@click.option(
    "--precision",
    metavar="LIST",
    help="Which precisions, with commas between: fp32, fp16, int8, int8-dynamic, int8-reduced (for x86 CPUs without "
    "VNNI), int4, mixed (searched: the smallest within the budget), or auto for fp32,fp16,int8,mixed. Default: "
    "fp32,fp16,int8; with a budget, auto.",
)
@click.option("--max-loss", metavar="SHARE", help="How much of the metric may be lost on --eval: 1% or 0.01.")
@click.option("--min-sqnr", type=float, metavar="DB", help="The least signal to noise ratio of the outputs.")
@click.option("--max-size", metavar="SIZE", help="The largest file: 5MB, 900kB.")
@click.option(
    "--max-latency-ratio",
    type=float,
    metavar="RATIO",
    help="The longest time of a call against fp32 on this CPU: 1.0 for no slower.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="accuracy, top5, cosine, or module:function of (outputs, labels). Default: accuracy with labels, else cosine.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["onnx", "tflite", "both"]),
    default="both",
    show_default=True,
    help="Which formats. TFLite is written in fp32.",
)
@click.option("--report", type=_FILE, metavar="FILE", help="Write a page about it: report.html.")
@click.option("--keep-all", is_flag=True, help="Keep variants that are not as good as they must be.")
@click.option("--no-cache", is_flag=True, help="Measure every trial again, and keep none for the next search.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def convert(
    source: str,
    target: Path,
    name: str | None,
    calibration: Path | None,
    calibrate: str,
    evaluation: Path | None,
    labels: Path | None,
    precision: str | None,
    max_loss: str | None,
    min_sqnr: float | None,
    max_size: str | None,
    max_latency_ratio: float | None,
    metric: str | None,
    format_: str,
    report: Path | None,
    keep_all: bool,
    no_cache: bool,
    force: bool,
    as_json: bool,
) -> None:
    r"""Convert a model into a bundle: smaller variants, each measured against SOURCE.

    SOURCE is an .onnx file, or package.module:function that returns a torch module with example inputs, or a fitted
    scikit-learn estimator.

    The files of a bundle run in the page, on a device and on a server; `edge-infer verify OUT.bundle` proves it.

    \b
    edge-infer convert model.onnx --eval data.npz --max-loss 1% -o model.bundle
    """
    from edge_infer.errors import InputError
    from edge_infer_converters import Recipe, pipeline
    from edge_infer_converters.budget import Budget, parse_share, parse_size
    from edge_infer_converters.recipe import PRECISIONS
    from edge_infer_converters.report import TerminalReporter, print_table

    # Libraries that log to nobody would print their advice between our lines.
    logging.getLogger().addHandler(logging.NullHandler())
    formats = ("onnx", "tflite") if format_ == "both" else (format_,)
    try:
        budget = Budget(
            None if max_loss is None else parse_share(max_loss),
            min_sqnr,
            None if max_size is None else parse_size(max_size),
            metric,
            max_latency_ratio,
        )
        budget.check(has_evaluation=evaluation is not None)
        asked = None if precision is None else tuple(word.strip() for word in precision.split(",") if word.strip())
        recipe = Recipe(
            formats,
            asked or (("auto",) if budget.is_set else PRECISIONS),
            keep_all,
            budget,
            calibrate=calibrate,
            is_cached=not no_cache,
        )
    except InputError as error:
        raise click.UsageError(str(error)) from error
    result = pipeline.convert(
        source,
        target,
        name=name,
        calibration=calibration,
        evaluation=evaluation,
        labels=labels,
        recipe=recipe,
        force=force,
        report=report,
        reporter=TerminalReporter(),
    )
    if as_json:
        output.data_json(result.to_json())
    else:
        print_table(result)
    kept = sum(one.is_kept for one in result.variants)
    output.talk(
        f"Wrote {result.path}: {kept} variants, {output.size(result.nbytes)}, revision {result.revision[:6]}, "
        f"measured on {result.data}"
    )
