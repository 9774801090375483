"""Train the small language model of this folder, on the documentation of Python's standard library.

    python examples/prose/train.py [OUT.bundle] [--seconds 2400]

The text is what `help()` shows: the language's topics and the docstrings of the library's modules, 2 MB (licence:
PSF-2.0). The model is a Llama of a million weights. It has learnt how such sentences go on, and knows nothing.

Needs: pip install torch tokenizers edge-infer-converters
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from pydoc_data import topics

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

from edge_infer.formats.safetensors import write_tensors
from edge_infer.tensors.tensor import Tensor as Stored
from edge_infer_converters import convert

VOCABULARY, WINDOW, BATCH = 2048, 128, 8
HIDDEN, LAYERS, HEADS, KV_HEADS = 128, 4, 4, 2
HEAD = HIDDEN // HEADS
LEARNING_RATE, LEAST_SHARE, WARM_UP = 3e-3, 0.05, 0.05
MIN_CHARACTERS = 40
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 3 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}


def texts() -> list[str]:
    """Return the documentation that this Python brings along."""
    found = [topics.topics[name] for name in sorted(topics.topics)]
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "idlelib", "lib2to3"} & set(path.relative_to(root).parts):
            continue
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue  # files that are there to be wrong
        places = [one for one in ast.walk(tree) if isinstance(one, (ast.Module, ast.ClassDef, ast.FunctionDef))]
        found += [text for one in places if (text := ast.get_docstring(one)) and len(text) >= MIN_CHARACTERS]
    return found


class Layer(nn.Module):
    """Attention with rotated positions, then a gated net; the names are those of the Hub's Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(HIDDEN, HIDDEN, bias=False),
                "k_proj": nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False),
                "v_proj": nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False),
                "o_proj": nn.Linear(HIDDEN, HIDDEN, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(HIDDEN, 3 * HIDDEN, bias=False),
                "up_proj": nn.Linear(HIDDEN, 3 * HIDDEN, bias=False),
                "down_proj": nn.Linear(3 * HIDDEN, HIDDEN, bias=False),
            }
        )
        self.input_layernorm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, eps=1e-5)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Run the layer on [batch, length, hidden]."""
        batch, length, _ = x.shape
        normed = self.input_layernorm(x)
        heads = [self.self_attn[f"{name}_proj"](normed).view(batch, length, -1, HEAD).transpose(1, 2) for name in "qkv"]
        q, k = (one * cosine + rotated(one) * sine for one in heads[:2])
        mixed = nn.functional.scaled_dot_product_attention(q, k, heads[2], is_causal=True, enable_gqa=True)
        x = x + self.self_attn["o_proj"](mixed.transpose(1, 2).reshape(batch, length, HIDDEN))
        normed = self.post_attention_layernorm(x)
        gated = nn.functional.silu(self.mlp["gate_proj"](normed)) * self.mlp["up_proj"](normed)
        out: Tensor = x + self.mlp["down_proj"](gated)
        return out


def rotated(x: Tensor) -> Tensor:
    """Turn the halves of each head: the part of a rotation that the sine multiplies."""
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Llama(nn.Module):
    """A decoder whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for layer in self.layers:
            for weight in layer.parameters():
                if weight.dim() == 2:
                    nn.init.normal_(weight, std=0.02)
        angles = torch.outer(torch.arange(WINDOW), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(1, 2)
        self.cosine, self.sine = angles.cos(), angles.sin()

    def forward(self, tokens: Tensor) -> Tensor:
        """Give the logits of the token after each of [batch, length]."""
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cosine[: tokens.shape[1]], self.sine[: tokens.shape[1]])
        logits: Tensor = self.norm(x) @ self.embed_tokens.weight.T
        return logits


def train(folder: Path, seconds: float) -> None:
    """Train a model for some seconds and save it as the Hub's folders are."""
    learnt = texts()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(learnt, trainer)
    data = torch.tensor([one for text in learnt for one in [*tokenizer.encode(text).ids, 0]])
    print(f"{sum(map(len, learnt)) / 1e6:.1f} MB of text, {len(data)} tokens", file=sys.stderr)
    torch.manual_seed(0)
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.1)
    draw, began, share, steps, mean = np.random.default_rng(0), time.perf_counter(), 0.0, 0, math.log(VOCABULARY)
    while share < 1:
        starts = draw.integers(0, len(data) - WINDOW - 1, BATCH)
        windows = torch.stack([data[start : start + WINDOW + 1] for start in starts])
        for group in optimizer.param_groups:
            cosine = LEAST_SHARE + (1 - LEAST_SHARE) * (0.5 + 0.5 * math.cos(share * math.pi))
            group["lr"] = LEARNING_RATE * min(1.0, share / WARM_UP + 0.02) * cosine
        logits = model(windows[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), windows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        share, steps = (time.perf_counter() - began) / seconds, steps + 1
        mean += 0.02 * (float(loss.detach()) - mean)
        if steps % 200 == 0:
            print(f"{100 * share:.0f} %, {steps} steps, loss {mean:.2f}", file=sys.stderr, flush=True)
    print(f"{steps} steps of {BATCH * WINDOW} tokens, loss {mean:.2f}", file=sys.stderr)
    weights = {
        f"model.{name}": Stored(value.contiguous().numpy().tobytes(), "float32", tuple(value.shape))
        for name, value in model.state_dict().items()
    }
    (folder / "model.safetensors").write_bytes(write_tensors(weights))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", metavar="OUT.bundle", nargs="?", type=Path, default=Path("prose.bundle"))
    parser.add_argument("--seconds", type=float, default=2400, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder, options.seconds)
        convert(folder, options.output, name="prose", precision="int4", license="PSF-2.0", force=True)
    print(options.output)


if __name__ == "__main__":
    main()
