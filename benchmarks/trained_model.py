"""A small Llama, trained here on the standard library's documentation, so that perplexity means something.

Its texts are the topics of `help()` and the documentation strings of the standard library's files; every tenth text is
held out, and the one before it calibrates. It trains once, for so many seconds of one processor, into `.bench/trained`.

    pip install --target .bench/transformers --no-deps transformers safetensors huggingface-hub regex requests pyyaml \
        tqdm packaging filelock typing-extensions fsspec
    nice python benchmarks/trained_model.py [FOLDER] [--seconds 840]
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import sys
import sysconfig
import time
from pathlib import Path
from pydoc_data import topics
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".bench/trained"
sys.path.append(str(ROOT / ".bench/transformers"))

VOCABULARY, WINDOW, BATCH = 2048, 128, 8


class Texts(NamedTuple):
    """Texts of documentation: those that a model learns, that calibrate it, and that judge it."""

    learnt: list[str]
    calibration: list[str]
    held_out: list[str]


def texts() -> Texts:
    """Return the topics of `help()` and the documentation strings of the standard library, in the order of names."""
    found = [topics.topics[name] for name in sorted(topics.topics)]
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if parts[0] in ("site-packages", "dist-packages") or {"test", "tests", "idle_test"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # a file of the tests of lib2to3
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        said = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        if any(said):
            found.append("\n\n".join(one for one in said if one))
    learnt = [one for i, one in enumerate(found) if i % 10 not in (8, 9)]
    return Texts(learnt, found[8::10], found[9::10])


def train(folder: Path, seconds: float) -> None:
    """Train a model for some seconds of the processor and save it with its tokenizer."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    learnt = texts().learnt
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(learnt, trainer)
    data = torch.tensor([one for text in learnt for one in [*tokenizer.encode(text).ids, 0]])
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, fused=True)
    draw, began, share, steps, recent = np.random.default_rng(0), time.process_time(), 0.0, 0, 8.0
    while share < 1:
        starts = draw.integers(0, len(data) - WINDOW, BATCH)
        batch = torch.stack([data[start : start + WINDOW] for start in starts])
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, share * 20 + 0.02) * (0.02 + 0.98 * math.cos(share * math.pi / 2))
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        share, steps = (time.process_time() - began) / seconds, steps + 1
        recent = 0.99 * recent + 0.01 * float(loss.detach())
        if steps % 200 == 0:
            print(f"{steps} steps, {share:.0%}, loss {recent:.3f}", file=sys.stderr, flush=True)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    done = {"seconds": seconds, "steps": steps, "tokens": len(data), "loss": recent}
    (folder / "trained.json").write_text(json.dumps(done))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--seconds", type=float, default=840)
    given = parser.parse_args()
    train(given.folder, given.seconds)


if __name__ == "__main__":
    main()
