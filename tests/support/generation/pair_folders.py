"""Tiny Hugging Face folders of Whisper and of T5, with random weights, made by numpy without torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.formats.safetensors import write_tensors
from tests.support.generation import hub_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VOCABULARY = hub_folders.VOCABULARY
#: The first of the timestamps: 50 of them, and one for the end; special tokens stand before it.
NO_TIMESTAMPS = 268
CONFIGS: dict[str, dict[str, Any]] = {
    "whisper": {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": VOCABULARY,
        "num_mel_bins": 16,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 64,
        "max_source_positions": 50,
        "max_target_positions": 40,
        "decoder_start_token_id": 261,
        "bos_token_id": 260,
        "eos_token_id": 260,
        "pad_token_id": 260,
    },
    "t5": {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "feed_forward_proj": "relu",
        "decoder_start_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "task_specific_params": {"summarization": {"prefix": "summarize: "}},
    },
    "flan": {
        "model_type": "t5",
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 48,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 4,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    },
}
#: What `generation_config.json` of a Whisper says.
ADVICE: dict[str, Any] = {
    "decoder_start_token_id": 261,
    "eos_token_id": 260,
    "pad_token_id": 260,
    "bos_token_id": 260,
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 262, "<|de|>": 263, "<|fr|>": 264},
    "task_to_id": {"transcribe": 265, "translate": 266},
    "no_timestamps_token_id": NO_TIMESTAMPS,
    "max_initial_timestamp_index": 20,
    "suppress_tokens": [7, 8, 9],
    "begin_suppress_tokens": [220, 260],
    "max_length": 40,
    "return_timestamps": False,
}
FEATURES = {"feature_size": 16, "sampling_rate": 16000, "n_fft": 400, "hop_length": 160, "chunk_length": 1}


#: The same with weights that name times often, so that windows are cut by them.
CONFIGS["whisper-times"] = CONFIGS["whisper"]


def shapes(kind: str) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a model with their shapes."""
    return _whisper(CONFIGS[kind]) if kind.startswith("whisper") else _t5(CONFIGS[kind])


def _whisper(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, found = config["d_model"], dict[str, tuple[int, ...]]()

    def linear(name: str, rows: int, columns: int, *, bias: bool = True) -> None:
        found[f"{name}.weight"] = (rows, columns)
        if bias:
            found[f"{name}.bias"] = (rows,)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = found[f"{name}.bias"] = (width,)

    for number, channels in ((1, config["num_mel_bins"]), (2, width)):
        found[f"model.encoder.conv{number}.weight"] = (width, channels, 3)
        found[f"model.encoder.conv{number}.bias"] = (width,)
    found["model.encoder.embed_positions.weight"] = (config["max_source_positions"], width)
    found["model.decoder.embed_positions.weight"] = (config["max_target_positions"], width)
    found["model.decoder.embed_tokens.weight"] = (config["vocab_size"], width)
    for side in ("encoder", "decoder"):
        for layer in range(config[f"{side}_layers"]):
            at = f"model.{side}.layers.{layer}"
            for part in ("self_attn", *(["encoder_attn"] if side == "decoder" else [])):
                norm(f"{at}.{part}_layer_norm")
                for one in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{at}.{part}.{one}", width, width, bias=one != "k_proj")
            norm(f"{at}.final_layer_norm")
            linear(f"{at}.fc1", config[f"{side}_ffn_dim"], width)
            linear(f"{at}.fc2", width, config[f"{side}_ffn_dim"])
        norm(f"model.{side}.layer_norm")
    return found


def _t5(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, inner = config["d_model"], config["num_heads"] * config["d_kv"]
    found: dict[str, tuple[int, ...]] = {"shared.weight": (config["vocab_size"], width)}
    is_gated = config["feed_forward_proj"].startswith("gated")
    if not config.get("tie_word_embeddings", True):
        found["lm_head.weight"] = (config["vocab_size"], width)
    for side in ("encoder", "decoder"):
        for layer in range(
            config.get(f"num_{side}_layers" if side == "decoder" else "num_layers", config["num_layers"])
        ):
            at = f"{side}.block.{layer}.layer"
            parts = ["SelfAttention", *(["EncDecAttention"] if side == "decoder" else [])]
            for number, part in enumerate(parts):
                found[f"{at}.{number}.layer_norm.weight"] = (width,)
                for one in "qkv":
                    found[f"{at}.{number}.{part}.{one}.weight"] = (inner, width)
                found[f"{at}.{number}.{part}.o.weight"] = (width, inner)
            if layer == 0:
                found[f"{at}.0.SelfAttention.relative_attention_bias.weight"] = (32, config["num_heads"])
            found[f"{at}.{len(parts)}.layer_norm.weight"] = (width,)
            for one in ("wi_0", "wi_1") if is_gated else ("wi",):
                found[f"{at}.{len(parts)}.DenseReluDense.{one}.weight"] = (config["d_ff"], width)
            found[f"{at}.{len(parts)}.DenseReluDense.wo.weight"] = (width, config["d_ff"])
        found[f"{side}.final_layer_norm.weight"] = (width,)
    return found


def weights(kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights of a model."""
    draw, found = np.random.default_rng(seed), {}
    for name, shape in shapes(kind).items():
        plus = 1.0 if name.endswith("norm.weight") else 0.0
        scale = 1.0 if shape[0] == VOCABULARY else 0.1 if len(shape) == 1 else 0.3
        found[name] = (draw.standard_normal(shape) * scale + plus).astype(np.float32)
    if kind == "whisper-times":
        found["model.decoder.embed_tokens.weight"][NO_TIMESTAMPS + 1 :] *= 1.3
        found["model.decoder.embed_positions.weight"] *= 5
    return found


def tokenizer(kind: str) -> dict[str, Any]:
    """Return the tokenizer of a model: bytes, with the special tokens of Whisper."""
    document = hub_folders.tokenizer()
    if not kind.startswith("whisper"):
        return document
    special = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|en|>",
        "<|de|>",
        "<|fr|>",
        "<|transcribe|>",
        "<|translate|>",
    ]
    special += ["<|nospeech|>", "<|notimestamps|>"]
    names = {260 + i: one for i, one in enumerate(special)}
    names |= {NO_TIMESTAMPS + 1 + i: f"<|{i * 0.02:.2f}|>" for i in range(51)}
    vocabulary = {one: i for one, i in document["model"]["vocab"].items() if i not in names}
    kept = set(vocabulary)
    document["model"]["vocab"] = vocabulary | {one: i for i, one in names.items()}
    document["model"]["merges"] = [
        one
        for one in document["model"]["merges"]
        if one.replace(" ", "") in kept and all(p in kept for p in one.split(" "))
    ]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document["added_tokens"] = [
        {"id": i, "content": one, **flags, "special": i <= NO_TIMESTAMPS} for i, one in names.items()
    ]
    return document


def write_pair(
    folder: Path,
    kind: str = "whisper",
    *,
    changes: Mapping[str, Any] | None = None,
    advice: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a folder.

    Args:
        folder: Where; it is made.
        kind: A key of `CONFIGS`.
        changes: Fields of `config.json` to replace, or to leave out where they are `...`.
        advice: Those of `generation_config.json`.
        features: Those of `preprocessor_config.json`.
        tensors: The weights; random ones unless given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {"config.json": {**CONFIGS[kind], **(changes or {})}, "tokenizer.json": tokenizer(kind)}
    if kind.startswith("whisper"):
        files["generation_config.json"] = {**ADVICE, **(advice or {})}
        files["preprocessor_config.json"] = {**FEATURES, **(features or {})}
    for name, document in files.items():
        (folder / name).write_text(json.dumps({key: one for key, one in document.items() if one is not ...}))
    made = weights(kind) if tensors is None else tensors
    data = write_tensors({name: hub_folders.stored(one) for name, one in made.items()})
    (folder / "model.safetensors").write_bytes(data)
    return folder
