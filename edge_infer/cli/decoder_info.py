"""`edge-infer info`: what a model that generates text is."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from edge_infer.cli import output
from edge_infer.errors import EdgeInferError
from edge_infer.generation.weight_file import WeightFile

if TYPE_CHECKING:
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.generation.config import DecoderConfig

_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def to_json(bundle: Bundle) -> dict[str, Any]:
    """Describe the decoder for machines: `generate` as the manifest has it, and `decoder` as the weight file does."""
    if bundle.manifest.generate is None:
        return {}
    found = _read(bundle)
    described = {} if found is None else {"decoder": {**found[0].to_json(), "parameters": found[1]}}
    return {"generate": bundle.manifest.generate, **described}


def show(bundle: Bundle) -> None:
    """Print the family, the sizes and what stands beside the weights."""
    generate = bundle.manifest.generate
    if generate is None:
        return
    found = _read(bundle)
    if found is not None:
        config, parameters = found
        heads = f"{config.heads} heads" + (f" on {config.kv_heads}" if config.kv_heads != config.heads else "")
        sizes = f"{config.layers} layers of {config.hidden_size}, {heads} of {config.head_size}, MLP {config.mlp_size}"
        output.data(f"decoder {config.architecture}, {_short(parameters)} parameters: {sizes}")
        window = f", {config.sliding_window} in some layers" if config.sliding_window else ""
        output.data(f"context {config.context} tokens{window}; vocabulary {config.vocab_size}")
    ends = ", ".join(str(one) for one in generate.get("eos", [])) or "none"
    output.data(f"tokens  begin {generate.get('bos', 'none')}, end {ends}")
    template = generate.get("chat_template")
    output.data(f"chat    {template}" if template else "chat    no template: it takes prompts only")
    if defaults := generate.get("defaults"):
        output.data("advised " + ", ".join(f"{name} {value}" for name, value in defaults.items()))
    if generate.get("vectors"):
        output.data(f"vectors {generate['vectors']}: edge-infer verify runs them")


def _read(bundle: Bundle) -> tuple[DecoderConfig, int] | None:
    """Return what stands in the first weight file, and its number of weights; None where no file is at hand."""
    for variant in bundle.manifest.variants:
        path = bundle.file_path(variant.file) if variant.format == "decoder" else None
        if path is None:
            continue
        try:
            with WeightFile(path) as file:
                return file.config, _parameters(file)
        except EdgeInferError as error:
            output.warn(f"{variant.id}: {error.message}", error.hint)
            return None
    return None


def _parameters(file: WeightFile) -> int:
    """Count the weights of a file; frequencies, scales and fillings are none."""
    count = 0
    for name, tensor in file.tensors.items():
        if name != "program" and not name.startswith(("pad.", "rope.")) and not name.endswith(".scales"):
            count += prod(tensor.shape) * (2 if tensor.dtype == "U8" else 1)
    return count


def _short(count: int) -> str:
    unit, letter = next(((unit, letter) for unit, letter in _UNITS if count >= unit), (1, ""))
    return f"{count / unit:.1f} {letter}" if letter else str(count)
