"""The families of decoders: what each calls its tensors and fields, and what it computes differently.

Sources: `models/FAMILY/configuration_FAMILY.py` and `modeling_FAMILY.py` of transformers 5.24, for the defaults and for
what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from edge_infer.errors import UnsupportedModel, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.generation.config import Norm, Positions

#: By part of a layer the tensors that make it, one below the other, without the layer's prefix.
Names = dict[str, tuple[str, ...]]

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_LLAMA: Names = {
    "attention_norm": ("input_layernorm",),
    "qkv": _QKV,
    "attention_output": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_QK_NORMS: Names = {"q_norm": ("self_attn.q_norm",), "k_norm": ("self_attn.k_norm",)}
_FOUR_NORMS: Names = {
    "attention_post_norm": ("post_attention_layernorm",),
    "mlp_norm": ("pre_feedforward_layernorm",),
    "mlp_post_norm": ("post_feedforward_layernorm",),
}
_LLAMA_DEFAULTS: dict[str, Any] = {
    "activation": "silu",
    "norm_epsilon": 1e-6,
    "rope_theta": 10000.0,
    "context": 2048,
    "tie_word_embeddings": False,
}
_ASKED_WINDOW = {"sliding_window": 4096, "max_window_layers": 28}
_GEMMA_DEFAULTS: dict[str, Any] = {
    **_LLAMA_DEFAULTS,
    "activation": "gelu_pytorch_tanh",
    "context": 8192,
    "head_size": 256,
    "tie_word_embeddings": True,
}
#: By our word the field of most configurations.
_FIELDS = {
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "layers": "num_hidden_layers",
    "mlp_size": "intermediate_size",
    "context": "max_position_embeddings",
    "head_size": "head_dim",
    "norm_epsilon": "rms_norm_eps",
    "activation": "hidden_act",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is common to the models of one `model_type`.

    Attributes:
        names: What it calls the parts of a layer.
        defaults: What a missing field of `config.json` means, by our word.
        fields: How it spells our words, where it differs from most.
        roots: What may stand before all names but the head's; the first that is there is taken.
        layer: The prefix of a layer's names.
        embedding: The name of the embedding.
        position_table: The name of the learned positions.
        final_norm: The name of the last norm.
        head: The name of the head.
        norm: Which norm.
        norm_plus: What is added to the norms' weights.
        gated: Whether the MLP is gated.
        parallel: Whether attention and MLP stand side by side.
        positions: How positions come in.
        position_offset: Of the learned ones.
        transposed: Whether matrices are stored with a column for each output.
        scales_embedding: Whether the embedding is multiplied by the root of its width.
        windows: Which layers see a window where `layer_types` does not say: all of them, every layer but each Nth
            (`alternating`), those from `max_window_layers` on where `use_sliding_window` says so (`asked`), or those
            that `attention_types` calls local (`named`).
        refused: Fields that must be false or missing, and what they are.
    """

    names: Names
    defaults: Mapping[str, Any]
    fields: Mapping[str, str] = field(default_factory=dict)
    roots: tuple[str, ...] = ("model.", "")
    layer: str = "layers."
    embedding: str = "embed_tokens"
    position_table: str = ""
    final_norm: str = "norm"
    head: str = "lm_head"
    norm: Norm = "rms"
    norm_plus: float = 0.0
    gated: bool = True
    parallel: bool = False
    positions: Positions = "rope"
    position_offset: int = 0
    transposed: bool = False
    scales_embedding: bool = False
    windows: Literal["none", "all", "alternating", "asked", "named"] = "none"
    refused: Mapping[str, str] = field(default_factory=dict)

    def spelt(self) -> dict[str, str]:
        """Return how the family spells our words."""
        return {**_FIELDS, **self.fields}


_LLAMA_FAMILY = Family(names=_LLAMA, defaults=_LLAMA_DEFAULTS)
_GEMMA3_DEFAULTS = {
    **_GEMMA_DEFAULTS,
    "vocab_size": 262208,
    "hidden_size": 2304,
    "mlp_size": 9216,
    "layers": 26,
    "heads": 8,
    "kv_heads": 4,
    "context": 131072,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "final_logit_softcapping": None,
}
_GEMMA3_REFUSED = {"use_bidirectional_attention": "attention to later positions"}

#: By `model_type`.
FAMILIES: dict[str, Family] = {
    "llama": _LLAMA_FAMILY,
    "smollm3": Family(
        names=_LLAMA,
        defaults={
            **_LLAMA_DEFAULTS,
            "tie_word_embeddings": True,
            "no_rope_layer_interval": 4,
            "context": 32768,
            "rope_theta": 2e6,
        },
    ),
    "mistral": Family(
        names=_LLAMA, defaults={**_LLAMA_DEFAULTS, "context": 131072, "sliding_window": 4096}, windows="all"
    ),
    "qwen2": Family(names=_LLAMA, defaults={**_LLAMA_DEFAULTS, "context": 32768, **_ASKED_WINDOW}, windows="asked"),
    "qwen3": Family(
        names=_LLAMA | _QK_NORMS,
        defaults={**_LLAMA_DEFAULTS, "context": 32768, "head_size": 128, **_ASKED_WINDOW},
        windows="asked",
    ),
    "gemma": Family(names=_LLAMA, defaults=_GEMMA_DEFAULTS, norm_plus=1.0, scales_embedding=True),
    "gemma2": Family(
        names=_LLAMA | _FOUR_NORMS,
        defaults={
            **_GEMMA_DEFAULTS,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "sliding_window_pattern": 2,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        fields={"activation": "hidden_activation"},
        norm_plus=1.0,
        scales_embedding=True,
        windows="alternating",
        refused=_GEMMA3_REFUSED,
    ),
    "gemma3_text": Family(
        names=_LLAMA | _QK_NORMS | _FOUR_NORMS,
        defaults=_GEMMA3_DEFAULTS,
        fields={"activation": "hidden_activation"},
        roots=("model.", "language_model.model.", "model.language_model.", ""),
        norm_plus=1.0,
        scales_embedding=True,
        windows="alternating",
        refused=_GEMMA3_REFUSED,
    ),
    "phi3": Family(
        names=_LLAMA | {"qkv": ("self_attn.qkv_proj",), "up": ("mlp.gate_up_proj",)},
        defaults={**_LLAMA_DEFAULTS, "norm_epsilon": 1e-5, "context": 4096, "partial_rotary_factor": 1.0},
        windows="all",
    ),
    "phi": Family(
        names={
            "attention_norm": ("input_layernorm",),
            "qkv": _QKV,
            "attention_output": ("self_attn.dense",),
            "up": ("mlp.fc1",),
            "down": ("mlp.fc2",),
        },
        defaults={**_LLAMA_DEFAULTS, "activation": "gelu_new", "norm_epsilon": 1e-5, "partial_rotary_factor": 0.5},
        fields={"norm_epsilon": "layer_norm_eps"},
        final_norm="final_layernorm",
        norm="layer",
        gated=False,
        parallel=True,
        refused={"qk_layernorm": "norms of queries and keys with a mean"},
    ),
    "granite": Family(
        names=_LLAMA,
        defaults={
            **_LLAMA_DEFAULTS,
            "embedding_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
    ),
    "stablelm": Family(
        names=_LLAMA,
        defaults={**_LLAMA_DEFAULTS, "norm_epsilon": 1e-5, "context": 4096, "partial_rotary_factor": 0.25},
        fields={"norm_epsilon": "layer_norm_eps"},
        norm="layer",
        refused={
            "qk_layernorm": "norms of queries and keys with a mean",
            "use_parallel_residual": "attention and MLP side by side",
        },
    ),
    "starcoder2": Family(
        names=_LLAMA | {"up": ("mlp.c_fc",), "down": ("mlp.c_proj",)},
        defaults={
            **_LLAMA_DEFAULTS,
            "activation": "gelu_pytorch_tanh",
            "norm_epsilon": 1e-5,
            "context": 4096,
            "tie_word_embeddings": True,
        },
        fields={"norm_epsilon": "norm_epsilon"},
        norm="layer",
        gated=False,
        windows="all",
    ),
    "gpt_neo": Family(
        names={
            "attention_norm": ("ln_1",),
            "qkv": tuple(f"attn.attention.{one}_proj" for one in "qkv"),
            "attention_output": ("attn.attention.out_proj",),
            "mlp_norm": ("ln_2",),
            "up": ("mlp.c_fc",),
            "down": ("mlp.c_proj",),
        },
        defaults={
            "activation": "gelu_new",
            "norm_epsilon": 1e-5,
            "context": 2048,
            "tie_word_embeddings": True,
            "scale_attn_weights": False,
            "sliding_window": 256,
        },
        fields={
            "layers": "num_layers",
            "heads": "num_heads",
            "norm_epsilon": "layer_norm_epsilon",
            "activation": "activation_function",
            "sliding_window": "window_size",
        },
        roots=("transformer.", ""),
        layer="h.",
        embedding="wte",
        position_table="wpe",
        final_norm="ln_f",
        norm="layer",
        gated=False,
        positions="learned",
        windows="named",
    ),
    "gpt2": Family(
        names={
            "attention_norm": ("ln_1",),
            "qkv": ("attn.c_attn",),
            "attention_output": ("attn.c_proj",),
            "mlp_norm": ("ln_2",),
            "up": ("mlp.c_fc",),
            "down": ("mlp.c_proj",),
        },
        defaults={
            "activation": "gelu_new",
            "norm_epsilon": 1e-5,
            "context": 1024,
            "tie_word_embeddings": True,
            "scale_attn_weights": True,
        },
        fields={
            "hidden_size": "n_embd",
            "layers": "n_layer",
            "heads": "n_head",
            "mlp_size": "n_inner",
            "context": "n_positions",
            "norm_epsilon": "layer_norm_epsilon",
            "activation": "activation_function",
        },
        roots=("transformer.", ""),
        layer="h.",
        embedding="wte",
        position_table="wpe",
        final_norm="ln_f",
        norm="layer",
        gated=False,
        positions="learned",
        transposed=True,
        refused={
            "scale_attn_by_inverse_layer_idx": "scores scaled by the layer's number",
            "add_cross_attention": "attention to an encoder",
        },
    ),
    "opt": Family(
        names={
            "attention_norm": ("self_attn_layer_norm",),
            "qkv": _QKV,
            "attention_output": ("self_attn.out_proj",),
            "mlp_norm": ("final_layer_norm",),
            "up": ("fc1",),
            "down": ("fc2",),
        },
        defaults={"activation": "relu", "norm_epsilon": 1e-5, "context": 2048, "tie_word_embeddings": True},
        fields={"mlp_size": "ffn_dim", "activation": "activation_function", "norm_epsilon": "layer_norm_eps"},
        roots=("model.decoder.", "decoder.", ""),
        embedding="embed_tokens",
        position_table="embed_positions",
        final_norm="final_layer_norm",
        norm="layer",
        gated=False,
        positions="learned",
        position_offset=2,
        refused={"_remove_final_layer_norm": "a decoder without its last norm"},
    ),
}

_EXPERTS = "a mixture of experts"
#: What is known and not read: what it is, and the family that is nearest.
_KNOWN: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("mixtral",), (_EXPERTS, "mistral")),
    **dict.fromkeys(("qwen2_moe",), (_EXPERTS, "qwen2")),
    **dict.fromkeys(("qwen3_moe", "qwen3_next", "qwen3_vl_moe"), (_EXPERTS, "qwen3")),
    **dict.fromkeys(("phimoe",), (_EXPERTS, "phi3")),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "llama4", "llama4_text", "gpt_oss", "olmoe"), (_EXPERTS, "llama")),
    **dict.fromkeys(("granitemoe", "dbrx", "jamba", "glm4_moe", "ernie4_5_moe"), (_EXPERTS, "llama")),
    **dict.fromkeys(("mamba", "mamba2", "rwkv", "rwkv6"), ("a model with states in place of attention", "llama")),
    **dict.fromkeys(("lfm2", "zamba2", "falcon_h1", "bamba"), ("a model with states beside attention", "llama")),
    **dict.fromkeys(("bloom", "mpt"), ("a model with biases of distance (ALiBi)", "llama")),
    "falcon": ("a model of attention and MLP side by side, whose heads share keys in a layout of its own", "llama"),
    **dict.fromkeys(
        ("gpt_neox", "gpt_neox_japanese"), ("a model of attention and MLP side by side with a norm each", "stablelm")
    ),
    **dict.fromkeys(("gptj", "codegen"), ("a model whose rotation pairs neighbouring values", "phi")),
    **dict.fromkeys(
        ("cohere", "cohere2", "glm", "glm4"), ("a model whose rotation pairs neighbouring values", "llama")
    ),
    "gpt_bigcode": ("a GPT-2 whose heads share keys and values", "starcoder2"),
    **dict.fromkeys(("olmo2", "olmo3"), ("a model with norms behind its branches only", "llama")),
    "nemotron": ("a model with the squares of rectified values", "llama"),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), ("a model whose layers share keys and values", "gemma3_text")),
    **dict.fromkeys(("bart", "mbart", "pegasus", "umt5", "marian"), ("an encoder and a decoder", "t5")),
}


def family(model_type: object) -> Family:
    """Return the family of a `model_type`.

    Raises:
        UnsupportedModel: It is not read; the message names it, and the hint the nearest that is.
    """
    name = model_type if isinstance(model_type, str) else ""
    if name in FAMILIES:
        return FAMILIES[name]
    known = listed(list(FAMILIES))
    if name in _KNOWN:
        what, nearest = _KNOWN[name]
        said, hint = f"Model type `{name}` is {what}, which is not supported", f"take a model of the type {nearest}"
    else:
        said = f"Model type `{name}` is not supported" if name else f"config.json has the model_type {model_type!r}"
        near = get_close_matches(name, FAMILIES, n=1)
        hint = f"`{near[0]}` is the nearest that is read" if near else "take a model of one of these types"
    raise UnsupportedModel(f"{said}; text is generated by {known}", hint=hint, got=name, allowed=list(FAMILIES))


def known(name: str) -> str:
    """Return what a model that is not read is, in a few words; an empty text where nothing is known of it."""
    return _KNOWN[name][0] if name in _KNOWN else ""
