"""Open what has no manifest: a bare model file, or a folder of the Hugging Face Hub."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest
from edge_infer.bundle.model_files import MODEL_FILES
from edge_infer.errors import BundleError, UnsupportedError
from edge_infer.platform import fetch
from edge_infer.platform.hashing import sha256
from edge_infer.platform.host import in_browser
from edge_infer.tasks.sources.found import LABELS_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.tasks.sources.found import Found

#: Model files whose metadata, or the files beside them, may say what they are for.
_DESCRIBED = (".onnx", ".ort", ".tflite")
#: By what the name of a model file of the Hub ends in, see `MODEL_FILES`.
_PRECISIONS = {"quantized": "int8", "int8": "int8", "uint8": "int8", "fp16": "fp16"} | dict.fromkeys(
    ("q4", "q4f16", "bnb4"), "int4"
)
#: The largest file that is read beside a model: a tokenizer.
_MAX_BYTES = 128 * 2**20


def described(source: str | os.PathLike[str] | Bundle, task: str | None = None) -> str | os.PathLike[str] | Bundle:
    """Return a bundle with the definition that others wrote into a model or beside it.

    Args:
        source: What `load` takes, or a folder with `config.json` and `onnx/model.onnx`, here or on the Hub.
        task: The task that is wanted; None for what is said.

    Returns:
        The bundle; the source itself where it has a manifest, or nobody says anything.

    Raises:
        BundleError: A file is damaged or missing.
        InputError: The model is for another task.
        UnsupportedError: What is said asks for what no step does.
    """
    if isinstance(source, Bundle):
        return _with_definition(source, "", task) or source
    path = os.fspath(source)
    if path.startswith("hf:"):
        if in_browser():
            return source  # which the bundle refuses
        from edge_infer.bundle.hub import bring

        model = bring(path)
        if not model.file:
            return model.folder
        name = model.name.rpartition("/")[2]
        return _with_definition(Bundle.open(model.file), model.file, task, name) or model.file
    if fetch.is_url(path):
        name = path.partition("?")[0].rpartition("/")[2]
        is_file = os.path.splitext(name)[1] in _DESCRIBED
        return (_with_definition(Bundle.open(path), "", task) or source) if is_file else source
    if os.path.isdir(path) and not os.path.isfile(os.path.join(path, MANIFEST_NAME)):
        if not os.path.isfile(os.path.join(path, "config.json")):
            return source
        file, name = model_file(path), os.path.basename(os.path.abspath(path))
    elif os.path.isfile(path) and os.path.splitext(path)[1] in _DESCRIBED:
        file, name = path, ""
    else:
        return source
    return _with_definition(Bundle.open(file), file, task, name) or (file if name else source)


def opened(source: str | os.PathLike[str] | Bundle) -> Bundle:
    """Open a bundle, or a model with the definition that `described` finds.

    Raises:
        EdgeInferError: What `described` and `Bundle.open` raise.
    """
    found = described(source)
    return found if isinstance(found, Bundle) else Bundle.open(found)


def is_hub_folder(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder has no manifest, and `config.json` beside an ONNX model, as on the Hub."""
    folder = os.fspath(path)
    if os.path.isfile(os.path.join(folder, MANIFEST_NAME)):
        return False
    return os.path.isfile(os.path.join(folder, "config.json")) and _model_file(folder) is not None


def model_file(folder: str) -> str:
    """Return the path of the model in a folder of the Hub.

    Raises:
        UnsupportedError: It has no ONNX file.
    """
    path = _model_file(folder)
    if path is not None:
        return path
    raise UnsupportedError(
        f"`{folder}` has no onnx/model.onnx", hint=f"optimum-cli export onnx --model {folder} {folder}"
    )


def files_beside(file: str) -> dict[str, bytes]:
    """Return the configuration files of the folder that a model lies in, or of the folder above.

    Raises:
        BundleError: A file is too large, or cannot be read.
    """
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isfile(os.path.join(folder, "config.json")):
        folder = os.path.dirname(folder)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        return {}
    from edge_infer.tasks.sources.find import files_of

    return files_of(lambda name: _read(os.path.join(folder, *name.split("/"))))


def manifest_with(manifest: Manifest, found: Found, name: str = "") -> Manifest:
    """Return a manifest with a definition, its labels and its files."""
    entries = [FileEntry(path, len(data), sha256(data)) for path, data in found.all_files().items()]
    return Manifest(
        name or manifest.name,
        manifest.version,
        manifest.inputs,
        manifest.outputs,
        manifest.variants,
        [*manifest.files.values(), *entries],
        labels=LABELS_NAME if found.labels else None,
        task=found.definition.task,
        pipeline=found.definition.to_json(),
    )


def written_manifest(bundle: Bundle) -> bytes:
    """Write the `manifest.json` of a folder of the Hub, so that others can load it as a bundle.

    The precision is what the model file's name says, such as `model_quantized.onnx`.
    """
    document = bundle.manifest.to_json()
    (variant,) = document["variants"]
    _, _, said = os.path.splitext(variant["file"])[0].partition("_")
    variant["precision"] = _PRECISIONS.get(said, "fp32")
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _model_file(folder: str) -> str | None:
    paths = (os.path.join(folder, *name.split("/")) for name in MODEL_FILES)
    return next((path for path in paths if os.path.isfile(path)), None)


def _with_definition(bundle: Bundle, file: str, task: str | None, name: str = "") -> Bundle | None:
    if not bundle.is_bare or bundle.manifest.task is not None:
        return None
    # Imported where there is something to find, and not on the way of a bundle.
    from edge_infer.tasks.sources.facts import read_facts
    from edge_infer.tasks.sources.find import find

    (variant,) = bundle.manifest.variants
    if variant.file.endswith(".ort"):
        return None
    data = bundle.read(variant.file)
    beside: Mapping[str, bytes] = files_beside(file) if file else {}
    found = find(read_facts(data, variant.format, bundle.manifest.name), data, beside, task)
    if found is None:
        return None
    return bundle.described(manifest_with(bundle.manifest, found, name), found.all_files())


def _read(path: str) -> bytes | None:
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise BundleError(f"`{path}` cannot be read: {error.strerror or error}", hint=f"ls -l {path}") from error
    if len(data) > _MAX_BYTES:
        raise BundleError(f"`{path}` has more than {_MAX_BYTES} bytes", hint="is it a file of the Hub?")
    return data
