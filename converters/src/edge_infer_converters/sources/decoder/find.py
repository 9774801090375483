"""Tell whether a folder of the Hugging Face Hub is that of a model that generates text."""

from __future__ import annotations

import os
from pathlib import Path

from edge_infer.errors import ConversionError, InputError
from edge_infer_converters.sources.decoder.families import FAMILIES
from edge_infer_converters.sources.decoder.files import read_object
from edge_infer_converters.sources.decoder.origin import SUFFIX

# What the classes of models that generate text are called in transformers.
_CLASSES = ("ForCausalLM", "LMHeadModel", "Gemma3ForConditionalGeneration")
_HEADS = ("For", "LMHead")


def find_folder(model: str | os.PathLike[str]) -> Path | None:
    """Return the folder, or the GGUF file, of a model that generates text; None for everything else.

    A folder with ONNX files and no safetensors stays one of ONNX. One that says nothing of its classes is judged by its
    family; one whose class is another, such as a classifier on a decoder, is not taken.

    Raises:
        InputError: It is an address of the Hub.
    """
    address = os.fspath(model)
    if address.startswith("hf:"):
        name = address.removeprefix("hf:").strip("/")
        raise InputError(
            f"`{address}` is an address of the Hugging Face Hub: folders are read where they lie",
            hint=f"hf download {name} --local-dir {name.rpartition('/')[2]}, then convert that folder",
        )
    if address.endswith(SUFFIX):
        return Path(model)
    folder = Path(model)
    if not folder.is_dir() or not (folder / "config.json").is_file() or (folder / "manifest.json").is_file():
        return None
    try:
        document = read_object(folder / "config.json")
    except ConversionError:
        return None if _has_onnx(folder) else folder  # whose error is raised where it is read
    classes = document.get("architectures")
    named = [one for one in classes if isinstance(one, str)] if isinstance(classes, list) else []
    if any(one.endswith(_CLASSES) for one in named):
        is_decoder = True
    elif any(word in one for one in named for word in _HEADS):
        is_decoder = False
    else:
        is_decoder = document.get("model_type") in FAMILIES
    has_weights = any(folder.glob("*.safetensors*"))
    return folder if is_decoder and (has_weights or not _has_onnx(folder)) else None


def _has_onnx(folder: Path) -> bool:
    return any(any((folder / inside).glob("*.onnx")) for inside in ("", "onnx"))
