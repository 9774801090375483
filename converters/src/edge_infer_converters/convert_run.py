"""Convert a model, or forecast that: find out what kind it is, and hand it to the run for that kind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError
from edge_infer_converters.bundle_writer import BundleWriter, checked_name, checked_version
from edge_infer_converters.given import Given
from edge_infer_converters.report.reporter import LogReporter, Reporter, step
from edge_infer_converters.sources import hub
from edge_infer_converters.sources.decoder.find import find_folder
from edge_infer_converters.sources.encoder_decoder.find import find_pair

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.forecast import Forecast
    from edge_infer_converters.recipe import Recipe

    FilePath = str | os.PathLike[str]

# A bundle is a folder: an output of these names is meant as one file, which `convert` does not write.
_MODEL_SUFFIXES = (".onnx", ".ort", ".tflite", ".pt", ".pt2", ".h5", ".keras")

#: A user who gives nothing beside the model and the recipe.
NOTHING = Given()

# What converts one kind of model is imported where there is one: onnx and what it brings take 40 MB and a second, and a
# decoder needs none of it.


def convert(
    model: FilePath,
    output: FilePath,
    recipe: Recipe,
    given: Given = NOTHING,
    *,
    force: bool = False,
    report: FilePath | None = None,
    reporter: Reporter | None = None,
) -> Conversion:
    """Run a recipe; `api.convert` documents the arguments and errors."""
    reporter = reporter or LogReporter()
    given = given._replace(version=checked_version(given.version))
    _check_output(output)
    opened = _open(model, given.name, reporter)
    given = given._replace(name=opened.name)
    if opened.convert_text is not None:
        return opened.convert_text(
            opened.place,
            output,
            recipe,
            name=given.name,
            version=given.version,
            given={**given.by_flag(), "--report": report},
            force=force,
            reporter=reporter,
            source=opened.source,
            license=given.license,
        )
    from edge_infer_converters import graph_run
    from edge_infer_converters.measure.speed import read_device_times

    return graph_run.convert(
        opened.place,
        output,
        recipe,
        given,
        times=read_device_times(given.measured) if given.measured is not None else None,
        force=force,
        report=report,
        reporter=reporter,
        source=opened.source,
    )


def foresee(
    model: FilePath,
    output: FilePath | None,
    recipe: Recipe,
    given: Given = NOTHING,
    *,
    force: bool = False,
    reporter: Reporter | None = None,
) -> Forecast:
    """Say what `convert` would try, how large the files would be and how long it would take; write nothing.

    Raises:
        InputError: As `convert`, and for a model that generates text.
    """
    started = time.perf_counter()
    reporter = reporter or LogReporter()
    if output is not None:
        _check_output(output)
        BundleWriter(output, force=force)  # refuses a place that cannot be written to
    opened = _open(model, given.name, reporter)
    if opened.convert_text is not None:
        raise InputError(
            "--dry-run foresees no model that generates text",
            hint="leave it out; a weight takes 0.56 bytes in int4, 1.06 in int8, 2 in fp16",
        )
    from edge_infer_converters import graph_run
    from edge_infer_converters.measure.speed import read_device_times

    if given.measured is not None:
        read_device_times(given.measured)
    return graph_run.foresee(opened.place, recipe, given._replace(name=opened.name), reporter=reporter, started=started)


class _Opened(NamedTuple):
    """Where a model lies: what to read, its name, where it came from, and what converts it if it generates text."""

    place: FilePath
    name: str | None
    source: Mapping[str, str] | None
    convert_text: Callable[..., Conversion] | None


def _open(model: FilePath, name: str | None, reporter: Reporter) -> _Opened:
    """Fetch a model of the hub, and find out whether it generates text."""
    found = hub.bring(model)
    if found is not None:
        model = found.file or found.folder
        file = Path(found.file)
        name = name or checked_name(None, file.stem if file.suffix == ".gguf" else found.name.rpartition("/")[2])
        reporter.talk(step("Fetched", found.name, f"commit {found.commit}"))
    source = None if found is None else found.source
    pair = find_pair(model)
    if pair is not None:
        from edge_infer_converters import encoder_decoder_run

        return _Opened(pair, name, source, encoder_decoder_run.convert)
    decoder = find_folder(model)
    if decoder is not None:
        from edge_infer_converters import decoder_run

        return _Opened(decoder, name, source, decoder_run.convert)
    return _Opened(model, name, source, None)


def _check_output(output: FilePath) -> None:
    if Path(output).suffix.lower() in _MODEL_SUFFIXES:
        folder = Path(output).with_suffix(".bundle")
        raise InputError(f"`{output}` is the name of a model file, expected a bundle's folder", hint=f"-o {folder}")
