"""What 4 and 8 bits cost a model that generates text, and what its conversion takes.

A small Llama that `trained_model.py` trained on the standard library's documentation is converted. Perplexity of
held-out documentation, by the kernels: the variants of `edge-infer convert` against the rounding of llama.cpp's Q4_0
and of ONNX Runtime's MatMulNBits at equal bytes, a head of 4 bits against one of 8, and the search within a budget on
other texts. Conversion runs on random
weights in the shape of SmolLM2-135M.

    python benchmarks/trained_model.py           # once
    python benchmarks/decoder_weights.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish
from trained_model import FOLDER, WINDOW, texts

from edge_infer.generation.decoder import Decoder
from edge_infer.generation.weight_file import Encoded, write_weight_file
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer.tensors.dtypes import DType
from edge_infer_converters import convert
from edge_infer_converters.decoder_run import encoding_of
from edge_infer_converters.sources.decoder.describe import describe
from edge_infer_converters.sources.decoder.shards import Shards
from edge_infer_converters.sources.decoder.tensors import source_tensors
from edge_infer_converters.writers.decoder.blocks import encode_rows
from tests.support.generation import hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.generation.weight_file import Encoding
    from edge_infer_converters.sources.decoder.tensors import SourceTensor

# The peak is the process's own: what `getrusage` says begins with that of its parent.
_CONVERT = """
import sys
from edge_infer_converters import convert
convert(sys.argv[1], sys.argv[2])
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def perplexity(file: Path, tokens: list[int], windows: int) -> float:
    """Return the perplexity of some windows of tokens, by the kernels."""
    decoder = Decoder.open(file, context=WINDOW)
    places, total, count = list(range(WINDOW)), 0.0, 0
    for start in range(0, min(len(tokens) - WINDOW, windows * WINDOW), WINDOW):
        part = tokens[start : start + WINDOW]
        decoder.run(part, [0] * WINDOW, places, places)
        for place in places[:-1]:
            logits = np.array(decoder.logits(place), np.float64)
            total += float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[part[place + 1]])
            count += 1
    decoder.close()
    return math.exp(total / count)


def by_hand(folder: Path, file: Path, encode: Callable[[SourceTensor, np.ndarray], Encoded]) -> Path:
    """Write a weight file whose tensors are encoded by a function."""
    described = describe(json.loads((folder / "config.json").read_text()))
    with Shards(folder) as shards:
        source = source_tensors(described, shards.tensors)
        tensors = [(one.name, encode(one, one.rows(0, one.shape[0]))) for one in source]
    for kind, one in described.rotations.items():
        tensors.append((f"rope.{kind}", Encoded("f32", one.shape, one.tobytes())))
    write_weight_file(file, described.config, tensors)
    return file


def rounded(tensor: SourceTensor, values: np.ndarray) -> Encoded:
    """Encode as llama.cpp's Q4_0 does, without a search (ggml, `quantize_row_q4_0_ref`)."""
    encoding = encoding_of(tensor, "int4")
    if encoding != "int4":
        return encoded(values, encoding)
    blocks = values.reshape(-1, 32)
    scales = (np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1) / -8).astype(np.float32)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    codes = np.minimum(15, (blocks * inverse + np.float32(8.5)).astype(np.int8)).astype(np.uint8)
    packed = codes[:, :16] | (codes[:, 16:] << 4)
    return Encoded("int4", values.shape, packed.tobytes(), scales.astype("<f2").tobytes())


def rounded_by_ort(tensor: SourceTensor, values: np.ndarray) -> Encoded:
    """Encode by ONNX Runtime's own rounding of MatMulNBits, symmetric in blocks of 32."""
    from onnxruntime.capi._pybind_state import quantize_matmul_4bits

    encoding = encoding_of(tensor, "int4")
    if encoding != "int4":
        return encoded(values, encoding)
    rows, columns = values.shape
    packed = np.zeros((rows, columns // 32, 16), np.uint8)
    scales, points = np.zeros(rows * columns // 32, np.float32), np.zeros(rows * (columns // 32 + 1) // 2, np.uint8)
    turned = np.ascontiguousarray(values.T, np.float32)
    quantize_matmul_4bits(packed, turned, scales, points, 32, rows, columns, True)
    # Neighbours share a byte there; here a value and the one 16 further do.
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(-1, 32)
    again = codes[:, :16] | (codes[:, 16:] << 4)
    return Encoded("int4", values.shape, again.tobytes(), scales.astype("<f2").tobytes())


def encoded(values: np.ndarray, encoding: Encoding) -> Encoded:
    """Encode as `edge-infer convert` does."""
    found = encode_rows(values, encoding)
    return Encoded(encoding, values.shape, found.values, found.scales or None)


def small_head(tensor: SourceTensor, values: np.ndarray) -> Encoded:
    """Encode as the int4 variant, with 4 bits for the head too; the embedding is the head of this model."""
    return encoded(values, "int4" if tensor.name in ("embedding", "head") else encoding_of(tensor, "int4"))


def write_large(folder: Path) -> None:
    """Write random weights in the shape of SmolLM2-135M."""
    hub_folders.CONFIGS["large"] = {
        **hub_folders.CONFIGS["llama"],
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
    draw = np.random.default_rng(0)
    tensors = {"model.embed_tokens.weight": draw.standard_normal((49152, 576), np.float32) * 0.1}
    tensors["model.norm.weight"] = np.ones(576, np.float32)
    shapes = {"self_attn.q_proj": (576, 576), "self_attn.k_proj": (192, 576), "self_attn.v_proj": (192, 576)}
    shapes |= {"self_attn.o_proj": (576, 576), "mlp.gate_proj": (1536, 576), "mlp.up_proj": (1536, 576)}
    shapes |= {"mlp.down_proj": (576, 1536)}
    for at in (f"model.layers.{layer}." for layer in range(30)):
        for name, shape in shapes.items():
            tensors[f"{at}{name}.weight"] = draw.standard_normal(shape, np.float32) * 0.04
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = np.ones(576, np.float32)
    hub_folders.write_folder(folder, "large", tensors=tensors, dtype=DType.BFLOAT16)
    (folder / "tokenizer.json").write_text(json.dumps(hub_folders.tokenizer(49152)))


def conversion(folder: Path) -> list[dict[str, Any]]:
    """Convert in a process of its own; return its time and memory."""
    nbytes = (folder / "model.safetensors").stat().st_size
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", _CONVERT, folder, folder.with_suffix(".bundle")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = int(done.stdout) * 1024 / nbytes
    name = "convert a folder of 135M, bfloat16"
    return [
        {
            "name": name,
            "metric": "s",
            "ours": elapsed,
            "target": 10.0,
            "met": elapsed <= 10,
            "note": f"CPU {cpu:.1f} s",
        },
        {"name": name, "metric": "peak memory by weights", "ours": peak, "target": 1.2, "met": peak <= 1.2},
    ]


def main() -> None:
    """Train, convert, measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder, held = FOLDER, texts()
        if not (folder / "trained.json").exists():
            raise SystemExit(f"{folder} has no trained model; make it: python benchmarks/trained_model.py")
        tokenizer = Tokenizer.from_bytes((folder / "tokenizer.json").read_bytes())
        some = held.held_out[::4] if given.quick else held.held_out
        tokens = [one for text in some for one in tokenizer.encode(text, truncation=None, padding=None).ids]
        text = Path(place) / "calibration.txt"
        text.write_text("\n\n".join(held.calibration))
        made = convert(folder, Path(place) / "trained.bundle", precision="fp32,fp16,int8,int4")
        windows = 20 if given.quick else 200
        found = {
            one.stem.removeprefix("model_"): perplexity(one, tokens, windows)
            for one in sorted((made.path / "decoder").iterdir())
        }
        found["q4_0"] = perplexity(by_hand(folder, Path(place) / "q4_0.safetensors", rounded), tokens, windows)
        by_ort = by_hand(folder, Path(place) / "ort.safetensors", rounded_by_ort)
        found["ort"] = perplexity(by_ort, tokens, windows)
        found["head"] = perplexity(by_hand(folder, Path(place) / "head.safetensors", small_head), tokens, windows)
        mixed = convert(folder, Path(place) / "mixed.bundle", calibration=text, max_loss="0.5%")
        found["mixed"] = perplexity(mixed.path / "decoder/model_mixed.safetensors", tokens, windows)
        files = [*(made.path / "decoder").iterdir(), *(mixed.path / "decoder").iterdir()]
        sizes = {one.stem.removeprefix("model_"): one.stat().st_size for one in files}
        sizes["head"] = (Path(place) / "head.safetensors").stat().st_size
        name = "perplexity of held-out documentation"
        for ours, peer, said in (
            ("int4", "q4_0", "llama.cpp's Q4_0 rounding, equal bytes"),
            ("int4", "ort", "ONNX Runtime's rounding, equal bytes"),
            ("int4", "fp32", "fp32"),
            ("int8", "fp32", "fp32"),
            ("fp16", "fp32", "fp32"),
            ("head", "int4", "int4 with a head of 8 bits"),
            ("mixed", "fp32", "fp32; --max-loss 0.5% on other texts"),
        ):
            ratio = found[ours] / found[peer]
            row = {"name": f"{name}, {ours}", "metric": "perplexity", "ours": found[ours], "peer_name": said}
            row |= {"peer": found[peer], "ratio": ratio, "note": f"{sizes[ours] / 1e6:.2f} MB"}
            rows.append(row | ({"target": 1.0, "met": ratio <= 1} if peer in ("q4_0", "ort") else {}))
        large = Path(place) / "large"
        write_large(large)
        rows += conversion(large)
    publish(rows, ["edge-infer", "numpy", "torch", "tokenizers"], as_json=given.json)


if __name__ == "__main__":
    main()
