"""Random decoders for tests: tensors quantised by plain rounding, and the values that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.generation.config import BLOCK, DecoderConfig
from edge_infer.generation.weight_file import Encoded, Encoding, tensor_shapes, write_weight_file

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class RandomDecoder:
    """A decoder and the values that its file stands for."""

    config: DecoderConfig
    tensors: list[tuple[str, Encoded]]
    values: dict[str, np.ndarray]

    def write(self, path: Path) -> Path:
        write_weight_file(path, self.config, self.tensors)
        return path


def encode(values: np.ndarray, encoding: Encoding) -> tuple[Encoded, np.ndarray]:
    """Encode a matrix or vector; returns it and the values that the encoding stands for."""
    shape = values.shape
    if encoding == "f32":
        return Encoded("f32", shape, values.astype("<f4").tobytes()), values.astype(np.float32)
    if encoding == "f16":
        half = values.astype("<f2")
        return Encoded("f16", shape, half.tobytes()), half.astype(np.float32)
    blocks = values.reshape(shape[0], -1, BLOCK).astype(np.float32)
    scales = (np.abs(blocks).max(axis=2) / (127 if encoding == "int8" else 7)).astype("<f2")
    wide = scales.astype(np.float32)[:, :, None]
    low, high = (-127, 127) if encoding == "int8" else (-8, 7)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.clip(np.rint(np.where(wide > 0, blocks / wide, 0)), low, high).astype(np.int8)
    meant = (whole * wide).astype(np.float32).reshape(shape)
    if encoding == "int8":
        return Encoded("int8", shape, whole.tobytes(), scales.tobytes()), meant
    code = (whole + 8).astype(np.uint8)
    packed = code[:, :, :16] | (code[:, :, 16:] << 4)
    return Encoded("int4", shape, packed.tobytes(), scales.tobytes()), meant


def random_decoder(
    config: DecoderConfig,
    encoding: Encoding = "f32",
    *,
    seed: int = 0,
    optional: frozenset[str] = frozenset(),
    embedding: Encoding | None = None,
) -> RandomDecoder:
    """Make a decoder with random weights.

    Args:
        config: Its configuration.
        encoding: Of its matrices; `f16` where blocks do not divide its columns.
        seed: Of the random numbers.
        optional: The optional tensors that it has: names without `layers.N.`.
        embedding: The encoding of the embedding, where it is another.
    """
    draw = np.random.default_rng(seed)
    tensors, values = [], {}
    for name, (shape, is_needed) in tensor_shapes(config).items():
        short = name.split(".", 2)[2] if name.startswith("layers.") else name
        if not is_needed and short not in optional:
            continue
        if name.startswith("rope."):
            value = 10000.0 ** (-np.arange(shape[0]) / max(shape[0], 1)) * (1 if name == "rope.0" else 0.25)
        elif len(shape) == 1:
            value = draw.standard_normal(shape) * 0.1 + (short.endswith("norm.weight"))
        else:
            value = draw.standard_normal(shape) * (1 if name in ("embedding", "positions") else shape[1] ** -0.5)
        of: Encoding = "f32" if len(shape) == 1 else (embedding or encoding) if name == "embedding" else encoding
        if of.startswith("int") and shape[1] % BLOCK:
            of = "f16"
        encoded, meant = encode(value.astype(np.float32), of)
        tensors.append((name, encoded))
        values[name] = meant
    return RandomDecoder(config, tensors, values)
