"""The command `edge-infer convert`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from edge_infer.cli import output

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("source", type=_FILE)
@click.option("-o", "--output", "target", type=_FILE, required=True, metavar="OUT.bundle", help="The folder to write.")
@click.option("--name", help="What to call the model; the file's name unless given.")
@click.option(
    "--calibration", type=_FILE, metavar="FILE", help="Typical inputs, for the ranges of int8: .npz .npy .safetensors."
)
@click.option(
    "--eval", "evaluation", type=_FILE, metavar="FILE", help="Inputs to measure on; `labels` in it are right classes."
)
@click.option("--labels", type=_FILE, metavar="FILE", help="Class names: a JSON list, or one on each line.")
@click.option("--precision", default="fp32,fp16,int8", show_default=True, help="Which precisions, with commas between.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["onnx", "tflite", "both"]),
    default="both",
    show_default=True,
    help="Which formats. TFLite is written in fp32.",
)
@click.option("--keep-all", is_flag=True, help="Keep variants that are not as good as they must be.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def convert(
    source: Path,
    target: Path,
    name: str | None,
    calibration: Path | None,
    evaluation: Path | None,
    labels: Path | None,
    precision: str,
    format_: str,
    keep_all: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Convert an ONNX model into a bundle: smaller variants, each measured against SOURCE.

    The files of a bundle run in the page, on a device and on a server; `edge-infer verify OUT.bundle` proves it.
    """
    from edge_infer.errors import InputError
    from edge_infer_converters import Recipe, pipeline
    from edge_infer_converters.report import TerminalReporter, print_table

    # Libraries that log to nobody would print their advice between our lines.
    logging.getLogger().addHandler(logging.NullHandler())
    formats = ("onnx", "tflite") if format_ == "both" else (format_,)
    try:
        recipe = Recipe(formats, tuple(word.strip() for word in precision.split(",") if word.strip()), keep_all)
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
