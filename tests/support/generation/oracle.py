"""A decoder in numpy: the logits that a configuration and its tensors mean, computed plainly in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.generation.config import DecoderConfig

    Array = np.ndarray[Any, np.dtype[Any]]


class Oracle:
    """Computes the logits of a decoder, for tests to compare with.

    Args:
        config: What the decoder is.
        tensors: Its tensors as float arrays, by the names of `edge_infer.generation.config`.

    >>> from edge_infer.generation.config import DecoderConfig
    >>> config = DecoderConfig("llama", 4, 2, 0, 1, 1, 2, 2, 8, layer_kinds=())
    >>> Oracle(config, {"embedding": np.eye(4, 2), "final_norm.weight": np.ones(2)}).logits([0, 1]).shape
    (2, 4)
    """

    def __init__(self, config: DecoderConfig, tensors: Mapping[str, Array]) -> None:
        self.config = config
        self.tensors = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
        self._keys: list[Array] = []
        self._values: list[Array] = []
        self.reset()

    def reset(self) -> None:
        """Forget the tokens so far."""
        shape = (0, self.config.kv_heads, self.config.head_size)
        self._keys = [np.zeros(shape) for _ in range(self.config.layers)]
        self._values = [np.zeros(shape) for _ in range(self.config.layers)]

    def logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits [tokens, vocab_size] of some tokens alone, the first at position 0."""
        self.reset()
        return self.step(tokens)

    def step(self, tokens: Sequence[int]) -> Array:
        """Return the logits [tokens, vocab_size] of further tokens, behind all that were given since `reset`."""
        config = self.config
        start = len(self._keys[0]) if config.layers else 0
        positions = np.arange(start, start + len(tokens))
        x = self.tensors["embedding"][np.asarray(tokens, int)] * config.embedding_scale
        if config.positions == "learned":
            x = x + self.tensors["positions"][positions + config.position_offset]
        for layer in range(config.layers):
            x = self._layer(layer, x, positions)
        x = self._norm("final_norm", x)
        head = self.tensors.get("head", self.tensors["embedding"])
        found = x @ head.T + self.tensors.get("head.bias", 0.0)
        return _capped(found, config.final_softcap)

    def _layer(self, layer: int, x: Array, positions: Array) -> Array:
        name = f"layers.{layer}."
        given = self._norm(f"{name}attention_norm", x)
        attended = self._linear(f"{name}attention_output", self._attention(layer, given, positions))
        if self.config.parallel:
            return np.asarray(x + attended + self._mlp(name, given))
        x = x + self._norm(f"{name}attention_post_norm", attended)
        return np.asarray(x + self._norm(f"{name}mlp_post_norm", self._mlp(name, self._norm(f"{name}mlp_norm", x))))

    def _attention(self, layer: int, x: Array, positions: Array) -> Array:
        config, name = self.config, f"layers.{layer}."
        size, groups = config.head_size, config.heads // config.kv_heads
        kind = config.layer_kinds[layer]
        packed = self._linear(f"{name}qkv", x).reshape(len(x), -1, size)
        queries, keys, values = np.split(packed, [config.heads, config.heads + config.kv_heads], axis=1)
        queries = self._rotated(self._norm(f"{name}q_norm", queries), positions, kind)
        keys = self._rotated(self._norm(f"{name}k_norm", keys), positions, kind)
        keys = self._keys[layer] = np.concatenate([self._keys[layer], keys])
        values = self._values[layer] = np.concatenate([self._values[layer], values])
        scores = np.einsum("qhd,khd->hqk", queries, np.repeat(keys, groups, 1)) * config.attention_scale
        scores = _capped(scores, config.attention_softcap)
        ago = positions[:, None] - np.arange(len(keys))[None]
        is_seen = (ago >= 0) & ((ago < config.sliding_window) | (kind != 1))
        scores = np.where(is_seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return np.asarray(np.einsum("hqk,khd->qhd", shares, np.repeat(values, groups, 1)).reshape(len(x), -1))

    def _rotated(self, x: Array, positions: Array, kind: int) -> Array:
        if self.config.positions != "rope":
            return x
        half = self.config.rotary_size // 2
        angles = (positions[:, None] * self.tensors[f"rope.{kind}"][None])[:, None]
        low, high, rest = np.split(x, [half, 2 * half], axis=-1)
        sine, cosine = np.sin(angles), np.cos(angles)
        return np.concatenate([low * cosine - high * sine, high * cosine + low * sine, rest], axis=-1)

    def _mlp(self, name: str, x: Array) -> Array:
        inner = self._linear(f"{name}up", x)
        if self.config.gated:
            gate, inner = np.split(inner, 2, axis=-1)
            return self._linear(f"{name}down", self._activated(gate) * inner)
        return self._linear(f"{name}down", self._activated(inner))

    def _activated(self, x: Array) -> Array:
        match self.config.activation:
            case "silu":
                return np.asarray(x / (1 + np.exp(-x)))
            case "relu":
                return np.maximum(x, 0)
            case "gelu":
                return np.asarray(x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))))
            case "gelu_tanh":
                return np.asarray(x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))

    def _linear(self, name: str, x: Array) -> Array:
        return np.asarray(x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0))

    def _norm(self, name: str, x: Array) -> Array:
        """Normalise the last axis; what has no weight is left as it is."""
        weight = self.tensors.get(f"{name}.weight")
        if weight is None:
            return x
        if self.config.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config.norm_epsilon)
        return np.asarray(x * weight + self.tensors.get(f"{name}.bias", 0.0))


def _capped(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap) if cap else x
