"""Small decoders that together use every switch of the configuration."""

from __future__ import annotations

from edge_infer.generation.config import DecoderConfig

_BIASES = ("qkv.bias", "attention_output.bias", "up.bias", "down.bias", "attention_norm.bias", "final_norm.bias")
_LLAMA = DecoderConfig("llama", 97, 64, 2, 6, 2, 16, 96, 64, rotary_size=16, attention_scale=0.25, layer_kinds=(0, 0))
_QWEN3 = DecoderConfig("qwen3", 97, 64, 2, 4, 4, 32, 96, 64, rotary_size=32, attention_scale=0.2, layer_kinds=(0, 0))
_GEMMA = DecoderConfig(
    *("gemma", 97, 64, 3, 5, 1, 24, 64, 64),
    activation="gelu_tanh",
    rotary_size=24,
    attention_scale=0.2,
    attention_softcap=5.0,
    final_softcap=3.0,
    embedding_scale=8.0,
    sliding_window=5,
    layer_kinds=(0, 1, 1),
)
_GPT2 = DecoderConfig(
    *("gpt2", 97, 64, 2, 4, 4, 16, 96, 64, "layer"),
    activation="gelu",
    gated=False,
    positions="learned",
    position_offset=2,
    attention_scale=0.25,
    layer_kinds=(0, 0),
)
_PHI = DecoderConfig(
    *("phi", 97, 62, 2, 3, 3, 18, 50, 64, "layer"),
    activation="relu",
    gated=False,
    parallel=True,
    rotary_size=10,
    attention_scale=0.25,
    layer_kinds=(0, 0),
)

#: By family the configuration, and the optional tensors that it has.
FAMILIES: dict[str, tuple[DecoderConfig, frozenset[str]]] = {
    "llama": (_LLAMA, frozenset()),
    "qwen3": (_QWEN3, frozenset({"q_norm.weight", "k_norm.weight", "qkv.bias", "head"})),
    "gemma": (_GEMMA, frozenset({"attention_post_norm.weight", "mlp_post_norm.weight"})),
    "gpt2": (_GPT2, frozenset({*_BIASES, "mlp_norm.bias", "head.bias", "head"})),
    "phi": (_PHI, frozenset({*_BIASES, "head.bias", "head"})),
}
