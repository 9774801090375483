"""Write a folder of each family with random weights by transformers, and its logits: run in a process of its own.

python tests/support/generation/transformers_folders.py FOLDER [CASE ...]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

BASE = {
    "vocab_size": 300,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
PLAIN = {"rope_type": "default", "rope_theta": 100000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 64,
    "short_factor": [1.0 + i / 20 for i in range(12)],
    "long_factor": [2.0 + i for i in range(12)],
    "partial_rotary_factor": 0.75,
}
#: By case the class of the configuration, and what it is made of.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("LlamaConfig", {**BASE, "tie_word_embeddings": False, "rope_parameters": PLAIN}),
    "llama3": ("LlamaConfig", {**BASE, "tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "llama-biases": ("LlamaConfig", {**BASE, "attention_bias": True, "mlp_bias": True, "rope_parameters": PLAIN}),
    "llama-linear": ("LlamaConfig", {**BASE, "rope_parameters": {**PLAIN, "rope_type": "linear", "factor": 4.0}}),
    "smollm2": ("LlamaConfig", {**BASE, "tie_word_embeddings": True, "rope_parameters": PLAIN}),
    "smollm3": ("SmolLM3Config", {**BASE, "rope_parameters": PLAIN, "pad_token_id": 0}),
    "mistral": ("MistralConfig", {**BASE, "sliding_window": None}),
    "mistral-window": ("MistralConfig", {**BASE, "sliding_window": 8}),
    "qwen2": ("Qwen2Config", {**BASE, "tie_word_embeddings": True, "rope_parameters": PLAIN}),
    "qwen2-window": ("Qwen2Config", {**BASE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    "qwen3": ("Qwen3Config", {**BASE, "head_dim": 48, "rope_parameters": PLAIN}),
    "qwen3-yarn": ("Qwen3Config", {**BASE, "head_dim": 32, "rope_parameters": YARN}),
    "gemma": ("GemmaConfig", {**BASE, "head_dim": 32}),
    "gemma2": ("Gemma2Config", {**BASE, "head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 24}),
    "gemma3": ("Gemma3TextConfig", {**BASE, "head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 24}),
    "phi3": ("Phi3Config", {**BASE, "pad_token_id": 0, "sliding_window": None}),
    "phi3-long": (
        "Phi3Config",
        {**BASE, "pad_token_id": 0, "original_max_position_embeddings": 64, "rope_parameters": LONG},
    ),
    "phi": ("PhiConfig", {**BASE, "partial_rotary_factor": 0.5}),
    "granite": (
        "GraniteConfig",
        {
            **BASE,
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "logits_scaling": 5.0,
            "tie_word_embeddings": True,
        },
    ),
    "stablelm": ("StableLmConfig", {**BASE, "partial_rotary_factor": 0.25, "use_qkv_bias": True}),
    "starcoder2": ("Starcoder2Config", {**BASE, "sliding_window": 8}),
    "gpt_neo": (
        "GPTNeoConfig",
        {
            "vocab_size": 300,
            "hidden_size": 128,
            "num_layers": 4,
            "num_heads": 4,
            "max_position_embeddings": 256,
            "window_size": 8,
            "attention_types": [[["global", "local"], 2]],
        },
    ),
    "gpt2": ("GPT2Config", {"vocab_size": 300, "n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 256}),
    "opt": (
        "OPTConfig",
        {
            "vocab_size": 300,
            "hidden_size": 128,
            "ffn_dim": 160,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 256,
            "word_embed_proj_dim": 128,
        },
    ),
}
LENGTH = 24


def main(folder: Path, cases: list[str]) -> None:
    """Write `CASE/` and `CASE.npz` for each case."""
    import torch
    import transformers

    torch.set_num_threads(1)
    for case in cases or CASES:
        torch.manual_seed(sum(case.encode()))
        kind, given = CASES[case]
        config = getattr(transformers, kind)(**given)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn_like(parameter)
                is_table = parameter.shape[0] == BASE["vocab_size"]
                parameter.copy_(parameter + noise * 0.1 if parameter.ndim == 1 else noise * (0.5 if is_table else 0.08))
            tokens = np.random.default_rng(0).integers(3, 299, (2, LENGTH))
            logits = model(torch.tensor(tokens), use_cache=False).logits.numpy()
        model.save_pretrained(folder / case)
        np.savez(folder / f"{case}.npz", tokens=tokens, logits=logits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
