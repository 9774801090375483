"""GGUF files of tiny models: the weights of `hub_folders`, written by the package `gguf` as llama.cpp's script does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from tests.support.generation import hub_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: By family the architecture of llama.cpp.
ARCHITECTURES = {
    **{one: one for one in ("llama", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "gpt2")},
    "mistral": "llama",
    "gemma3_text": "gemma3",
}
#: What the format cannot say otherwise than the published models have it.
CHANGES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window_pattern": 6},
}
#: By ggml's name.
TYPES = {
    "F32": gguf.GGMLQuantizationType.F32,
    "F16": gguf.GGMLQuantizationType.F16,
    "BF16": gguf.GGMLQuantizationType.BF16,
    "Q4_0": gguf.GGMLQuantizationType.Q4_0,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
}


def permuted(values: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys as llama.cpp stores those of Llama: `LlamaModel.permute` of its script."""
    return (
        values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    )


def stored_weights(family: str, weights: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Return weights by the names of llama.cpp, with what its script changes in them."""
    config = hub_folders.CONFIGS[family]
    architecture = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == ARCHITECTURES[family])
    names = gguf.get_tensor_name_map(architecture, 2)
    found = {}
    for name, one in (hub_folders.weights(family) if weights is None else weights).items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        key = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert key is not None, name
        value = one
        if ARCHITECTURES[family] == "llama" and ".q_proj." in name:
            value = permuted(one, config["num_attention_heads"])
        elif ARCHITECTURES[family] == "llama" and ".k_proj." in name:
            value = permuted(one, config["num_key_value_heads"])
        elif family.startswith("gemma") and name.endswith("norm.weight"):
            value = one + np.float32(1)
        elif family == "gpt2" and one.ndim == 2 and name.startswith("h."):
            value = one.T
        found[key] = np.ascontiguousarray(value, np.float32)
    return found


def write_gguf(
    path: Path,
    family: str = "llama",
    kind: str = "F32",
    *,
    tensors: Mapping[str, np.ndarray] | None = None,
    kinds: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tokenizer: str = "gpt2",
) -> Path:
    """Write a file.

    Args:
        path: Where.
        family: A key of `ARCHITECTURES`.
        kind: How matrices are stored.
        tensors: The weights by the names of llama.cpp; random ones unless given.
        kinds: How those of a name are stored, where it is otherwise.
        metadata: Fields to replace, or to leave out where they are `...`.
        tokenizer: `gpt2` for byte pairs, or `llama` for SentencePiece.
    """
    name, config = ARCHITECTURES[family], hub_folders.CONFIGS[family]
    writer = gguf.GGUFWriter(path, name)
    fields: dict[str, Any] = {
        f"{name}.context_length": 128,
        f"{name}.embedding_length": 64,
        f"{name}.block_count": 2,
        f"{name}.feed_forward_length": config.get("intermediate_size", 256),
        f"{name}.attention.head_count": 4,
    }
    if family == "gpt2":
        fields[f"{name}.attention.layer_norm_epsilon"] = 1e-5
    else:
        fields |= {
            f"{name}.attention.head_count_kv": 2,
            f"{name}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{name}.rope.freq_base": 10000.0,
            f"{name}.rope.dimension_count": config.get("head_dim", 16),
        }
    if "head_dim" in config:
        fields[f"{name}.attention.key_length"] = config["head_dim"]
    if family in ("gemma2", "gemma3_text"):
        fields[f"{name}.attention.sliding_window"] = 8
    fields |= {"tokenizer.chat_template": hub_folders.TEMPLATE, **_tokenizer(tokenizer), **(metadata or {})}
    for key, value in fields.items():
        if value is ...:
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)
    for key, one in (stored_weights(family) if tensors is None else tensors).items():
        wanted = "F32" if one.ndim == 1 or "position" in key else (kinds or {}).get(key, kind)
        data = gguf.quants.quantize(one, TYPES[wanted])
        writer.add_tensor(key, data, raw_dtype=TYPES[wanted])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


#: A SentencePiece vocabulary: its pieces with their scores, behind the special tokens and the bytes.
PIECES = [
    "\u2581",
    "t",
    "h",
    "e",
    "a",
    "n",
    "d",
    "i",
    "o",
    "r",
    "s",
    "th",
    "the",
    "\u2581the",
    "an",
    "and",
    "\u2581and",
    "in",
    "er",
]


def _tokenizer(kind: str) -> dict[str, Any]:
    if kind == "gpt2":
        document = hub_folders.tokenizer()
        tokens = list(document["model"]["vocab"])
        return {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if i < len(document["added_tokens"]) else 1 for i in range(len(tokens))],
            "tokenizer.ggml.merges": document["model"]["merges"],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.eot_token_id": 4,
            "tokenizer.ggml.add_bos_token": False,
        }
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    tokens += [f"zq{i}" for i in range(hub_folders.VOCABULARY - len(tokens))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    scores = [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
