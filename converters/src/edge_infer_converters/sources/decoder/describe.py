"""From a `config.json` to what the decoder is: its configuration, its kinds of layers and their rotations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer.generation.config import DecoderConfig
from edge_infer.kernels.decoder_words import FLOATS
from edge_infer_converters.sources.decoder.families import Family, family
from edge_infer_converters.sources.decoder.fields import Fields
from edge_infer_converters.sources.decoder.rope import Rope, read_rope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.generation.config import Activation

# What the kernels' 32-bit numbers and a folder of the Hub can hold; larger ones are typing errors or attacks.
_MOST = {"layers": 1024, "heads": 1024, "head_size": 1024, "hidden_size": 2**16, "mlp_size": 2**18}
_MOST_TOKENS = 2**22
_MOST_POSITIONS = 2**24
# What the kernels take (`decoder_check`): positions of a slot, and values of all heads together.
_MOST_CONTEXT = 2**20
_MOST_QUERIES = 2**18
_LARGEST_FLOAT = float(np.finfo(np.float32).max)

# Fields that families have or have not; one that has it not ignores it, and we would not.
_IGNORED = {
    "partial_rotary_factor": "positions that turn a part of each head",
    "attn_logit_softcapping": "a cap of the scores",
    "final_logit_softcapping": "a cap of the logits",
}

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_LAYER_TYPES: dict[str, int] = {"full_attention": 0, "sliding_attention": 1}
#: The configuration of the text model inside that of a model of images and text, and its type.
_INSIDE = {"gemma3": "gemma3_text"}


@dataclass(frozen=True, slots=True)
class Described:
    """What a `config.json` says of a decoder.

    Attributes:
        config: The decoder.
        family: Its family: how it calls its tensors.
        rotations: The frequencies of each kind of layer that rotates.
        rotation_factor: What rotated queries and keys are multiplied by, each.
        is_tied: Whether the head is the embedding.
        branch_factor: What attention and MLP are multiplied by before they are added (Granite).
        logits_factor: What the logits are multiplied by.
        notes: What the user should know.
    """

    config: DecoderConfig
    family: Family
    rotations: Mapping[int, np.ndarray]
    rotation_factor: float
    is_tied: bool
    branch_factor: float = 1.0
    logits_factor: float = 1.0
    notes: tuple[str, ...] = field(default=())


def text_config(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the configuration of the text model, and a note where more than that stands in the document."""
    kind = document.get("model_type")
    inside = document.get("text_config")
    if isinstance(kind, str) and kind in _INSIDE and isinstance(inside, dict):
        return {**inside, "model_type": _INSIDE[kind]}, ("Images are left out: the text model alone is converted",)
    return document, ()


def describe(document: Mapping[str, Any]) -> Described:
    """Read what a decoder is.

    Raises:
        ConversionError: A field is missing, of another type or out of range.
        UnsupportedModel: The family, or a switch of it, is not supported; the message names it.
    """
    document, notes = text_config(document)
    kind = document.get("model_type")
    found = family(kind)
    if document.get("quantization_config") is not None:
        method = Fields(document).part("quantization_config")
        raise UnsupportedModel(
            f"The weights are quantized by {method.get('quant_method') if method else 'something'} already",
            hint="convert the model that it was made from: edge-infer quantizes it",
        )
    for name, what in _IGNORED.items():
        if name not in found.defaults and _says(document, name):
            raise UnsupportedModel(
                f"config.json: `{name}` asks for {what}, which a `{kind}` does not have",
                hint="transformers ignores the field there: take it out where the model was trained so",
                field=name,
            )
    return describe_family(document, str(kind), found, notes=notes)


def _says(document: Mapping[str, Any], name: str) -> bool:
    """Tell whether a configuration asks for what a field says, in any of its places; a whole turn asks for nothing."""
    nothing = 1.0 if name == "partial_rotary_factor" else 0.0
    rotations = [one for part in ("rope_parameters", "rope_scaling") if isinstance(one := document.get(part), dict)]
    layers = [one for rotation in rotations for one in rotation.values() if isinstance(one, dict)]
    return any(one.get(name) not in (None, nothing) for one in (document, *rotations, *layers))


def describe_family(
    document: Mapping[str, Any], kind: str, found: Family, where: str = "config.json", notes: tuple[str, ...] = ()
) -> Described:
    """Read what a decoder of a known family is.

    Args:
        document: Its fields, by the family's spelling.
        kind: Its `model_type`.
        found: The family.
        where: What the fields stand in, for errors.
        notes: What is known of it already.

    Raises:
        ConversionError: A field is missing, of another type or out of range.
        UnsupportedModel: A switch of it is not supported; the message names it.
    """
    fields = Fields(document, found.defaults, found.spelt(), where)
    for name, what in found.refused.items():
        if fields.flag(name):
            raise UnsupportedModel(f"{where}: `{name}` asks for {what}, which is not supported", field=name)
    _refuse_variants(fields, kind)
    sizes = {name: fields.size(name, most) for name, most in _MOST.items() if name in ("layers", "heads")}
    hidden = fields.size("hidden_size", _MOST["hidden_size"])
    heads = sizes["heads"]
    if fields.get("head_size") is None and hidden % heads:
        raise fields.wrong("heads", heads, f"a divisor of the {hidden} values of `{fields.name('hidden_size')}`")
    head_size = hidden // heads if fields.get("head_size") is None else fields.size("head_size", _MOST["head_size"])
    kv_heads = heads if fields.get("kv_heads") is None else fields.size("kv_heads", heads)
    if heads % kv_heads:
        raise fields.wrong("kv_heads", kv_heads, f"a divisor of the {heads} heads")
    is_four_wide = kind in ("gpt2", "gpt_neo") and fields.get("mlp_size") is None
    mlp = 4 * hidden if is_four_wide else fields.size("mlp_size", _MOST["mlp_size"])
    if heads * head_size > _MOST_QUERIES:
        raise fields.wrong("heads", heads, f"at most {_MOST_QUERIES // head_size} heads of {head_size} values")
    context = fields.size("context", _MOST_POSITIONS if found.positions == "rope" else _MOST_CONTEXT)
    kinds, window = _layer_kinds(fields, found, sizes["layers"], context)
    rotations = _rotations(fields, found, head_size, kinds)
    limit = min((one.context for one in rotations.values() if one.context), default=0)
    if limit and limit < context:
        notes += (f"The context is {limit} tokens: longer texts need other frequencies (longrope), up to {context}",)
        context = limit
    if context > _MOST_CONTEXT:
        notes += (f"The context is {_MOST_CONTEXT} tokens, the most that the kernels take, and not {context}",)
        context = _MOST_CONTEXT
    scale, factor = _attention_scale(fields, head_size), 1.0
    if rotations and (sharpened := rotations[kinds[0]].factor) != 1.0:
        # Cosine and sine are multiplied by it, so that scores are by its square.
        if len(rotations[kinds[0]].frequencies) * 2 == head_size:
            scale *= sharpened**2
        else:
            factor = sharpened
    kinds, rotations, window = _without_rotation(fields, kinds, rotations, window, context)
    config = DecoderConfig(
        architecture=kind.removesuffix("_text"),
        vocab_size=fields.size("vocab_size", _MOST_TOKENS),
        hidden_size=hidden,
        layers=sizes["layers"],
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        mlp_size=mlp,
        context=context,
        norm=found.norm,
        norm_epsilon=fields.number("norm_epsilon", 0.0, 1.0),
        activation=_activation(fields, kind),
        gated=found.gated,
        parallel=found.parallel,
        positions=found.positions,
        position_offset=found.position_offset,
        rotary_size=next(iter(rotations.values())).rotary_size if rotations else 0,
        attention_scale=scale,
        attention_softcap=_softcap(fields, "attn_logit_softcapping"),
        final_softcap=_softcap(fields, "final_logit_softcapping"),
        embedding_scale=_embedding_scale(fields, found, hidden),
        sliding_window=window,
        layer_kinds=kinds,
    )
    _check_floats(config)
    frequencies = {kind: one.frequencies for kind, one in rotations.items()}
    branches = 1.0 if fields.get("residual_multiplier") is None else fields.number("residual_multiplier")
    logits = 1.0 if fields.get("logits_scaling") is None else 1 / fields.number("logits_scaling", 1e-6)
    is_tied = fields.flag("tie_word_embeddings")
    return Described(config, found, frequencies, factor, is_tied, branches, logits, notes)


def _check_floats(config: DecoderConfig) -> None:
    """Refuse numbers that no float32 holds, in which the kernels compute.

    Raises:
        ConversionError: There is one.
    """
    for name in FLOATS:
        value = getattr(config, name)
        if not abs(value) <= _LARGEST_FLOAT:
            raise ConversionError(
                f"config.json: the decoder's `{name}` would be {value:g}, which is no float32",
                hint="download config.json again, or correct its scales, factors and caps",
                field=name,
            )


def _refuse_variants(fields: Fields, kind: str) -> None:
    """Refuse what a family's checkpoints rarely ask for, and what would be computed wrongly in silence."""
    experts = next((name for name in ("num_local_experts", "num_experts", "n_routed_experts") if fields.get(name)), "")
    if experts:
        raise UnsupportedModel(
            f"config.json: `{experts}` is {fields.get(experts)}: mixtures of experts are not supported",
            hint="take a dense model of the family",
            field=experts,
        )
    if kind == "opt":
        if fields.get("do_layer_norm_before") is False:
            raise UnsupportedModel(
                "config.json: `do_layer_norm_before` is false: norms behind the layers (opt-350m) are not supported",
                hint="take facebook/opt-125m or facebook/opt-1.3b",
                field="do_layer_norm_before",
            )
        if fields.get("word_embed_proj_dim") not in (None, fields.get("hidden_size")):
            raise UnsupportedModel(
                f"config.json: `word_embed_proj_dim` is {fields.get('word_embed_proj_dim')}: an embedding of another "
                "width than the layers (opt-350m) is not supported",
                hint="take facebook/opt-125m or facebook/opt-1.3b",
                field="word_embed_proj_dim",
            )
        if fields.get("layer_norm_elementwise_affine") is False:
            raise UnsupportedModel("config.json: norms without weights are not supported", hint="take another OPT")


def _activation(fields: Fields, kind: str) -> Activation:
    word = fields.get("activation")
    if kind == "gemma" and word == "gelu":  # its checkpoints mean the approximation
        return "gelu_tanh"
    if kind == "gemma" and isinstance(fields.get("hidden_activation"), str):
        word = fields.get("hidden_activation")
    found = _ACTIVATIONS.get(word) if isinstance(word, str) else None
    if found is None:
        raise fields.wrong("activation", word, f"one of {', '.join(_ACTIVATIONS)}")
    return found


def _embedding_scale(fields: Fields, found: Family, hidden: int) -> float:
    if found.scales_embedding:
        return float(np.float32(math.sqrt(hidden)))
    return 1.0 if fields.get("embedding_multiplier") is None else fields.number("embedding_multiplier")


def _softcap(fields: Fields, name: str) -> float:
    return 0.0 if fields.get(name) is None else fields.number(name, 0.0)


def _attention_scale(fields: Fields, head_size: int) -> float:
    if fields.get("scale_attn_weights") is False:
        return 1.0
    if fields.get("attention_multiplier") is not None:
        return fields.number("attention_multiplier")
    width = fields.number("query_pre_attn_scalar", 1e-6) if fields.get("query_pre_attn_scalar") else head_size
    return float(width**-0.5)


def _layer_kinds(fields: Fields, found: Family, layers: int, context: int) -> tuple[tuple[int, ...], int]:
    """Return which layers see a window, and how wide it is; one as wide as the context is none."""
    window = 0 if fields.get("sliding_window") is None else fields.size("sliding_window", 2**31 - 1)
    if found.windows == "none" or (found.windows == "asked" and not fields.flag("use_sliding_window")):
        window = 0
    types = fields.get("layer_types")
    if types is not None:
        expected = f"full_attention or sliding_attention for each of {layers} layers"
        if not isinstance(types, list) or len(types) != layers:
            raise fields.wrong("layer_types", types, expected)
        unknown = [one for one in types if not isinstance(one, str) or one not in _LAYER_TYPES]
        if unknown:
            raise fields.wrong("layer_types", unknown[0], expected)
        kinds = [_LAYER_TYPES[one] for one in types]
        if any(kinds) and not window and found.windows != "none":
            kinds = [0] * layers
        elif any(kinds) and not window:
            window = fields.size("sliding_window", 2**31 - 1)
    elif not window or found.windows == "none":
        kinds = [0] * layers
    elif found.windows == "all":
        kinds = [1] * layers
    elif found.windows == "named":
        kinds = _named_kinds(fields, layers)
    elif found.windows == "alternating":
        every = fields.size("sliding_window_pattern", 1024)
        kinds = [int((layer + 1) % every != 0) for layer in range(layers)]
    else:
        first = fields.size("max_window_layers", 2**31 - 1, 0)
        kinds = [int(layer >= first) for layer in range(layers)]
    if window >= context and found.windows == "all":
        kinds = [0] * layers
    return tuple(kinds), min(window, context) if any(kinds) else 0


def _named_kinds(fields: Fields, layers: int) -> list[int]:
    """Read rows such as `[["global", "local"], 6]`: names, and how often they are repeated."""
    types = fields.get("attention_types") or [[["global", "local"], (layers + 1) // 2]]
    expected = f'rows such as [["global", "local"], 6] for {layers} layers'
    kinds: list[int] = []
    for row in types if isinstance(types, list) else [types]:
        fits = isinstance(row, list) and len(row) == 2 and isinstance(row[0], list) and type(row[1]) is int
        if not fits or not 0 < row[1] <= layers or any(one not in ("global", "local") for one in row[0]):
            raise fields.wrong("attention_types", types, expected)
        kinds += [int(one == "local") for one in row[0]] * row[1]
    if len(kinds) != layers and fields.get("attention_types"):
        raise fields.wrong("attention_types", types, expected)
    return kinds[:layers]


def _rotations(fields: Fields, found: Family, head_size: int, kinds: tuple[int, ...]) -> dict[int, Rope]:
    if found.positions != "rope":
        return {}
    types: dict[int, Literal["full_attention", "sliding_attention"]] = {0: "full_attention", 1: "sliding_attention"}
    rotations = {kind: read_rope(fields, head_size, types[kind]) for kind in sorted(set(kinds))}
    if len({(one.rotary_size, one.factor) for one in rotations.values()}) > 1:
        raise UnsupportedModel(
            "config.json: layers that rotate different parts of a head are not supported", hint="take another model"
        )
    return rotations


def _without_rotation(
    fields: Fields, kinds: tuple[int, ...], rotations: dict[int, Rope], window: int, context: int
) -> tuple[tuple[int, ...], dict[int, Rope], int]:
    """Give layers without rotation (NoPE) a kind of their own: frequencies of zero, and a window of the whole context.

    Raises:
        UnsupportedModel: Such layers, and windows too.
    """
    listed = fields.get("no_rope_layers")
    every = fields.get("no_rope_layer_interval")
    if listed is None and every is None:
        return kinds, rotations, window
    if listed is None:
        every = fields.size("no_rope_layer_interval", 2**31 - 1)
        listed = [int((layer + 1) % every != 0) for layer in range(len(kinds))]
    if not isinstance(listed, list) or len(listed) != len(kinds) or any(one not in (0, 1) for one in listed):
        raise fields.wrong("no_rope_layers", listed, f"0 or 1 for each of {len(kinds)} layers")
    if all(listed):
        return kinds, rotations, window
    if any(kinds):
        raise UnsupportedModel(
            "config.json: layers without rotation and windows in one model are not supported",
            hint="set `use_sliding_window` to false where the model allows it",
        )
    plain = rotations[0]
    still = plain._replace(frequencies=np.zeros_like(plain.frequencies))
    return tuple(1 - one for one in listed), {0: plain, 1: still}, context
