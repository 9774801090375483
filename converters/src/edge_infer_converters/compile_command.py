"""The command `edge-infer compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_infer.cli import output as printer
from edge_infer.errors import InputError
from edge_infer_converters import written_files
from edge_infer_converters.compile_source import FILES, read
from edge_infer_converters.measure.budget import parse_size
from edge_infer_converters.parameters import takes
from edge_infer_converters.sources.options import SourceOptions, parse_bindings, parse_dynamic, parse_shapes
from edge_infer_converters.writers.compiled.writer import ROUNDINGS
from edge_infer_converters.writers.microcontroller.writer import WAYS

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.writer import Compiled
    from edge_infer_converters.writers.microcontroller.steps import Steps


#: The longest side of a camera's image.
_MAX_SIDE = 4096


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001
    """Read a size as the other options do."""
    try:
        return None if value is None else parse_size(value)
    except InputError as error:
        raise click.BadParameter(f"{error.message} (such as 20kB)") from error


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:  # noqa: ARG001
    """Read the width and height of an image."""
    if value is None:
        return None
    sides = [int(one) if one.isascii() and one.isdigit() else 0 for one in value[:20].lower().split("x")]
    if len(sides) != 2 or not all(1 <= side <= _MAX_SIDE for side in sides):
        raise click.BadParameter(f"`{value[:20]}` is not WIDTHxHEIGHT of 1 to {_MAX_SIDE} pixels (such as 160x120)")
    return sides[0], sides[1]


@click.command("compile")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where to write. What an earlier run wrote there is replaced and removed, other files stay.",
)
@click.option(
    "--to",
    type=click.Choice(["wasm", "page", "c", "arduino"]),
    default="wasm",
    show_default=True,
    help="`wasm` writes model.wasm, `page` also the ES module that runs it, `c` C99 for microcontrollers, "
    "`arduino` the same as a library with a sketch.",
)
@takes("shape", "dynamic", "bind")
@click.option(
    "--rounding",
    type=click.Choice(ROUNDINGS),
    help="How integers are rounded: as LiteRT with XNNPACK does, as LiteRT's reference kernels, or as TFLite Micro. By "
    "default `litert`, for C `reference`.",
)
@click.option("--arena-max", callback=_bytes, metavar="SIZE", help="The most memory for its tensors: 20000, or 20kB.")
@click.option("--prefix", metavar="NAME", help="What the names in C begin with; by default the name of the file.")
@click.option(
    "--optimize",
    "way",
    type=click.Choice(WAYS),
    help="For `wasm` and `page` `speed`, the default, or `size`: without the int8 convolution for browsers on "
    "processors with a dot product of bytes. For C `size`, the default, or `speed`, with columns of int16.",
)
@click.option(
    "--source-size",
    callback=_size,
    metavar="WIDTHxHEIGHT",
    help="C alone: write the steps of a bundle for images of this size too: resize, crop, numbers. Such as 160x120.",
)
@click.option("--variant", metavar="ID", help="The TFLite variant of a bundle; by default int8, else the first.")
@click.option(
    "--timeline",
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Draw the memory of its tensors, call by call.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="`wasm` and `page` alone: write its calls, their multiplications and the drawn memory as a page.",
)
@click.option("--force", is_flag=True, help="Replace files in FOLDER that compile did not write, or that were changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compile_(
    source: Path,
    folder: Path,
    to: str,
    shape: tuple[str, ...],
    dynamic: tuple[str, ...],
    bind: tuple[str, ...],
    rounding: str | None,
    arena_max: int | None,
    prefix: str | None,
    way: str | None,
    source_size: tuple[int, int] | None,
    variant: str | None,
    timeline: Path | None,
    report: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compile a small model to one file of tens of kilobytes that needs no engine: model.wasm, or to C.

    SOURCE is a .tflite file, an .onnx file (of floats, or quantized), or a bundle with a TFLite variant. Models over
    tables (trees, linear models, support vectors, as scikit-learn and boosters are exported) are taken from ONNX. The
    file written holds the kernels that the model calls, its weights and its interface, and imports nothing. It computes
    the same integers as LiteRT, or the labels of onnxruntime, which is checked here, and floats that differ by the
    order of additions only.

    \b
    edge-infer compile kws.tflite -o site/kws --to page
    edge-infer compile kws.tflite -o firmware/kws --to c --arena-max 20kB
    edge-infer compile kws.tflite -o kws --to arduino
    edge-infer compile vad.onnx -o vad --shape input=1x512 --bind sr=16000
    """  # noqa: D301  click reads the \b
    from edge_infer.platform.atomic_write import write_file
    from edge_infer_converters.compilation import compile_file, compile_table
    from edge_infer_converters.writers.compiled import page_files

    written_files.check_place(folder, (timeline, report))
    options = _options(shape, dynamic, bind)
    if to in ("c", "arduino"):
        if report is not None:
            raise InputError(f"--report is for wasm and page, and --to is {to}", hint="--timeline FILE.svg")
        _write_c(
            source,
            folder,
            options,
            variant,
            rounding or "reference",
            arena_max,
            prefix,
            way or WAYS[0],
            source_size,
            timeline,
            as_json,
            force=force,
            is_library=to == "arduino",
        )
        return
    for flag, value in (("--prefix", prefix), ("--source-size", source_size)):
        if value is not None:
            raise InputError(f"{flag} is for C, and --to is {to}", hint="--to c, or --to arduino")
    name, content = read(source, variant, options)
    if isinstance(content, bytes):
        compiled, checked = compile_file(content, name, rounding or ROUNDINGS[0], arena_max, for_size=way == "size")
    else:
        compiled, checked = compile_table(content, arena_max)
    if way is not None and all(kernel != "convolution_int8" for kernel, _ in compiled.program.calls):
        printer.talk("--optimize makes no difference here: the model has no convolution of int8")
    files = {"model.wasm": compiled.wasm, **({} if to == "wasm" else page_files())}
    gone = written_files.write(folder, files, force=force)
    if timeline is not None:
        from edge_infer_converters.report.timeline import draw

        write_file(timeline, draw(compiled, name).encode())
    if report is not None:
        from edge_infer_converters.report.html import page_of_compiled

        write_file(report, page_of_compiled(compiled, name).encode())
    if as_json:
        printer.data_json(_document(compiled, files, checked))
    else:
        _print(compiled)
    sizes = ", ".join(f"{path} {printer.size(len(data))}" for path, data in files.items())
    _say_removed(gone)
    printer.talk(f"Wrote {folder}: {sizes}; {checked}")


def _options(shape: tuple[str, ...], dynamic: tuple[str, ...], bind: tuple[str, ...]) -> SourceOptions:
    """Read the options of a source; what cannot be read is wrong usage."""
    try:
        return SourceOptions(parse_shapes(shape), bind=parse_bindings(bind), dynamic=parse_dynamic(dynamic))
    except InputError as error:
        raise click.UsageError(str(error)) from error


def _say_removed(paths: list[str]) -> None:
    if paths:
        printer.talk(f"Removed what an earlier run wrote: {', '.join(paths)}")


def _write_c(
    source: Path,
    folder: Path,
    options: SourceOptions,
    variant: str | None,
    rounding: str,
    arena_max: int | None,
    prefix: str | None,
    way: str,
    source_size: tuple[int, int] | None,
    timeline: Path | None,
    as_json: bool,
    *,
    force: bool,
    is_library: bool,
) -> None:
    from edge_infer.platform.atomic_write import write_file
    from edge_infer_converters.compilation import compile_to_c
    from edge_infer_converters.report import microcontroller as report
    from edge_infer_converters.report.timeline import draw
    from edge_infer_converters.writers.microcontroller.names import prefix_of

    chosen = prefix_of(source.stem, prefix)
    name, content = read(source, variant, options)
    made, checked = compile_to_c(
        content, name, chosen, rounding, way, arena_max, is_library=is_library, steps=_steps(source, source_size)
    )
    if as_json:
        printer.data_json(report.document(made, way, rounding, checked))
    else:
        printer.table(report.COLUMNS, report.table(made), right=report.COLUMNS[2:])
        for line in report.summary(made, way):
            printer.data(line)
    gone = written_files.write(folder, {path: text.encode() for path, text in made.files.items()}, force=force)
    if timeline is not None:
        write_file(timeline, draw(report.timed(made), name).encode())
    if made.steps.left_out:
        printer.talk(f"The steps behind the model are not written in C: {made.steps.left_out}")
    to_do = f"make -C {folder} test"
    if is_library:
        to_do = f"move {folder} to `libraries` of your sketchbook, and open the example `{chosen}`"
    _say_removed(gone)
    printer.talk(f"Wrote {folder}: {len(made.files)} files for `{chosen}_run()`; {checked}; next: {to_do}")


def _steps(source: Path, source_size: tuple[int, int] | None) -> Steps:
    """Return the steps of a bundle that are written in C."""
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.tasks.definition import definition_of
    from edge_infer_converters.writers.microcontroller.image import is_image
    from edge_infer_converters.writers.microcontroller.steps import Steps, steps_of

    bundle = None if source.suffix.lower() in FILES else Bundle.open(source)
    if bundle is None or bundle.manifest.task is None or bundle.manifest.pipeline is None:
        if source_size is not None:
            raise InputError(
                f"--source-size is for a bundle with steps before its model, and `{source}` has none",
                hint="edge-infer convert MODEL --task image-classification -o model.bundle",
            )
        return Steps()
    definition = definition_of(bundle.manifest)
    if source_size is None and is_image(definition):
        printer.talk("The steps before the model are not written: --source-size 160x120 writes them for such images")
    return steps_of(definition, bundle.labels(), bundle.manifest.inputs, source_size)


def _print(compiled: Compiled) -> None:
    rows = [
        (
            layer.operator,
            layer.kernel,
            f"{layer.multiply_accumulates:,}" if layer.multiply_accumulates else "",
            f"{layer.arena_bytes:,}",
        )
        for layer in compiled.layers
    ]
    printer.table(
        ["OPERATOR", "KERNEL", "MULTIPLICATIONS", "MEMORY IN USE"], rows, right=["MULTIPLICATIONS", "MEMORY IN USE"]
    )
    printer.data(
        f"{len(rows)} calls, {compiled.multiply_accumulates:,} multiplications, constants "
        f"{printer.size(len(compiled.constants))}, tensors {printer.size(compiled.arena_bytes)}"
    )


def _document(compiled: Compiled, files: dict[str, bytes], checked: str) -> dict[str, object]:
    program = compiled.program
    return {
        "files": {path: len(data) for path, data in files.items()},
        "rounding": program.rounding,
        "checked": checked,
        "arena_bytes": compiled.arena_bytes,
        "constant_bytes": len(compiled.constants),
        "multiply_accumulates": compiled.multiply_accumulates,
        "inputs": [one._asdict() for one in program.inputs],
        "outputs": [one._asdict() for one in program.outputs],
        "layers": [one._asdict() for one in compiled.layers],
    }
