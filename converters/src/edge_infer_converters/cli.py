"""The command `edge-infer convert`."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.cli import output as printer
from edge_infer_converters.options import RECIPE_DEFAULTS
from edge_infer_converters.parameters import parameters

if TYPE_CHECKING:
    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.forecast import Forecast

#: What shells say of a process that SIGTERM ended.
_TERMINATED = 128 + 15


_PARAMETERS = [
    click.Argument(["source"]),
    click.Option(
        ["-o", "--output"],
        type=click.Path(path_type=Path),
        metavar="OUT.bundle",
        help="The folder to write.",
    ),
    *parameters(),
    click.Option(
        ["--dry-run"],
        is_flag=True,
        help="Write nothing: say what would be tried, how large the files would be and how long it would take.",
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."),
]


@click.command(params=_PARAMETERS)
def convert(source: str, output: Path | None, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Convert a model into a bundle: smaller variants, each measured against SOURCE.

    SOURCE is an .onnx, .ort, .pt, .pt2, .keras, .h5 or .tflite file, a file of an estimator (.skops, .json, .ubj, .txt,
    .cbm), a folder of the Hugging Face Hub with onnx/model.onnx, such a folder of a model that generates text
    (config.json, safetensors, tokenizer.json), a .gguf file of one, or package.module:function that returns a torch
    module or a JAX function with example inputs, a Keras model, or a fitted estimator of scikit-learn, XGBoost,
    LightGBM or CatBoost.

    What stands before and after the model (resizing, tokens, names of classes) is taken from the model's metadata or
    from the files beside it, and written into the bundle: `edge_infer.pipeline(BUNDLE)` then takes images or texts.

    The files of a bundle run in the page, on a device and on a server; `edge-infer verify OUT.bundle` proves it.

    \b
    edge-infer convert model.onnx --eval data.npz --max-loss 1% -o model.bundle
    """  # noqa: D301  click reads the \b
    from edge_infer.errors import InputError, UnsupportedOperator
    from edge_infer.platform import allocator
    from edge_infer.platform.posix import on_termination
    from edge_infer_converters import convert_run
    from edge_infer_converters.given import Given
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.report.terminal import TerminalReporter
    from edge_infer_converters.sources.options import parse_bindings, parse_shapes

    if output is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output': the folder to write, such as model.bundle")
    if threading.current_thread() is threading.main_thread():  # the only one that may
        on_termination(lambda: sys.exit(_TERMINATED))  # what is half-written is removed, as by Ctrl-C
    # Libraries whose log has no handler would print their advice between our lines.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        given["bind"] = parse_bindings(given["bind"])
        given["shape"] = parse_shapes(given["shape"])
        recipe = Recipe.of(**{name: given.pop(name) for name in RECIPE_DEFAULTS})
        told = Given(**{name: given.pop(name) for name in Given._fields})
    except InputError as error:
        raise click.UsageError(str(error)) from error
    path = Path(source)
    if path.is_dir() or (path.is_file() and path.stat().st_size >= allocator.LARGE_BYTES):
        allocator.return_large_blocks()
    try:
        if output is None or dry_run:
            foreseen = convert_run.foresee(
                source, output, recipe, told, force=given["force"], reporter=TerminalReporter()
            )
            _print_forecast(foreseen, as_json)
            return
        result = convert_run.convert(source, output, recipe, told, reporter=TerminalReporter(), **given)
    except InputError as error:
        if "option" in error.details:  # known once the model is found: one that generates text is measured on a text
            raise click.UsageError(str(error)) from error
        raise
    except UnsupportedOperator as error:
        from edge_infer_converters import support

        lacks = [support.Lack(**lack) for lack in error.details.get("lacks", ())]
        for line in support.table(lacks) if lacks else ():
            printer.talk(line)
        raise
    _print_result(result, as_json)


def _print_forecast(forecast: Forecast, as_json: bool) -> None:
    from edge_infer_converters.report.terminal import print_forecast

    if as_json:
        printer.data_json(forecast.to_json())
    else:
        print_forecast(forecast)


def _print_result(result: Conversion, as_json: bool) -> None:
    from edge_infer_converters.conversion import DecoderConversion
    from edge_infer_converters.report.terminal import print_decoders, print_layers, print_table

    if as_json:
        printer.data_json(result.to_json())
    elif isinstance(result, DecoderConversion):
        print_decoders(result)
    else:
        print_table(result)
        print_layers(result)
    if isinstance(result, DecoderConversion):
        then = f"chat {result.path}" if result.has_chat else f'generate {result.path} "Once upon a time"'
        printer.talk(
            f"Wrote {result.path}: {result.architecture}, {len(result.decoders)} variants, "
            f"{printer.size(result.nbytes)}, revision {result.revision[:6]}; edge-infer {then}"
        )
        return
    kept = sum(one.is_kept for one in result.variants)
    called = "" if result.path.stem == result.name else f"`{result.name}`, "  # it is served by this name
    printer.talk(
        f"Wrote {result.path}: {called}{kept} variant{'' if kept == 1 else 's'}, {printer.size(result.nbytes)}, "
        f"revision {result.revision[:6]}, measured on {result.data}"
    )
