"""The command `edge-infer compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_infer.cli import output as printer
from edge_infer.errors import InputError
from edge_infer_converters.measure.budget import parse_size
from edge_infer_converters.writers.compiled.writer import ROUNDINGS
from edge_infer_converters.writers.microcontroller.writer import WAYS

if TYPE_CHECKING:
    import onnx

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.errors import EdgeInferError
    from edge_infer_converters.writers.compiled.writer import Compiled
    from edge_infer_converters.writers.microcontroller.steps import Steps


#: Single models; others are bundles.
_FILES = (".tflite", ".onnx", ".ort")
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
    "-o", "--output", "folder", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where to write."
)
@click.option(
    "--to",
    type=click.Choice(["wasm", "page", "c", "arduino"]),
    default="wasm",
    show_default=True,
    help="`wasm` writes model.wasm, `page` also the ES module that runs it, `c` C99 for microcontrollers, "
    "`arduino` the same as a library with a sketch.",
)
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
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compile_(
    source: Path,
    folder: Path,
    to: str,
    rounding: str | None,
    arena_max: int | None,
    prefix: str | None,
    way: str | None,
    source_size: tuple[int, int] | None,
    variant: str | None,
    timeline: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Compile a small model to one file of tens of kilobytes that needs no engine: model.wasm, or to C.

    SOURCE is a .tflite file, an .onnx file of floats, or a bundle with a TFLite variant. Models over tables (trees,
    linear models, support vectors, as scikit-learn and boosters are exported) are taken from ONNX. The file written
    holds the kernels that the model calls, its weights and its interface, and imports nothing. It computes the same
    integers as LiteRT, or the labels of onnxruntime, which is checked here, and floats that differ by the order of
    additions only.

    \b
    edge-infer compile kws.tflite -o site/kws --to page
    edge-infer compile kws.tflite -o firmware/kws --to c --arena-max 20kB
    edge-infer compile kws.tflite -o kws --to arduino
    """  # noqa: D301  click reads the \b
    from edge_infer.platform.atomic_write import write_file
    from edge_infer_converters.compilation import compile_file, compile_table
    from edge_infer_converters.writers.compiled import page_files

    if folder.is_file():
        raise InputError(f"-o `{folder}` is a file, expected a folder to write to", hint=f"-o {folder.stem}_{to}")
    if to in ("c", "arduino"):
        if report is not None:
            raise InputError(f"--report is for wasm and page, and --to is {to}", hint="--timeline FILE.svg")
        _write_c(
            source,
            folder,
            variant,
            rounding or "reference",
            arena_max,
            prefix,
            way or WAYS[0],
            source_size,
            timeline,
            as_json,
            is_library=to == "arduino",
        )
        return
    for flag, value in (("--prefix", prefix), ("--source-size", source_size)):
        if value is not None:
            raise InputError(f"{flag} is for C, and --to is {to}", hint="--to c, or --to arduino")
    name, content = _model(source, variant)
    if isinstance(content, bytes):
        compiled, checked = compile_file(content, name, rounding or ROUNDINGS[0], arena_max, for_size=way == "size")
    else:
        compiled, checked = compile_table(content, arena_max)
    if way is not None and all(kernel != "convolution_int8" for kernel, _ in compiled.program.calls):
        printer.talk("--optimize makes no difference here: the model has no convolution of int8")
    files = {"model.wasm": compiled.wasm, **({} if to == "wasm" else page_files())}
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        write_file(folder / path, data)
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
    printer.talk(f"Wrote {folder}: {sizes}; {checked}")


def _write_c(
    source: Path,
    folder: Path,
    variant: str | None,
    rounding: str,
    arena_max: int | None,
    prefix: str | None,
    way: str,
    source_size: tuple[int, int] | None,
    timeline: Path | None,
    as_json: bool,
    *,
    is_library: bool,
) -> None:
    from edge_infer.platform.atomic_write import write_file
    from edge_infer_converters.compilation import compile_to_c
    from edge_infer_converters.report import microcontroller as report
    from edge_infer_converters.report.timeline import draw
    from edge_infer_converters.writers.microcontroller.names import prefix_of

    chosen = prefix_of(source.stem, prefix)
    name, content = _model(source, variant)
    made, checked = compile_to_c(
        content, name, chosen, rounding, way, arena_max, is_library=is_library, steps=_steps(source, source_size)
    )
    if as_json:
        printer.data_json(report.document(made, way, rounding, checked))
    else:
        printer.table(report.COLUMNS, report.table(made), right=report.COLUMNS[2:])
        for line in report.summary(made, way):
            printer.data(line)
    for path, text in made.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / path, text.encode())
    if timeline is not None:
        write_file(timeline, draw(report.timed(made), name).encode())
    if made.steps.left_out:
        printer.talk(f"The steps behind the model are not written in C: {made.steps.left_out}")
    to_do = f"make -C {folder} test"
    if is_library:
        to_do = f"move {folder} to `libraries` of your sketchbook, and open the example `{chosen}`"
    printer.talk(f"Wrote {folder}: {len(made.files)} files for `{chosen}_run()`; {checked}; next: {to_do}")


def _steps(source: Path, source_size: tuple[int, int] | None) -> Steps:
    """Return the steps of a bundle that are written in C."""
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.tasks.definition import definition_of
    from edge_infer_converters.writers.microcontroller.image import is_image
    from edge_infer_converters.writers.microcontroller.steps import Steps, steps_of

    bundle = None if source.suffix.lower() in _FILES else Bundle.open(source)
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


def _model(source: Path, variant: str | None) -> tuple[str, bytes | onnx.ModelProto]:
    """Return the name of a model, and its TFLite file, or the model itself where it is one over tables."""
    from edge_infer.bundle.bundle import Bundle

    suffix = source.suffix.lower()
    if not source.exists():
        raise InputError(f"There is no file or bundle `{source}`", hint="edge-infer compile MODEL.tflite -o FOLDER")
    if variant is not None and suffix in _FILES:
        raise InputError(f"`{source}` is one model, without variants", hint="leave --variant out")
    if suffix == ".tflite":
        return source.name, source.read_bytes()
    if suffix in _FILES:
        return source.name, _as_tflite(source)
    bundle = Bundle.open(source)
    if variant is None or variant.startswith("onnx/"):
        table = _table_of(bundle, variant)
        if table is not None:
            return table
    found = [one for one in bundle.manifest.variants if one.format == "tflite"]
    if not found:
        raise InputError(
            f"`{source}` has no TFLite variant", hint="edge-infer convert MODEL --format tflite -o model.bundle"
        )
    if variant is None:
        chosen = next((one for one in found if one.id == "tflite/int8"), found[0])
    else:
        chosen = bundle.manifest.variant(variant)
        if chosen.format != "tflite":
            raise InputError(
                f"variant `{variant}` of `{source}` is {chosen.format}, expected tflite",
                hint=f"--variant {found[0].id}",
            )
    return chosen.id, bundle.read(chosen.file)


def _table_of(bundle: Bundle, variant: str | None) -> tuple[str, onnx.ModelProto] | None:
    """Return the ONNX variant of a bundle that is a model over tables; None where there is none."""
    import onnx

    from edge_infer_converters.writers.compiled.tables.reading import is_table

    for one in bundle.manifest.variants:
        if one.format == "onnx" and one.precision == "fp32" and variant in (None, one.id):
            model = onnx.load_model_from_string(bundle.read(one.file))
            return (one.id, model) if is_table(model) else None
    return None


def _as_tflite(source: Path) -> bytes | onnx.ModelProto:
    """Write a float model as TFLite; return a model over tables unchanged."""
    from edge_infer.errors import ConversionError, EdgeInferError
    from edge_infer_converters.sources.factory import open_source
    from edge_infer_converters.sources.onnx import SourceModel
    from edge_infer_converters.writers.compiled.tables.reading import is_table

    model, _ = open_source(source).cleaned(None, prunes=False)
    if isinstance(model, SourceModel) and is_table(model.proto):
        return model.proto
    if model.precision != "fp32":
        raise ConversionError(
            f"`{source}` is of {model.precision}, expected floats",
            hint=f"edge-infer convert FLOAT.onnx --format compiled --calibration DATA -o {source.stem}.bundle",
        )
    try:
        found = model.support(("pi",), ("tflite",))
        if found.graph is not None:
            return found.graph.write().data
        raise found.tflite or ConversionError(f"`{source}` is not written as TFLite", hint="edge-infer convert")
    except EdgeInferError as error:
        raise _with_options_of_convert(source, error) from None


def _with_options_of_convert(source: Path, error: EdgeInferError) -> EdgeInferError:
    """Return why a model is not written as TFLite; options in its hint are those of `convert`, not of `compile`."""
    if error.hint.startswith("--"):
        options, bundle = error.hint.partition(",")[0], f"{source.stem}.bundle"
        error.hint = f"edge-infer convert {source} --format tflite {options} -o {bundle}, then compile {bundle}"
    return error


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
