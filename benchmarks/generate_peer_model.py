"""Write the random Llama of `generate.py` as ONNX files of peers: float32, and quantised as their tools do.

The graph has the form that transformers.js reads: tokens and the cached keys and values in, logits of the last token
and the grown cache out. `q8` is ONNX Runtime's dynamic quantisation, `q4` its MatMulNBits in blocks of 32.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from torch import Tensor, nn

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP = 16384, 576, 8, 9, 3, 64, 1536


class Layer(nn.Module):
    """One layer over a growing cache."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(HIDDEN)) for _ in range(2)])
        self.query = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.key = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.value = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.output = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate, self.up = (nn.Linear(HIDDEN, MLP, bias=False) for _ in range(2))
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(
        self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give the new rows, and the cache with them."""
        rows = x.shape[1]
        normed = _norm(x, self.norms[0])
        query = _turned(self.query(normed).view(1, rows, HEADS, HEAD).transpose(1, 2), cosine, sine)
        key = _turned(self.key(normed).view(1, rows, KV_HEADS, HEAD).transpose(1, 2), cosine, sine)
        keys = torch.cat([keys, key], 2)
        values = torch.cat([values, self.value(normed).view(1, rows, KV_HEADS, HEAD).transpose(1, 2)], 2)
        grouped = query.reshape(1, KV_HEADS, HEADS // KV_HEADS * rows, HEAD)
        scores = (grouped @ keys.transpose(2, 3) * HEAD**-0.5).view(1, HEADS, rows, -1) + mask
        weights = torch.softmax(scores, -1).view(1, KV_HEADS, HEADS // KV_HEADS * rows, -1)
        mixed = (weights @ values).view(1, HEADS, rows, HEAD).transpose(1, 2).reshape(1, rows, HEADS * HEAD)
        x = x + self.output(mixed)
        normed = _norm(x, self.norms[1])
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed)), keys, values


class Model(nn.Module):
    """All layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(HIDDEN))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.speeds: Tensor
        self.register_buffer("speeds", 10000.0 ** (-torch.arange(HEAD // 2) / (HEAD // 2)))

    def forward(self, tokens: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """Give the last token's logits, and the cache."""
        rows, before = tokens.shape[1], cache[0].shape[2]
        places = torch.arange(before, before + rows)
        angles = places[:, None] * self.speeds[None]
        cosine, sine = torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)
        mask = torch.where(torch.arange(before + rows)[None] <= places[:, None], 0.0, float("-inf"))
        x, grown = self.embedding(tokens), []
        for index, layer in enumerate(self.layers):
            x, keys, values = layer(x, cosine, sine, mask, cache[2 * index], cache[2 * index + 1])
            grown += [keys, values]
        return (self.head(_norm(x[:, -1:], self.norm)), *grown)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def write(folder: Path) -> None:
    """Write `fp32.onnx`, `q8.onnx` and `q4.onnx`."""
    torch.manual_seed(0)
    logging.disable(logging.WARNING)
    names = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("key", "value")]
    empty = [torch.zeros(1, KV_HEADS, 3, HEAD) for _ in names]
    axes = (
        {"tokens": {1: "rows"}}
        | {name: {2: "before"} for name in names}
        | {f"new_{name}": {2: "all"} for name in names}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            *(Model().eval(), (torch.zeros(1, 5, dtype=torch.int64), *empty), folder / "fp32.onnx"),
            input_names=["tokens", *names],
            output_names=["logits", *(f"new_{name}" for name in names)],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
    quantize_dynamic(
        folder / "fp32.onnx", folder / "q8.onnx", weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"]
    )
    blocks = MatMulNBitsQuantizer(onnx.load(folder / "fp32.onnx"), block_size=32, is_symmetric=True, accuracy_level=4)
    blocks.process()
    blocks.model.save_model_to_file(str(folder / "q4.onnx"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
