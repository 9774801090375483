"""Tell whether a folder of the Hugging Face Hub is that of a model that generates text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.decoder.families import FAMILIES
from edge_infer_converters.sources.decoder.files import read_object
from edge_infer_converters.sources.decoder.origin import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

# What the classes of models that generate text are called in transformers.
_CLASSES = ("ForCausalLM", "LMHeadModel", "Gemma3ForConditionalGeneration")
_HEADS = ("For", "LMHead")


def find_folder(model: str | os.PathLike[str]) -> Path | None:
    """Return the folder, or the GGUF file, of a model that generates text; None for everything else.

    A folder with ONNX files and no safetensors stays one of ONNX. One that says nothing of its classes is judged by its
    family; one whose class is another, such as a classifier on a decoder, is not taken.
    """
    address = os.fspath(model)
    if address.endswith(SUFFIX):
        return Path(model)
    folder = Path(model)
    if not folder.is_dir() or not (folder / "config.json").is_file() or (folder / "manifest.json").is_file():
        return None
    try:
        document = read_object(folder / "config.json")
    except ConversionError:
        return None if _has_onnx(folder) else folder  # whose error is raised where it is read
    has_weights = any(folder.glob("*.safetensors*"))
    return folder if is_decoder(document) and (has_weights or not _has_onnx(folder)) else None


def is_decoder(document: Mapping[str, Any]) -> bool:
    """Tell whether a `config.json` is that of a model that generates text."""
    classes = document.get("architectures")
    named = [one for one in classes if isinstance(one, str)] if isinstance(classes, list) else []
    if any(one.endswith(_CLASSES) for one in named):
        return True
    kind = document.get("model_type")
    return not any(word in one for one in named for word in _HEADS) and isinstance(kind, str) and kind in FAMILIES


def _has_onnx(folder: Path) -> bool:
    return any(any((folder / inside).glob("*.onnx")) for inside in ("", "onnx"))
