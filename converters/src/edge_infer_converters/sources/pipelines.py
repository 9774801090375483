"""Find the pipeline of the model that is converted: from its files, or from the options."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BundleError, ConversionError, EdgeInferError, InputError, UnsupportedModel
from edge_infer.tasks.place import Place
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.sources import asked, image_metadata, images
from edge_infer.tasks.sources.facts import Facts, last_operators, read_facts
from edge_infer.tasks.sources.find import find
from edge_infer.tasks.sources.opened import files_beside, model_file
from edge_infer.tasks.steps import prepare_chain
from edge_infer_converters.data.labels import read_names
from edge_infer_converters.report.reporter import step
from edge_infer_converters.sources.onnx import SourceModel

if TYPE_CHECKING:
    from edge_infer.tasks.sources.found import Found
    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.sources.source import Source

    FilePath = str | os.PathLike[str]


class Asked(NamedTuple):
    """The user's options for a pipeline.

    Attributes:
        task: The task; None for what the model says.
        preprocess: A preset of `asked.PRESETS`, or the path of a JSON file of steps; None for what the model says.
        labels: The path of a file with the names of the classes; None for what the model says.
    """

    task: str | None = None
    preprocess: FilePath | None = None
    labels: FilePath | None = None


def opened(model: FilePath) -> tuple[FilePath, str | None]:
    """Return the file of a model, and the name to give it: that of the folder where a folder of the Hub is named.

    Raises:
        UnsupportedError: The folder has no ONNX file.
    """
    place = Path(model)
    if place.is_dir() and (place / "config.json").is_file() and not (place / "manifest.json").is_file():
        return model_file(str(place)), place.resolve().name
    return model, None


def find_definition(model: FilePath, source: Source, user: Asked, reporter: Reporter) -> Found | None:
    """Return what stands before and after a model; None where nobody says.

    Args:
        model: What the source was read from.
        source: The model.
        user: What the user says.
        reporter: It is told what was found, and what is missing.

    Raises:
        InputError: What the user asks for does not fit.
        ConversionError: The task that the user asks for needs more than the model says.
    """
    if user.task is not None:
        get_task(user.task)
    facts, data = _facts(model, source)
    if user.preprocess is not None:
        found: Found | None = _of_user(os.fspath(user.preprocess), facts, user.task)
    else:
        try:
            found = image_metadata.find(facts, user.task)
            found = found or find(facts, data, files_beside(os.fspath(model)) if data else {}, user.task)
        except EdgeInferError as error:
            if user.task is not None:
                raise
            reporter.warn(f"The bundle gets no pipeline: {error.message}", error.hint)
            return None
    if found is None:
        _say_what_is_missing(facts, user, reporter)
        return None
    if user.labels is not None:
        found = found._replace(labels=read_names(user.labels))
    try:
        check_fit(found, source.inputs, source.outputs)
    except EdgeInferError as error:
        if user.task is not None or user.preprocess is not None:
            raise
        reporter.warn(f"The bundle gets no pipeline: {error.message}", error.hint)
        return None
    definition = found.definition
    said = f"{definition.task}, from {definition.source}"
    reporter.talk(step("Found", "pipeline:", said + (f", {len(found.labels)} labels" if found.labels else "")))
    if not found.labels and any(one.name in _LABELLED for one in definition.outputs):
        reporter.warn("Nothing names the classes: answers say LABEL_0, LABEL_1, ...", "--labels FILE")
    return found


_LABELLED = ("post.top_k", "post.detections", "post.entities", "post.mask")


def check_fit(found: Found, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
    """Prepare every step for a model.

    Raises:
        ManifestError: A step does not fit the model.
        InputError: There is another number of labels than of classes.
        BundleError: A file of the definition is damaged.
        UnsupportedModel: A part of the tokenizer is not built here.
    """
    files = found.all_files()

    def read(path: str) -> bytes:
        if path not in files:
            raise BundleError(f"the definition reads `{path}`, which nobody gives", hint="--preprocess FILE.json")
        return files[path]

    for name, chain in found.definition.inputs.items():
        prepare_chain(chain, Place(read, found.labels, inputs, outputs, "" if name == "*" else name))
    made = prepare_chain(found.definition.outputs, Place(read, found.labels, inputs, outputs))
    # What `post.top_k` reads: the model's outputs, or those of a graph behind it.
    outputs = tuple(next((one.gives for one in reversed(made) if hasattr(one, "gives")), outputs))
    for one in found.definition.outputs:
        if one.name == "post.top_k" and found.labels:
            name = one.parameters["tensor"] or (outputs[0].name if len(outputs) == 1 else "")
            classes = next((spec.shape[-1] for spec in outputs if spec.name == name and spec.shape), None)
            if isinstance(classes, int) and classes != len(found.labels):
                raise InputError(
                    f"There are {len(found.labels)} labels, and output `{name}` has {classes} classes",
                    hint="--labels FILE, with one name for each class, in the order of the output",
                    expected=classes,
                    got=len(found.labels),
                )


def _facts(model: FilePath, source: Source) -> tuple[Facts, bytes]:
    """Return what a model's file says, and its bytes, with the inputs and outputs that the conversion gives it."""
    place = Path(model)
    own, operators = dict[str, str](), dict[str, str]()
    if isinstance(source, SourceModel):  # exported by a framework: no file says it
        own = {entry.key: entry.value for entry in source.proto.metadata_props}
        nodes = source.proto.graph.node
        makers = {name: (node.op_type, node.input[0] if node.input else "") for node in nodes for name in node.output}
        operators = last_operators([spec.name for spec in source.outputs], makers)
    data, format_ = b"", {".onnx": "onnx", ".tflite": "tflite"}.get(place.suffix, "")
    facts = Facts(source.format, source.inputs, source.outputs, {}, operators, own)
    if format_ and place.is_file():
        data = place.read_bytes()
        # A map beside the tensors, say: the conversion reads more than this does.
        with suppress(UnsupportedModel):
            facts = read_facts(data, format_, place.name)._replace(inputs=source.inputs, outputs=source.outputs)
    return facts, data


def _of_user(preprocess: str, facts: Facts, task: str | None) -> Found:
    if not preprocess.endswith(".json"):
        return asked.of_preset(preprocess, facts, task)
    try:
        data = Path(preprocess).read_bytes()
    except OSError as error:
        raise InputError(
            f"`{preprocess}` cannot be read: {error.strerror}",
            hint="--preprocess imagenet, yolo, speech-commands or a .json file",
        ) from error
    return asked.of_file(data, preprocess, facts, task)


def _say_what_is_missing(facts: Facts, user: Asked, reporter: Reporter) -> None:
    """Say in one line what to type.

    Raises:
        ConversionError: A task was asked for.
    """
    takes = get_task(user.task).takes if user.task is not None else None
    has_images = len(facts.inputs) == 1 and images.is_image(facts.inputs[0])
    hint = {
        "image": "--preprocess imagenet (or yolo, or FILE.json)",
        "text": "put config.json and tokenizer.json beside the model",
        "sound": "--preprocess FILE.json (or speech-commands)",
        "table": "--preprocess FILE.json, with the columns by name",
    }.get(takes or "image", "--preprocess FILE.json")
    if user.task is not None:
        raise ConversionError(f"Nothing says what stands before a model for {user.task}", hint=hint)
    if has_images:
        more = "" if user.labels else " --labels FILE"
        reporter.talk(step("Pipeline", "none", f"--task image-classification --preprocess imagenet{more} adds one"))
