"""Read a weight file's tensors as floats: what the stored bits stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.generation.config import BLOCK
from edge_infer.generation.weight_file import WeightFile

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.generation.config import DecoderConfig


def read_floats(path: Path) -> tuple[DecoderConfig, dict[str, np.ndarray]]:
    """Return the configuration, and every tensor by its name as float32."""
    found: dict[str, np.ndarray] = {}
    with WeightFile(path) as file:
        for name, one in file.tensors.items():
            if name == "program" or name.startswith("pad.") or name.endswith(".scales"):
                continue
            data = file.data[one.start : one.end]
            if one.dtype in ("F32", "F16"):
                found[name] = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[one.dtype]).astype(np.float32)
                found[name] = found[name].reshape(one.shape)
                continue
            scale = file.tensors[f"{name}.scales"]
            scales = np.frombuffer(file.data[scale.start : scale.end], "<f2").astype(np.float32)
            codes = np.frombuffer(data, np.uint8 if one.dtype == "U8" else np.int8)
            if one.dtype == "U8":
                pairs = codes.reshape(-1, BLOCK // 2)
                codes = np.concatenate([pairs & 15, pairs >> 4], 1).astype(np.int8) - 8
            values = codes.reshape(-1, BLOCK).astype(np.float32) * scales[:, None]
            found[name] = values.reshape(one.shape[0], -1)
    return file.config, found
