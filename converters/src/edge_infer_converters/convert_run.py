"""Convert a model, or say what would come of it: find out what kind it is, and hand it to what converts that."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError
from edge_infer_converters.bundle_writer import BundleWriter, checked_name, checked_version
from edge_infer_converters.report.reporter import LogReporter, Reporter, step
from edge_infer_converters.sources import hub
from edge_infer_converters.sources.decoder.find import find_folder
from edge_infer_converters.sources.encoder_decoder.find import find_pair

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer_converters.conversion import Conversion
    from edge_infer_converters.forecast import Forecast
    from edge_infer_converters.recipe import Recipe

    FilePath = str | os.PathLike[str]

# A bundle is a folder: an output of these names is meant as one file, which `convert` does not write.
_MODEL_SUFFIXES = (".onnx", ".ort", ".tflite", ".pt", ".pt2", ".h5", ".keras")

# What converts one kind of model is imported where there is one: onnx and what it brings take 40 MB and a second, and a
# decoder needs none of it.


def convert(
    model: FilePath,
    output: FilePath,
    recipe: Recipe,
    *,
    name: str | None = None,
    version: str = "1",
    calibration: FilePath | None = None,
    evaluation: FilePath | None = None,
    labels: FilePath | None = None,
    task: str | None = None,
    preprocess: FilePath | None = None,
    license: str | None = None,  # noqa: A002  the manifest's word
    samples: Sequence[FilePath] = (),
    measured: FilePath | None = None,
    force: bool = False,
    report: FilePath | None = None,
    reporter: Reporter | None = None,
) -> Conversion:
    """Run a recipe; `api.convert` documents the arguments and errors."""
    reporter = reporter or LogReporter()
    version = checked_version(version)
    _check_output(output)
    opened = _open(model, name, reporter)
    if opened.convert_text is not None:
        return opened.convert_text(
            opened.place,
            output,
            recipe,
            name=opened.name,
            version=version,
            given={
                "--calibration": calibration,
                "--eval": evaluation,
                "--labels": labels,
                "--task": task,
                "--sample": samples or None,
                "--preprocess": preprocess,
                "--measured": measured,
                "--report": report,
            },
            force=force,
            reporter=reporter,
            source=opened.source,
            license=license,
        )
    from edge_infer_converters import graph_run
    from edge_infer_converters.measure.speed import read_device_times

    return graph_run.convert(
        opened.place,
        output,
        recipe,
        name=opened.name,
        version=version,
        calibration=calibration,
        evaluation=evaluation,
        labels=labels,
        task=task,
        preprocess=preprocess,
        license=license,
        samples=samples,
        times=read_device_times(measured) if measured is not None else None,
        force=force,
        report=report,
        reporter=reporter,
        source=opened.source,
    )


def foresee(
    model: FilePath,
    output: FilePath | None,
    recipe: Recipe,
    *,
    name: str | None = None,
    calibration: FilePath | None = None,
    evaluation: FilePath | None = None,
    labels: FilePath | None = None,
    task: str | None = None,
    preprocess: FilePath | None = None,
    measured: FilePath | None = None,
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
    opened = _open(model, name, reporter)
    if opened.convert_text is not None:
        raise InputError(
            "--dry-run foresees no model that generates text",
            hint="leave it out; a weight takes 0.56 bytes in int4, 1.06 in int8, 2 in fp16",
        )
    from edge_infer_converters import graph_run
    from edge_infer_converters.measure.speed import read_device_times

    if measured is not None:
        read_device_times(measured)
    return graph_run.foresee(
        opened.place,
        recipe,
        name=opened.name,
        calibration=calibration,
        evaluation=evaluation,
        labels=labels,
        task=task,
        preprocess=preprocess,
        has_measured=measured is not None,
        reporter=reporter,
        started=started,
    )


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
