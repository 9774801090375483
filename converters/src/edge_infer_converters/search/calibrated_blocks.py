"""Encode the layers of a decoder in 4 bits by what a text puts into them, layer after layer.

The windows of a text pass through the layers in numpy, in float32. Each matrix is encoded by the inputs that reach it,
through the layers before it as they were encoded; its outputs are then computed with what the bits stand for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import AccuracyError
from edge_infer_converters.writers.decoder.compensated import compensate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from edge_infer.generation.config import DecoderConfig
    from edge_infer_converters.sources.decoder.tensors import SourceTensor
    from edge_infer_converters.writers.decoder.blocks import EncodedRows

# The sums of products of so many inputs take 540 MB in float64, in which all work on them is done; wider matrices keep
# the plain search.
_MOST_COLUMNS = 8192


class Calibrated(NamedTuple):
    """A tensor that was encoded.

    Attributes:
        name: The tensor's.
        rows: What the file holds.
    """

    name: str
    rows: EncodedRows


class CalibratedBlocks:
    """Encodes the matrices of the layers; iterate over it once.

    Args:
        config: What the decoder is.
        tensors: Its tensors, by name.
        rotations: The angular frequencies, by kind of layer.
        windows: Tokens, each window read from its first position.
        taken: The matrices to encode; others are used as they are.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, SourceTensor],
        rotations: Mapping[int, np.ndarray],
        windows: Sequence[Sequence[int]],
        taken: Collection[str],
    ) -> None:
        self._config, self._tensors, self._rotations = config, tensors, rotations
        self._taken = taken
        self._tokens = np.concatenate([np.asarray(one, np.int64) for one in windows])
        self._positions = np.concatenate([np.arange(len(one)) for one in windows])
        ends = np.cumsum([len(one) for one in windows]).tolist()
        self._parts = [slice(end - len(one), end) for one, end in zip(windows, ends, strict=True)]
        self._made: list[Calibrated] = []
        #: Behind the last layer, float32 [tokens, hidden size]; once all tensors are given.
        self.outputs = np.empty((0, config.hidden_size), np.float32)

    def __iter__(self) -> Iterator[Calibrated]:
        """Give the encoded tensors, those of a layer together."""
        config = self._config
        x = self._looked_up("embedding", self._tokens) * np.float32(config.embedding_scale)
        if config.positions == "learned":
            x = x + self._looked_up("positions", self._positions + config.position_offset)
        for layer in range(config.layers):
            with np.errstate(over="ignore", invalid="ignore"):  # inputs that are not finite are refused before
                x = self._layer(layer, x)
            yield from self._made
            self._made = []
        self.outputs = x

    def _layer(self, layer: int, x: np.ndarray) -> np.ndarray:
        name = f"layers.{layer}."
        given = self._norm(f"{name}attention_norm", x)
        attended = self._linear(f"{name}attention_output", self._attention(layer, given))
        if self._config.parallel:
            return np.asarray(x + attended + self._mlp(name, given))
        x = x + self._norm(f"{name}attention_post_norm", attended)
        return np.asarray(x + self._norm(f"{name}mlp_post_norm", self._mlp(name, self._norm(f"{name}mlp_norm", x))))

    def _attention(self, layer: int, x: np.ndarray) -> np.ndarray:
        config, name, kind = self._config, f"layers.{layer}.", self._config.layer_kinds[layer]
        packed = self._linear(f"{name}qkv", x).reshape(len(x), -1, config.head_size)
        queries, keys, values = np.split(packed, [config.heads, config.heads + config.kv_heads], axis=1)
        queries = self._rotated(self._norm(f"{name}q_norm", queries), kind) * np.float32(config.attention_scale)
        keys = self._rotated(self._norm(f"{name}k_norm", keys), kind)
        group, found = config.heads // config.kv_heads, np.empty_like(queries)
        for part in self._parts:
            ago = np.subtract.outer(self._positions[part], self._positions[part])
            is_hidden = (ago < 0) | ((ago >= config.sliding_window) & (kind == 1))
            for head in range(config.heads):
                scores = queries[part, head] @ keys[part, head // group].T
                scores = _capped(scores, config.attention_softcap)
                scores[is_hidden] = -np.inf
                shares = np.exp(scores - scores.max(-1, keepdims=True))
                found[part, head] = shares / shares.sum(-1, keepdims=True) @ values[part, head // group]
        return found.reshape(len(x), -1)

    def _rotated(self, x: np.ndarray, kind: int) -> np.ndarray:
        if self._config.positions != "rope":
            return x
        half = self._config.rotary_size // 2
        angles = (self._positions[:, None] * self._rotations[kind].astype(np.float64))[:, None]
        sine, cosine = np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)
        low, high, rest = np.split(x, [half, 2 * half], axis=-1)
        return np.concatenate([low * cosine - high * sine, high * cosine + low * sine, rest], axis=-1)

    def _mlp(self, name: str, x: np.ndarray) -> np.ndarray:
        values, bias = self._matrix(f"{name}up", x)
        inner = np.empty((len(x), len(values) // (2 if self._config.gated else 1)), np.float32)
        for part in self._parts:  # of all windows at once it would be four times as much
            inner[part] = self._within(x[part] @ values.T + bias)
        return self._linear(f"{name}down", inner)

    def _within(self, inner: np.ndarray) -> np.ndarray:
        if not self._config.gated:
            return self._activated(inner)
        gate, inner = np.split(inner, 2, axis=-1)
        return np.asarray(self._activated(gate) * inner)

    def _activated(self, x: np.ndarray) -> np.ndarray:
        if self._config.activation == "silu":
            return np.asarray(x * (np.tanh(x / 2) + 1) / 2)
        if self._config.activation == "relu":
            return np.asarray(np.maximum(x, 0))
        # That of tanh stands for the exact one too: they differ by a thousandth, which moves no sum of products.
        return np.asarray(x * 0.5 * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x * x * x))))

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        values, bias = self._matrix(name, x)
        return np.asarray(x @ values.T + bias)

    def _matrix(self, name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what multiplies some inputs and what is added: where it is encoded, what its bits stand for.

        Raises:
            AccuracyError: The text's inputs are not finite here.
        """
        tensor = self._tensors[f"{name}.weight"]
        if not np.isfinite(x).all():
            raise AccuracyError(
                f"A text gives NaN or infinite inputs to `{tensor.name}` in fp32",
                hint="leave --calibration out, or look for broken weights",
                tensor=tensor.name,
            )
        values = tensor.rows(0, tensor.shape[0])
        if tensor.name in self._taken and tensor.shape[1] <= _MOST_COLUMNS:
            rows, values = compensate(values, x)
            self._made.append(Calibrated(tensor.name, rows))
        return values, self._vector(f"{name}.bias", 0.0)

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        if f"{name}.weight" not in self._tensors:
            return x
        if self._config.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self._config.norm_epsilon))
        return np.asarray(x * self._vector(f"{name}.weight", 1.0) + self._vector(f"{name}.bias", 0.0))

    def _vector(self, name: str, otherwise: float) -> np.ndarray:
        tensor = self._tensors.get(name)
        return np.asarray(otherwise, np.float32) if tensor is None else tensor.rows(0, tensor.shape[0])

    def _looked_up(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return some rows of a table; the others are not read."""
        tensor, places = self._tensors[name], np.unique(rows)
        found = {int(place): tensor.rows(int(place), int(place) + 1)[0] for place in places}
        return np.stack([found[int(row)] for row in rows])


def _capped(x: np.ndarray, cap: float) -> np.ndarray:
    return np.asarray(np.float32(cap) * np.tanh(x / np.float32(cap))) if cap else x
