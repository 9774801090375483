"""Bring what is converted here from the Hugging Face Hub: the files that a conversion reads, and no other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.bundle.hub import HubModel, fetched, named, with_beside
from edge_infer.bundle.manifest import MANIFEST_NAME
from edge_infer.bundle.model_files import MODEL_FILES
from edge_infer.errors import ConversionError, InputError, listed
from edge_infer.platform.hub import HubAddress, is_hub
from edge_infer_converters.sources.decoder.files import read_object
from edge_infer_converters.sources.decoder.find import is_decoder
from edge_infer_converters.sources.decoder.origin import SUFFIX
from edge_infer_converters.sources.decoder.shards import INDEX_NAME, SINGLE_NAME
from edge_infer_converters.sources.encoder_decoder.find import is_pair

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONFIG = "config.json"
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_BESIDE_WEIGHTS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"),
    *("chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json"),
)


def bring(model: str | os.PathLike[str]) -> HubModel | None:
    """Bring a model here; None where it is not an address of the Hub.

    Raises:
        InputError: It is not an address, there is no such repository, revision or file, or it holds several models.
        ConversionError: It holds nothing that is converted.
        FetchError: The Hub does not answer.
        IntegrityError: A file has another size or hash than the Hub says.
    """
    if not is_hub(model):
        return None
    place, taken = HubAddress(os.fspath(model)), ""

    def choose(names: Sequence[str], folder: str) -> list[str]:
        nonlocal taken
        if place.path:
            taken = named(place, names)
            return [taken] if taken.endswith(SUFFIX) else with_beside(taken, names)
        if MANIFEST_NAME in names:
            raise InputError(f"`{place.text}` is a bundle already", hint=f'edge_infer.load("{place.text}")')
        if _is_undecided(names, folder):
            return [_CONFIG]
        if _has_decoder(names, folder):
            return _decoder_files(names)
        taken = next((one for one in MODEL_FILES if one in names), "")
        if taken:
            return with_beside(taken, names)
        taken = _only(place, names)
        return [taken]

    folder, commit = fetched(place.text, choose)
    return HubModel(folder, str(Path(folder, taken)) if taken else "", place.name, commit)


def _is_undecided(names: Sequence[str], folder: str) -> bool:
    """Tell whether the configuration must say first what the weights are."""
    return _has_weights(names) and _CONFIG in names and not Path(folder, _CONFIG).is_file()


def _has_decoder(names: Sequence[str], folder: str) -> bool:
    if not _has_weights(names) or _CONFIG not in names:
        return False
    document = read_object(Path(folder, _CONFIG))
    return is_decoder(document) or is_pair(document)


def _has_weights(names: Sequence[str]) -> bool:
    return any("/" not in one and one.endswith(_WEIGHTS) for one in names)


def _decoder_files(names: Sequence[str]) -> list[str]:
    """Return the files of a decoder's folder: one file of weights where both forms are there."""
    weights = [one for one in names if "/" not in one and one.endswith(_WEIGHTS)]
    if SINGLE_NAME in weights:
        weights = [SINGLE_NAME]
    elif INDEX_NAME in weights:
        weights = [one for one in weights if one == INDEX_NAME or one.startswith("model-")]
    return [_CONFIG, *weights, *(one for one in _BESIDE_WEIGHTS if one in names)]


def _only(place: HubAddress, names: Sequence[str]) -> str:
    """Return the one file of a repository that is a model by itself."""
    for suffix in (SUFFIX, ".onnx", ".tflite"):
        found = [one for one in names if one.endswith(suffix)]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(
                f"`{place.text}` has {len(found)} models: {listed(found[:8])}",
                hint=f"hf:{place.name}/{next((one for one in found if 'q4_0' in one.lower()), found[0])}",
                allowed=found,
            )
    raise ConversionError(
        f"`{place.text}` has nothing that is converted: no safetensors of a model that generates text, no "
        "onnx/model.onnx, no GGUF and no TFLite file",
        hint=f"optimum-cli export onnx --model {place.name} FOLDER, then convert that folder",
    )
