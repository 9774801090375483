"""Decoding, prefill and eight streams beside llama.cpp and onnxruntime-genai, in one run, all with the same weights.

    python -m venv PEERS && PEERS/bin/pip install llama-cpp-python onnxruntime-genai gguf  # compiles
    python benchmarks/generate_llama.py PEERS/bin/python [--genai FOLDER] [--only fp32] [--quick] [--json]

The model is that of `generate.py`: a random 47M Llama, here as a Hugging Face folder, which our `convert` and the
peers' tools read. `--genai` is what onnxruntime-genai's builder made of that folder (`--keep FOLDER` leaves it there;
the builder needs torch and transformers). Each side is a process with one thread that measures when it is told to, in
turn; times are of its processor. A ratio is the median of those of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from table import publish

from edge_infer.formats.safetensors import write_tensors
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer_converters import convert

_HERE = Path(__file__).parent
_HIDDEN, _LAYERS, _HEADS, _KV_HEADS, _HEAD, _MLP, _VOCABULARY = 576, 8, 9, 3, 64, 1536, 16384
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "torch_dtype": "float32",
    "vocab_size": _VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": _MLP,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _KV_HEADS,
    "head_dim": _HEAD,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_METRICS = {
    "short": ("decode at 16, tokens/s", 1),
    "long": ("decode at 512, tokens/s", 1),
    "prefill": ("prefill 512, tokens/s", 512),
    "streams": ("8 streams at once, tokens/s in all", 8),
}
#: By pair and metric: the ratio that the design asks.
TARGETS: dict[tuple[str, str], dict[str, float]] = {
    ("int4", "llama.cpp q4_0"): {"short": 0.9, "long": 0.9, "prefill": 1.0, "streams": 1.2},
    ("int8", "llama.cpp q8_0"): {"streams": 1.5},
    ("fp32", "llama.cpp f32"): {"streams": 1.4},
    ("int4", "onnxruntime-genai int4"): {"short": 1.0, "long": 1.0, "prefill": 1.25},
}


def write_folder(folder: Path) -> Path:
    """Write the model as a Hugging Face folder, with a tokenizer of bytes and fillers."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"model.norm.weight": (_HIDDEN,)}
    shapes |= dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (_VOCABULARY, _HIDDEN))
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}"
        for name, size in (("q", _HEADS), ("k", _KV_HEADS), ("v", _KV_HEADS)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (size * _HEAD, _HIDDEN)
        shapes[f"{at}.self_attn.o_proj.weight"] = (_HIDDEN, _HEADS * _HEAD)
        shapes |= {f"{at}.mlp.{name}_proj.weight": (_MLP, _HIDDEN) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (_HIDDEN, _MLP)
        for name in ("input", "post_attention"):
            shapes[f"{at}.{name}_layernorm.weight"] = (_HIDDEN,)
    tensors = {}
    for name, shape in shapes.items():
        drawn = random.standard_normal(shape, np.float32)
        drawn = 1 + drawn * 0.1 if len(shape) == 1 else drawn * (1.0 if "embed" in name else shape[1] ** -0.5)
        tensors[name] = Tensor(drawn.astype(np.float32).tobytes(), DType.FLOAT32, shape)
    (folder / "model.safetensors").write_bytes(write_tensors(tensors))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    alphabet = [*range(33, 127), *range(161, 173), *range(174, 324)]  # of bytes, as GPT-2 writes them
    for text in [*map(chr, alphabet), "ab", *(f"zq{i}" for i in range(_VOCABULARY))]:
        if len(vocabulary) < _VOCABULARY:
            vocabulary.setdefault(text, len(vocabulary))
    special = [
        {"id": i, "content": text, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for text, i in list(vocabulary.items())[:3]
    ]
    (folder / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": special,
                "normalizer": None,
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": True,
                },
                "post_processor": None,
                "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"], "unk_token": "<unk>"},
            }
        )
    )
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"})
    )
    return folder


class Side:
    """A process that measures when it is told to."""

    def __init__(self, name: str, words: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_HERE.parent)},
        )

    def measured(self) -> dict[str, float]:
        """Return milliseconds of the processor, by metric."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("measure\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} has ended with {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="the interpreter of the peers' environment")
    parser.add_argument("--genai", type=Path, help="what onnxruntime-genai's builder made")
    parser.add_argument("--keep", type=Path, help="where the model's files stay")
    parser.add_argument("--only", choices=("int4", "int8", "fp32"), help="one precision in place of all")
    parser.add_argument("--quick", action="store_true", help="three rounds, of int4 unless --only says another")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    rounds = 3 if given.quick else 7
    with tempfile.TemporaryDirectory() as temporary:
        place = given.keep or Path(temporary)
        folder, bundle = place / "llama", place / "llama.bundle"
        if not folder.exists():
            write_folder(folder)
        if not bundle.exists():
            convert(folder, bundle, precision="int4,int8,fp32")
        child = str(_HERE / "generate_llama_side.py")
        if not (place / "f32.gguf").exists():
            subprocess.run([given.python, child, "write", folder, place], check=True)
        only = given.only or ("int4" if given.quick else None)
        pairs = [one for one in (("int4", "q4_0"), ("int8", "q8_0"), ("fp32", "f32")) if only in (None, one[0])]
        sides: dict[str, Side] = {}
        for ours, theirs in pairs:
            sides[ours] = Side(ours, [sys.executable, child, "ours", str(bundle), ours])
            sides[f"llama.cpp {theirs}"] = Side(theirs, [given.python, child, "llama", str(place / f"{theirs}.gguf")])
        if given.genai:
            sides["onnxruntime-genai int4"] = Side("genai", [given.python, child, "genai", str(given.genai)])
        found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                found[name].append(side.measured())
        for side in sides.values():
            side.close()
    rows = []
    compared = [(ours, f"llama.cpp {theirs}") for ours, theirs in pairs]
    compared += [("int4", "onnxruntime-genai int4")] if given.genai else []
    for ours, peer in compared:
        rows += _rows(ours, peer, found[ours], found[peer])
    code = "import importlib.metadata as m; print(m.version('llama-cpp-python'), m.version('onnxruntime-genai'))"
    told = subprocess.run([given.python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    load = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()}"
    publish(
        rows,
        ("edge-infer",),
        as_json=given.json,
        versions={"llama-cpp-python": told[0], "onnxruntime-genai": told[1], "load": load},
    )


def _rows(ours: str, peer: str, own: list[dict[str, float]], other: list[dict[str, float]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for metric, (said, count) in _METRICS.items():
        if metric not in own[0] or metric not in other[0]:
            continue
        speeds, theirs = ([1000 * count / one[metric] for one in side] for side in (own, other))
        ratios = [one / more for one, more in zip(speeds, theirs, strict=True)]
        row: dict[str, Any] = {"name": f"native {ours}", "metric": said, "ours": round(statistics.median(speeds))}
        row |= {"peer_name": peer, "peer": round(statistics.median(theirs))}
        row |= {"ratio": round(statistics.median(ratios), 2), "spread": f"{min(ratios):.2f} to {max(ratios):.2f}"}
        target = TARGETS.get((ours, peer), {}).get(metric)
        if target is not None:
            row |= {"target": target, "met": max(ratios) >= target}
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
