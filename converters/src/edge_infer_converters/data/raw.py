"""Calibration and evaluation from raw data: images, sounds and texts through the steps of the pipeline."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.errors import BundleError, InputError, did_you_mean
from edge_infer.formats.input_files import IMAGES
from edge_infer.tasks import vector_making
from edge_infer.tasks.item import Item
from edge_infer.tasks.prepared_steps import PreparedSteps
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.sources.found import LABELS_NAME
from edge_infer_converters.data.annotations import find_annotations, read_annotations
from edge_infer_converters.data.calibration import CalibrationSet
from edge_infer_converters.data.detections import DETECTION_TASKS, LEAST_SCORE, Detections
from edge_infer_converters.data.random_inputs import RANDOM_CALLS
from edge_infer_converters.data.sentences import SENTENCES

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from edge_infer.tasks.sources.found import Found
    from edge_infer.tensors.tensor import Tensor, TensorSpec

#: So many samples are used of a folder or a table, spread over its classes.
MAX_SAMPLES = 1000
_TABLES = (".csv", ".jsonl")
_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")
_FILE_COLUMNS = ("file", "image", "audio", "path")
_LABEL_COLUMNS = ("label", "class")
_MAX_ROWS = 2**20


class Sample(NamedTuple):
    """One raw input, the class it is of, and where it stands."""

    value: Any
    label: str | int | None
    where: str


def is_raw(path: str | os.PathLike[str], found: Found) -> bool:
    """Tell whether a path holds raw data for a pipeline, and not tensors.

    Args:
        path: A file or a folder.
        found: The pipeline.
    """
    place = Path(path)
    if place.suffix.lower() in _TABLES:
        return place.is_file()
    if found.definition.task in DETECTION_TASKS and find_annotations(place) is not None:
        return True
    return place.is_dir() and any(True for _ in _files(place, _suffixes(found)))


def read_raw(
    path: str | os.PathLike[str], found: Found, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> CalibrationSet:
    """Read raw data and do the steps before the model.

    Args:
        path: A folder of images or sounds, alone or in a folder for each class; a `.csv` file with a first line of
            names, or a `.jsonl` file: `text` or a `file` beside it, and perhaps `label`. For detectors also images
            with annotations of COCO or Pascal VOC.
        found: The pipeline.
        inputs: The model's inputs.
        outputs: The model's outputs.

    Returns:
        The inputs of each call; the classes where there are labels, the objects where there are annotations.

    Raises:
        InputError: The data cannot be read, or a label is not one of the model's.
    """
    place = Path(path)
    takes = get_task(found.definition.task).takes
    annotations = find_annotations(place) if found.definition.task in DETECTION_TASKS else None
    if annotations is not None:
        return _of_annotations(annotations, found, inputs, outputs)
    if takes == "table":
        samples = list(_of_columns(place, _types(found)))
    else:
        samples = list(_of_folder(place, found) if place.is_dir() else _of_table(place))
    count = len(samples)
    if not count:
        raise InputError(f"`{place}` holds no sample", hint='{"text": "...", "label": "..."} on each line')
    samples = _spread(samples)[:MAX_SAMPLES]
    labelled = [sample for sample in samples if sample.label is not None]
    if labelled and len(labelled) < len(samples):
        unlabelled = next(sample for sample in samples if sample.label is None)
        raise InputError(f"{unlabelled.where} has no label, and others have", hint="label all of them, or none")
    steps = _Steps(found, inputs, outputs)
    if steps.expand is not None and labelled and takes != "table":
        raise InputError(
            f"`{place}` has labels, and {found.definition.task} takes several runs for one input",
            hint="leave the labels out, or --task text-classification",
        )
    digest = hashlib.sha256()
    calls, classes = [], []
    for sample in samples:
        try:
            calls += steps.calls(sample.value, {})
        except InputError as error:
            raise InputError(f"{sample.where}: {error.message}", hint=error.hint) from error
        digest.update(json.dumps([sample.where, sample.label]).encode())
        digest.update(b"".join(array.tobytes() for array in calls[-1].values()))
        if sample.label is not None:
            classes.append(_class_of(sample, found.labels))
    name = place.name if count == len(samples) else f"{place.name} ({len(samples)} of {count})"
    return CalibrationSet(tuple(calls), np.array(classes) if classes else None, name, digest.hexdigest())


def _of_annotations(
    place: Path, found: Found, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> CalibrationSet:
    annotated = read_annotations(place, found.labels, MAX_SAMPLES)
    steps = _Steps(found, inputs, outputs)
    digest = hashlib.sha256()
    own = [step.parameters["threshold"] for step in found.definition.outputs if step.name == "post.boxes"]
    calls, items = [], []
    for one in annotated:
        item = Item({"threshold": min([LEAST_SCORE, *own])})
        try:
            calls += steps.calls(str(one.image), item.arguments, item)
        except InputError as error:
            raise InputError(f"`{one.image}`: {error.message}", hint=error.hint) from error
        items.append(item)
        digest.update(b"".join(array.tobytes() for array in (*calls[-1].values(), *one.truth)))
    detections = Detections(steps.steps, found.labels, tuple(items), tuple(one.truth for one in annotated))
    return CalibrationSet(tuple(calls), None, place.name, digest.hexdigest(), detections=detections)


def made_up(found: Found, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> CalibrationSet | None:
    """Do the steps before a model of texts with `SENTENCES`: random tokens say little about such a model.

    Args:
        found: The pipeline.
        inputs: The model's inputs.
        outputs: The model's outputs.

    Returns:
        The inputs of at most `RANDOM_CALLS` calls; None where the task takes something else, or the steps refuse them.
    """
    if get_task(found.definition.task).takes != "text":
        return None
    steps = _Steps(found, inputs, outputs)
    calls: list[dict[str, np.ndarray]] = []
    try:
        for case in vector_making.cases_for(found.definition, SENTENCES):
            calls += steps.calls(case.raw["value"], case.arguments)
    except InputError:
        return None
    return CalibrationSet(tuple(calls[:RANDOM_CALLS]), None, "made-up sentences")


class _Steps:
    """The steps before a model, without the model."""

    def __init__(self, found: Found, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.steps = PreparedSteps(found.definition, _Ends(found, inputs, outputs))
        self.expand = get_task(found.definition.task).expand

    def calls(self, value: Any, arguments: Mapping[str, Any], item: Item | None = None) -> list[dict[str, np.ndarray]]:
        """Return the inputs of each run of the model that a raw input takes.

        Args:
            value: The raw input.
            arguments: What the caller of the pipeline would ask for.
            item: It is told what the steps after the model need to know.

        Raises:
            InputError: The steps refuse the input, or the model takes frames.
        """
        found = []
        for one in self.steps.runs(value, arguments):
            ready = self.steps.before(one, arguments, item)
            if ready.frames:
                raise InputError("the model takes one frame after the other", hint="give frames: an .npz file")
            found.append({name: _array(tensor) for name, tensor in self.steps.feeds([ready]).items()})
        return found


class _Ends:
    """The surroundings of the steps while the bundle is not written yet."""

    def __init__(self, found: Found, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.inputs, self.outputs = inputs, outputs
        files = found.all_files()
        entries = [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()]
        labels = LABELS_NAME if found.labels else None
        self.bundle = Bundle.of_files(Manifest("raw", "0", inputs, outputs, [], entries, labels=labels), files)


def _suffixes(found: Found) -> tuple[str, ...]:
    return {"image": tuple(IMAGES), "sound": _SOUNDS}.get(get_task(found.definition.task).takes, ())


def _files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Give the files of a folder and of the folders in it, in the order of their names."""
    for place in sorted(folder.iterdir()):
        if place.suffix.lower() in suffixes and place.is_file():
            yield place
        elif place.is_dir():
            yield from (file for file in sorted(place.iterdir()) if file.suffix.lower() in suffixes)


def _of_folder(folder: Path, found: Found) -> Iterator[Sample]:
    for file in _files(folder, _suffixes(found)):
        label = None if file.parent == folder else file.parent.name
        yield Sample(str(file), label, f"`{file.relative_to(folder).as_posix()}`")


def _types(found: Found) -> dict[str, str]:
    """Return the columns that a pipeline of a table reads, with their types."""
    steps = [step for chain in found.definition.inputs.values() for step in chain if step.name == "tabular.columns"]
    return dict(zip(steps[0].parameters["names"], steps[0].parameters["types"], strict=True)) if steps else {}


def _of_columns(path: Path, types: dict[str, str]) -> Iterator[Sample]:
    """Give the rows of a table; what a CSV file writes as text becomes a number where the column is one."""
    for number, row in _rows(path):
        where = f"line {number} of `{path.name}`"
        labels = [row[name] for name in _LABEL_COLUMNS if name not in types and row.get(name) not in (None, "")]
        value = {name: _typed(one, types.get(name, "string")) for name, one in row.items()}
        yield Sample(value, labels[0] if labels else None, where)


def _typed(value: Any, kind: str) -> Any:
    """Return a text as the number that it stands for; what stands for none stays, and the steps refuse it."""
    if not isinstance(value, str) or kind == "string":
        return value
    if not value.strip():
        return None
    if kind == "bool":
        return {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
    try:
        return int(value) if kind == "int64" else float(value)
    except ValueError:
        return value


def _of_table(path: Path) -> Iterator[Sample]:
    for number, row in _rows(path):
        where = f"line {number} of `{path.name}`"
        label = next((row[name] for name in _LABEL_COLUMNS if row.get(name) not in (None, "")), None)
        if isinstance(label, bool) or not (label is None or isinstance(label, (str, int))):
            raise InputError(f"{where} has the label {label!r}, expected a name or a number", hint='"label": "cat"')
        value = {name: one for name, one in row.items() if name not in _LABEL_COLUMNS and one is not None}
        file = next((value[name] for name in _FILE_COLUMNS if isinstance(value.get(name), str)), None)
        if file is not None:
            place = path.parent / file
            if not place.is_file():
                raise InputError(f"{where} names `{file}`, which is missing", hint=f"paths begin at `{path.parent}`")
            yield Sample(str(place), label, where)
        elif set(value) == {"text"} and isinstance(value["text"], str):
            yield Sample(value["text"], label, where)
        elif value:
            yield Sample(value, label, where)
        else:
            raise InputError(f"{where} is empty", hint='{"text": "...", "label": "..."}')


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    hint = "a line of names first: text,label" if path.suffix.lower() == ".csv" else '{"text": "...", "label": "..."}'
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix.lower() == ".csv":
                lines: Any = enumerate(csv.DictReader(file, strict=True), 2)
            else:
                lines = ((number, json.loads(line)) for number, line in enumerate(file, 1) if line.strip())
            for number, row in lines:
                if not isinstance(row, dict) or None in row or number > _MAX_ROWS:
                    raise InputError(f"line {number} of `{path.name}` cannot be read", hint=hint)
                yield number, row
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"`{path}` cannot be read: {error}", hint=hint) from error


def _spread(samples: list[Sample]) -> list[Sample]:
    """Order samples so that the first ones are of all classes alike."""
    seen: dict[str | int | None, int] = {}
    places = []
    for i, sample in enumerate(samples):
        seen[sample.label] = seen.get(sample.label, -1) + 1
        places.append((seen[sample.label], i))
    return [samples[i] for _, i in sorted(places)]


def _class_of(sample: Sample, labels: list[str]) -> int:
    label = sample.label
    if isinstance(label, str) and label in labels:
        return labels.index(label)
    number = label if isinstance(label, int) else int(label) if label is not None and label.isdecimal() else -1
    if number >= 0 and (number < len(labels) or not labels):
        return number
    raise InputError(
        f"{sample.where} is of the class {label!r}, which is not one of the model's",
        hint=did_you_mean(str(label), labels)
        or (f"choose from {', '.join(labels[:8])}" if labels else "--labels FILE"),
        got=label,
    )


def _array(tensor: Tensor) -> np.ndarray:
    try:
        return np.frombuffer(tensor.data(), dtype=str(tensor.dtype)).reshape(tensor.shape)
    except TypeError as error:
        raise BundleError(f"numpy has no type {tensor.dtype}") from error
