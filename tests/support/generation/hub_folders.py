"""Tiny Hugging Face folders of each family, with random weights: made by numpy, without torch and transformers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.formats.safetensors import write_tensors
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VOCABULARY = 320
_LLAMA: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: A `config.json` of each family, as published folders have it.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_LLAMA, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "smollm3": {**_LLAMA, "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1, 0]},
    "mistral": {**_LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8},
    "qwen2": {**_LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
    "qwen3": {**_LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 32},
    "gemma": {**_LLAMA, "model_type": "gemma", "architectures": ["GemmaForCausalLM"], "head_dim": 16},
    "gemma2": {
        **_LLAMA,
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "head_dim": 16,
        "sliding_window": 8,
        "query_pre_attn_scalar": 12,
    },
    "gemma3_text": {
        **_LLAMA,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": 16,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 12,
    },
    "phi3": {**_LLAMA, "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "sliding_window": None},
    "phi": {
        **_LLAMA,
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        "partial_rotary_factor": 0.5,
        "layer_norm_eps": 1e-5,
    },
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": VOCABULARY,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 128,
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 2,
        "eos_token_id": 2,
    },
    "opt": {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "word_embed_proj_dim": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def names(family: str) -> dict[str, tuple[int, ...]]:
    """Return the tensors that transformers' model of a family has, with their shapes."""
    config = CONFIGS[family]
    hidden, layers = config.get("hidden_size") or config["n_embd"], config.get("num_hidden_layers") or config["n_layer"]
    heads = config.get("num_attention_heads") or config["n_head"]
    head = config.get("head_dim") or hidden // heads
    kv, mlp = config.get("num_key_value_heads", heads), config.get("intermediate_size") or config.get("ffn_dim", 256)
    if family == "gpt2":
        found = {"wte.weight": (VOCABULARY, hidden), "wpe.weight": (128, hidden), **_norm("ln_f", hidden)}
        for at in (f"h.{layer}." for layer in range(layers)):
            found |= {**_norm(f"{at}ln_1", hidden), **_norm(f"{at}ln_2", hidden), f"{at}attn.bias": (1, 1, 128, 128)}
            for name, shape in {
                "attn.c_attn": (hidden, 3 * hidden),
                "attn.c_proj": (hidden, hidden),
                "mlp.c_fc": (hidden, mlp),
                "mlp.c_proj": (mlp, hidden),
            }.items():
                found |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[1:]}
        return found
    root = "model.decoder." if family == "opt" else "model."
    found = {f"{root}embed_tokens.weight": (VOCABULARY, hidden)}
    if family == "opt":
        found |= {f"{root}embed_positions.weight": (130, hidden), **_norm(f"{root}final_layer_norm", hidden)}
    elif family == "phi":
        found |= {**_norm(f"{root}final_layernorm", hidden), "lm_head.bias": (VOCABULARY,)}
    else:
        found[f"{root}norm.weight"] = (hidden,)
    if family in ("llama", "mistral", "qwen3", "phi3", "phi"):
        found["lm_head.weight"] = (VOCABULARY, hidden)
    for at in (f"{root}layers.{layer}." for layer in range(layers)):
        rows = {"q_proj": heads * head, "k_proj": kv * head, "v_proj": kv * head}
        if family == "phi3":
            found[f"{at}self_attn.qkv_proj.weight"] = (sum(rows.values()), hidden)
            found[f"{at}mlp.gate_up_proj.weight"] = (2 * mlp, hidden)
            rows = {}
        for name, count in rows.items():
            found[f"{at}self_attn.{name}.weight"] = (count, hidden)
            if family in ("qwen2", "phi", "opt"):
                found[f"{at}self_attn.{name}.bias"] = (count,)
        if family in ("qwen3", "gemma3_text"):
            found |= {f"{at}self_attn.q_norm.weight": (head,), f"{at}self_attn.k_norm.weight": (head,)}
        if family in ("phi", "opt"):
            output = "self_attn.dense" if family == "phi" else "self_attn.out_proj"
            first, second = ("mlp.fc1", "mlp.fc2") if family == "phi" else ("fc1", "fc2")
            for name, shape in {output: (hidden, heads * head), first: (mlp, hidden), second: (hidden, mlp)}.items():
                found |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
            norms = ("input_layernorm",) if family == "phi" else ("self_attn_layer_norm", "final_layer_norm")
            for name in norms:
                found |= _norm(f"{at}{name}", hidden)
            continue
        found[f"{at}self_attn.o_proj.weight"] = (hidden, heads * head)
        found[f"{at}mlp.down_proj.weight"] = (hidden, mlp)
        if family != "phi3":
            found |= {f"{at}mlp.gate_proj.weight": (mlp, hidden), f"{at}mlp.up_proj.weight": (mlp, hidden)}
        four = (
            ("pre_feedforward_layernorm", "post_feedforward_layernorm") if family in ("gemma2", "gemma3_text") else ()
        )
        for name in ("input_layernorm", "post_attention_layernorm", *four):
            found[f"{at}{name}.weight"] = (hidden,)
    return found


def weights(family: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights of a family."""
    draw = np.random.default_rng(seed)
    gemma = family.startswith("gemma")
    found = {}
    for name, shape in names(family).items():
        plus = 1.0 if len(shape) == 1 and name.endswith("weight") and not gemma else 0.0
        scale = 0.1 if len(shape) == 1 else 1.0 if shape[0] == VOCABULARY else 0.2
        found[name] = (draw.standard_normal(shape) * scale + plus).astype(np.float32)
    return found


def tokenizer(tokens: int = VOCABULARY) -> dict[str, Any]:
    """Return a `tokenizer.json` that writes each byte as one token, with some merges and special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = sorted([chr(one) for one in printable] + [chr(256 + i) for i in range(len(others))])
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {one: i for i, one in enumerate([*special, *letters])}
    merges = []
    for pair in ("t h", "i n", "th e", "a n", "an d", "Ġ th", "Ġ a", "e r", "o n", "r e"):
        merges.append(pair)
        vocabulary[pair.replace(" ", "")] = len(vocabulary)
    while len(vocabulary) < tokens:
        vocabulary[f"zq{len(vocabulary)}"] = len(vocabulary)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": one, **flags} for i, one in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def stored(values: np.ndarray, dtype: DType = DType.FLOAT32) -> Tensor:
    """Return an array as a file stores it."""
    if dtype is DType.BFLOAT16:
        upper = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype("<u2")
        return Tensor(upper.tobytes(), dtype, values.shape)
    kind = {DType.FLOAT32: "<f4", DType.FLOAT16: "<f2"}[dtype]
    return Tensor(values.astype(kind).tobytes(), dtype, values.shape)


def write_folder(
    folder: Path,
    family: str = "llama",
    *,
    changes: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    dtype: DType = DType.FLOAT32,
    shards: int = 1,
) -> Path:
    """Write a folder.

    Args:
        folder: Where; it is made.
        family: A key of `CONFIGS`.
        changes: Fields of `config.json` to replace, or to leave out where they are `...`.
        tensors: The weights; random ones unless given.
        dtype: What they are stored as.
        shards: How many files they are in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {name: value for name, value in {**CONFIGS[family], **(changes or {})}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    said = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    advice = {"eos_token_id": [2, 4], "temperature": 0.7, "top_p": 0.9, "top_k": 40, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(advice))
    made = {name: stored(one, dtype) for name, one in (weights(family) if tensors is None else tensors).items()}
    if shards == 1:
        (folder / "model.safetensors").write_bytes(write_tensors(made))
        return folder
    index: dict[str, str] = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {key: made[key] for key in list(made)[i::shards]}
        (folder / name).write_bytes(write_tensors(part))
        index |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}
