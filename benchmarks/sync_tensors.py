"""Weights of a model as safetensors, in fp32, fp16 and int8: the files whose updates `sync.py` measures."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS = {"float32": "F32", "float16": "F16", "int8": "I8"}
_DTYPES = {word: np.dtype(name).newbyteorder("<") for name, word in _KINDS.items()}

Tensors = dict[str, "np.ndarray[Any, Any]"]


def safetensors(tensors: Tensors) -> bytes:
    """Write tensors as one file."""
    header: dict[str, Any] = {}
    pieces, end = [], 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _KINDS[str(array.dtype)], "shape": list(array.shape), "data_offsets": [start, end]}
        pieces.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
    text = json.dumps(header).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *pieces])


def read(data: bytes) -> Tensors:
    """Read what `safetensors` wrote."""
    size = 8 + int.from_bytes(data[:8], "little")
    found: Tensors = {}
    for name, entry in json.loads(data[8:size]).items():
        start, end = (size + one for one in entry["data_offsets"])
        found[name] = np.frombuffer(data[start:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def half(tensors: Tensors) -> Tensors:
    """Write weights as fp16."""
    return {name: array.astype(np.float16) for name, array in tensors.items()}


def scales(tensors: Tensors, *, per_channel: bool) -> Tensors:
    """Return the scale of each weight's int8 codes: one for all, or one for each output channel."""
    found: Tensors = {}
    for name, array in tensors.items():
        if array.ndim > 1:
            axes = tuple(range(1, array.ndim)) if per_channel else None
            largest = np.abs(array).max(axis=axes, keepdims=True)
            found[name] = np.maximum(largest / 127, 1e-12).astype(np.float32)
    return found


def int8(tensors: Tensors, by: Mapping[str, Any], factor: float = 1.0) -> Tensors:
    """Quantize weights symmetrically; biases and norms, which have one dimension, stay as they are.

    Args:
        tensors: The weights.
        by: The scales: those of the old weights for frozen ones, else their own.
        factor: What the scales are multiplied by, as other calibration data would move them.
    """
    found: Tensors = {}
    for name, array in tensors.items():
        if name not in by:
            found[name] = array
            continue
        scale = (by[name] * np.float32(factor)).astype(np.float32)
        found[name] = np.clip(np.rint(array / scale), -127, 127).astype(np.int8)
        found[f"{name}.scale"] = np.asarray(scale).reshape(-1)
    return found
