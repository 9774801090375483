"""Tell whether a folder of the Hugging Face Hub is that of a model with an encoder and a decoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.decoder.files import read_object

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

#: The values of `model_type` that are read; `encoder_decoder_run` has what writes the graphs of each.
FAMILIES = ("whisper", "t5", "mt5")


def find_pair(model: str | os.PathLike[str]) -> Path | None:
    """Return the folder of a model with an encoder and a decoder; None for everything else."""
    folder = Path(model)
    if not (folder / "config.json").is_file() or (folder / "manifest.json").is_file():
        return None
    try:
        document = read_object(folder / "config.json")
    except ConversionError:
        return None  # whose error is raised where it is read
    has_weights = any(folder.glob("*.safetensors*"))
    return folder if is_pair(document) and has_weights else None


def is_pair(document: Mapping[str, Any]) -> bool:
    """Tell whether a `config.json` is that of a model with an encoder and a decoder that is read."""
    kind, classes = document.get("model_type"), document.get("architectures")
    named = [one for one in classes if isinstance(one, str)] if isinstance(classes, list) else []
    fits = not named or any(one.endswith("ForConditionalGeneration") for one in named)
    return isinstance(kind, str) and kind in FAMILIES and fits
