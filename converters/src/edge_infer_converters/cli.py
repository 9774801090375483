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
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="PLACE",
    help="What the bundle is for: web, pi, cuda, mcu or any; may be repeated. Decides formats and precisions. "
    "Default: any.",
)
@click.option("--name", help="What to call the model; the file's name unless given.")
@click.option(
    "--model-version",
    "version",
    default="1",
    show_default=True,
    metavar="VERSION",
    help="What to call this state of the model. Bundles of one name and several versions are served as one model.",
)
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
    help="How static int8 of ONNX finds its ranges, those of TFLite being the true ones; auto takes the best.",
)
@click.option(
    "--eval",
    "evaluation",
    type=_FILE,
    metavar="FILE",
    help="Inputs to measure on, as --calibration; an array `labels` in it holds the right classes.",
)
@click.option("--labels", type=_FILE, metavar="FILE", help="Class names: a JSON list, or one on each line.")
@click.option(
    "--precision",
    metavar="LIST",
    help="Which precisions, with commas between: fp32, fp16, int8, int8-dynamic, int8-reduced (for x86 CPUs without "
    "VNNI), int8x16 (TFLite: values in 16 bits), int4, mixed (searched: the smallest within the budget), or auto for "
    "what suits the target and mixed. Default: what suits the target, any taking fp32,fp16,int8; with a budget, mixed "
    "too.",
)
@click.option("--max-loss", metavar="SHARE", help="How much of the metric may be lost on --eval: 1% or 0.01.")
@click.option("--min-sqnr", type=float, metavar="DB", help="The least signal-to-noise ratio of the outputs, in dB.")
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
    help="accuracy, top5, cosine, equal, or module:function of (outputs, labels). Default: accuracy with labels, else "
    "cosine, or equal where no output is of floats.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["onnx", "tflite", "both"]),
    help="Which formats. Default: those that the target reads, any reading both.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=1x3x224x224",
    help="Fix free dimensions of an input, ? leaving one free; may be repeated.",
)
@click.option(
    "--layout",
    type=click.Choice(["onnx", "nhwc"]),
    default="onnx",
    show_default=True,
    help="The axes of images at both ends: as the model has them, or with the channels last, data included.",
)
@click.option(
    "--tflite-io",
    type=click.Choice(["float", "int8"]),
    help="Inputs and outputs of tflite/int8. Default: float; int8 with --target mcu alone.",
)
@click.option(
    "--keep-names", is_flag=True, help="Keep the names of tensors inside TFLite files, which makes these larger."
)
@click.option("--opset", type=int, metavar="N", help="Write ONNX's operator set N instead of the source's own.")
@click.option("--report", type=_FILE, metavar="FILE", help="Also write an HTML page about it, such as report.html.")
@click.option("--prune-dead-channels", is_flag=True, help="Remove channels that are the same for every input.")
@click.option("--keep-all", is_flag=True, help="Keep variants that are worse than they may be.")
@click.option(
    "--cache/--no-cache", default=True, show_default=True, help="Whether a search keeps its figures for the next."
)
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def convert(
    source: str,
    target: Path,
    targets: tuple[str, ...],
    name: str | None,
    version: str,
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
    format_: str | None,
    tflite_io: str | None,
    keep_names: bool,
    shapes: tuple[str, ...],
    opset: int | None,
    layout: str,
    report: Path | None,
    prune_dead_channels: bool,
    keep_all: bool,
    cache: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Convert a model into a bundle: smaller variants, each measured against SOURCE.

    SOURCE is an .onnx, .pt2 or .tflite file, or package.module:function that returns a torch module with example
    inputs, a Keras model, or a fitted estimator of scikit-learn, XGBoost or LightGBM.

    The files of a bundle run in the page, on a device and on a server; `edge-infer verify OUT.bundle` proves it.

    \b
    edge-infer convert model.onnx --eval data.npz --max-loss 1% -o model.bundle
    """  # noqa: D301  click reads the \b
    from edge_infer.errors import InputError, UnsupportedOperator
    from edge_infer_converters import Recipe, convert_run, support
    from edge_infer_converters.report.terminal import TerminalReporter, print_table
    from edge_infer_converters.sources.options import parse_shapes

    # Libraries that log to nobody would print their advice between our lines.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        recipe = Recipe.of(
            target=targets,
            format=format_,
            precision=precision,
            metric=metric,
            max_loss=max_loss,
            min_sqnr=min_sqnr,
            max_size=max_size,
            max_latency_ratio=max_latency_ratio,
            shape=parse_shapes(shapes),
            opset=opset,
            layout=layout,
            tflite_io=tflite_io,
            keep_names=keep_names,
            calibrate=calibrate,
            prune_dead_channels=prune_dead_channels,
            keep_all=keep_all,
            cache=cache,
        )
        recipe.budget.check(has_evaluation=evaluation is not None)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    try:
        result = convert_run.convert(
            source,
            target,
            name=name,
            version=version,
            calibration=calibration,
            evaluation=evaluation,
            labels=labels,
            recipe=recipe,
            force=force,
            report=report,
            reporter=TerminalReporter(),
        )
    except UnsupportedOperator as error:
        for line in support.table([support.Lack(**lack) for lack in error.details.get("lacks", ())]):
            output.talk(line)
        raise
    if as_json:
        output.data_json(result.to_json())
    else:
        print_table(result)
    kept = sum(one.is_kept for one in result.variants)
    output.talk(
        f"Wrote {result.path}: {kept} variant{'' if kept == 1 else 's'}, {output.size(result.nbytes)}, "
        f"revision {result.revision[:6]}, measured on {result.data}"
    )
