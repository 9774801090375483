"""What a GGUF file says of a decoder: its family in the names of llama.cpp, its configuration, its rotations.

Sources: `gguf-py/gguf/constants.py` for names of metadata and tensors, `conversion` scripts of llama.cpp
(`convert_hf_to_gguf.py`) for what it changes in the weights, `src/llama-model.cpp` for what a missing field means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError, UnsupportedModel, did_you_mean, listed
from edge_infer_converters.sources.decoder.describe import Described, describe_family
from edge_infer_converters.sources.decoder.families import FAMILIES, Family, Names, known
from edge_infer_converters.sources.decoder.gguf_tensor import GgufTensor, gguf_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer_converters.sources.decoder.gguf_file import GgufFile

_QKV = ("attn_q", "attn_k", "attn_v")
_GATED: Names = {
    "attention_norm": ("attn_norm",),
    "qkv": _QKV,
    "attention_output": ("attn_output",),
    "mlp_norm": ("ffn_norm",),
    "up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}
_PACKED: Names = {"qkv": ("attn_qkv",), "up": ("ffn_up",)}
_QK_NORMS: Names = {"q_norm": ("attn_q_norm",), "k_norm": ("attn_k_norm",)}
_POST_NORMS: Names = {"attention_post_norm": ("post_attention_norm",), "mlp_post_norm": ("post_ffw_norm",)}


class _Architecture(NamedTuple):
    """An architecture of llama.cpp.

    Attributes:
        family: Our name of it.
        names: What it calls the parts of a layer.
        is_interleaved: Whether rows of queries and keys are stored in pairs that rotate together (`permute`).
    """

    family: str
    names: Names
    is_interleaved: bool = False


#: By `general.architecture`. Mistral and SmolLM2 are `llama` there.
ARCHITECTURES = {
    "llama": _Architecture("llama", _GATED, is_interleaved=True),
    "qwen2": _Architecture("qwen2", _GATED),
    "qwen3": _Architecture("qwen3", _GATED | _QK_NORMS),
    "gemma": _Architecture("gemma", _GATED),
    "gemma2": _Architecture("gemma2", _GATED | _POST_NORMS),
    "gemma3": _Architecture("gemma3_text", _GATED | _QK_NORMS | _POST_NORMS),
    "phi3": _Architecture("phi3", _GATED | _PACKED),
    "gpt2": _Architecture("gpt2", _GATED | _PACKED),
}
#: By our word, or that of configurations, the field behind the architecture's name.
_FIELDS = {
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "layers": "block_count",
    "hidden_size": "embedding_length",
    "mlp_size": "feed_forward_length",
    "context": "context_length",
    "head_size": "attention.key_length",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
#: What the families' defaults say and the metadata does not.
_KEPT = (
    *("activation", "sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping"),
    *("scale_attn_weights", "rope_local_base_freq"),
)
#: Layers of Gemma 2 and 3 with 27 billion weights, whose scores have another scale.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


def described_gguf(file: GgufFile) -> tuple[Described, dict[str, GgufTensor]]:
    """Return what a file says of a decoder, and its tensors as the decoder has them.

    Raises:
        ConversionError: A field or a tensor is missing or wrong.
        UnsupportedModel: The architecture, or a feature that it needs, is not supported.
    """
    name = file.metadata.get("general.architecture")
    found = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if not isinstance(name, str) or found is None:
        what = known(str(name))
        raise UnsupportedModel(
            f"`{file.path}`: the architecture {name!r} is {what or 'not read'}; {listed(list(ARCHITECTURES))} are",
            hint=did_you_mean(str(name), list(ARCHITECTURES)) or "convert the folder of the model, with safetensors",
            got=name,
            allowed=list(ARCHITECTURES),
        )
    if file.metadata.get(f"{name}.expert_count"):
        raise UnsupportedModel(f"`{file.path}`: mixtures of experts are not supported", hint="take a dense model")
    tensors = gguf_tensors(file)
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise file.wrong("it has no tensor `token_embd.weight`: it holds no model that generates text")
    document: dict[str, Any] = {**file.metadata, "vocab_size": embedding.shape[0]}
    document["tie_word_embeddings"] = "output.weight" not in tensors
    document |= _rotation(name, file.metadata, tensors)
    if name in _LAYERS_OF_27B:
        document["query_pre_attn_scalar"] = _query_scale(name, file.metadata)
    described = describe_family(document, found.family, _family(name, found), file.path.name)
    stretched = tensors.pop("rope_freqs.weight", None)
    if stretched is not None:
        described = replace(described, rotations=_stretched(file, described.rotations, stretched))
    if found.is_interleaved:
        config = described.config
        for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
            order = _halves(heads, config.head_size)
            for layer in range(config.layers):
                for key in (f"blk.{layer}.{part}.weight", f"blk.{layer}.{part}.bias"):
                    if key in tensors and tensors[key].shape[0] == len(order):
                        tensors[key] = tensors[key].ordered(order)
    return described, tensors


def _family(name: str, architecture: _Architecture) -> Family:
    """Return the family as this format has it: by other names, without what llama.cpp puts into the weights."""
    family = FAMILIES[architecture.family]
    epsilon = "layer_norm_epsilon" if family.norm == "layer" else "layer_norm_rms_epsilon"
    fields = {word: f"{name}.{field}" for word, field in _FIELDS.items()}
    return replace(
        family,
        names=architecture.names if family.gated else {**architecture.names, "up": ("ffn_up",)},
        defaults={"rope_theta": 10000.0} | {key: one for key, one in family.defaults.items() if key in _KEPT},
        fields={**fields, "norm_epsilon": f"{name}.attention.{epsilon}", "activation": "activation"},
        roots=("",),
        layer="blk.",
        embedding="token_embd",
        position_table="position_embd",
        final_norm="output_norm",
        head="output",
        norm_plus=0.0,
        transposed=False,
        refused={},
    )


def _query_scale(name: str, metadata: Mapping[str, Any]) -> Any:
    """Return the width whose root scales the scores."""
    width, heads = metadata.get(f"{name}.embedding_length"), metadata.get(f"{name}.attention.head_count")
    if metadata.get(f"{name}.block_count") == _LAYERS_OF_27B[name] and type(width) is type(heads) is int and heads:
        return width // heads
    return metadata.get(f"{name}.attention.key_length")


def _rotation(name: str, metadata: Mapping[str, Any], tensors: dict[str, GgufTensor]) -> dict[str, Any]:
    """Return the rotation of positions in the words of `config.json`."""
    document: dict[str, Any] = {}
    size, width = metadata.get(f"{name}.rope.dimension_count"), metadata.get(f"{name}.attention.key_length")
    if width is None and type(heads := metadata.get(f"{name}.attention.head_count")) is int and heads:
        hidden = metadata.get(f"{name}.embedding_length")
        width = hidden // heads if type(hidden) is int else None
    if type(size) is type(width) is int and width:
        document["partial_rotary_factor"] = size / width
    kind = metadata.get(f"{name}.rope.scaling.type", "none")
    original = metadata.get(f"{name}.rope.scaling.original_context_length")
    short, long = tensors.pop("rope_factors_short.weight", None), tensors.pop("rope_factors_long.weight", None)
    if short is not None and long is not None:
        scaling = {"rope_type": "longrope", "short_factor": short.rows(0, short.shape[0]).tolist()}
        scaling["attention_factor"] = metadata.get(f"{name}.rope.scaling.attn_factor")
    elif kind == "none":
        return document
    else:
        scaling = {"rope_type": kind, "factor": metadata.get(f"{name}.rope.scaling.factor")}
    return document | {"rope_scaling": {**scaling, "original_max_position_embeddings": original}}


def _stretched(file: GgufFile, rotations: Mapping[int, np.ndarray], factors: GgufTensor) -> dict[int, np.ndarray]:
    """Divide frequencies by the factors of a file (Llama 3)."""
    values = factors.rows(0, factors.shape[0])
    for one in rotations.values():
        if values.shape != one.shape or not (values > 0).all() or not np.isfinite(values).all():
            raise file.wrong(f"`rope_freqs.weight` is not {len(one)} numbers above 0", tensor="rope_freqs.weight")
    return {kind: (one / values).astype(np.float32) for kind, one in rotations.items()}


def _halves(heads: int, size: int) -> np.ndarray:
    """Return where in the file each row of queries or keys lies: pairs that rotate together are neighbours there."""
    rows = np.arange(heads * size).reshape(heads, size // 2, 2) if size % 2 == 0 else None
    if rows is None:
        raise ConversionError(f"The heads have {size} values, expected an even number", hint="take another file")
    return rows.swapaxes(1, 2).reshape(-1)
