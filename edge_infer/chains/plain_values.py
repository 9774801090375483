"""The values of a chain as JSON that gives the same values back, and their digests: for caches."""

from __future__ import annotations

import json
import os
from array import array
from base64 import b64decode, b64encode
from typing import Any

from edge_infer.platform.hashing import sha256
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.image.image import Image
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

#: What a value that is not JSON is written as: an object of one key, which begins with this.
_MARK = "$"


def written(value: Any) -> bytes:
    """Write a value of a chain.

    Raises:
        TypeError: It is of a kind that no step gives.
    """
    return json.dumps(_out(value), ensure_ascii=False, separators=(",", ":")).encode()


def read(data: bytes) -> Any:
    """Read what `written` wrote.

    Raises:
        ValueError: It is damaged.
    """
    try:
        return _in(json.loads(data))
    except (KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError(f"a value of a chain is damaged: {error}") from error


def _out(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.dtype is DType.STRING:
            return {"$texts": [list(value.shape), value.reshape(-1).tolist()]}
        return {"$tensor": [str(value.dtype), list(value.shape), b64encode(bytes(value.data())).decode()]}
    if isinstance(value, Image):
        return {"$image": [value.width, value.height, value.channels, b64encode(value.data).decode()]}
    if isinstance(value, Sound):
        return {"$sound": [value.rate, b64encode(value.samples.tobytes()).decode()]}
    if isinstance(value, dict):
        if any(key.startswith(_MARK) for key in value):
            return {"$object": [[key, _out(one)] for key, one in value.items()]}
        return {key: _out(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_out(one) for one in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"a chain has no value of {type(value).__name__}")


def _in(value: Any) -> Any:
    if isinstance(value, list):
        return [_in(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), "")
    if not kind.startswith(_MARK):
        return {key: _in(one) for key, one in value.items()}
    parts = value[kind]
    if kind == "$tensor":
        return Tensor(b64decode(parts[2]), DType.parse(parts[0]), tuple(parts[1]))
    if kind == "$texts":
        return Tensor(parts[1], DType.STRING, tuple(parts[0]))
    if kind == "$image":
        return Image(b64decode(parts[3]), parts[0], parts[1], parts[2])
    if kind == "$sound":
        return Sound(array("f", b64decode(parts[1])), parts[0])
    if kind == "$object":
        return {key: _in(one) for key, one in parts}
    raise ValueError(f"a value of a chain is damaged: `{kind}`")


def digest(value: Any) -> str | None:
    """Return the SHA-256 of a value that a step reads; None of one that has none, such as a picture of another package.

    A path has none either: what lies there may change.
    """
    if isinstance(value, (bytes, bytearray)):
        return sha256(b"bytes " + bytes(value))
    if isinstance(value, array):
        return sha256(f"array {value.typecode} ".encode() + value.tobytes())
    if isinstance(value, os.PathLike):
        return None
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, Tensor):
        return sha256(b"array " + written(to_tensor(value)))
    if isinstance(value, dict) and "sampling_rate" in value:
        inner = digest(value.get("array", value.get("raw")))
        return None if inner is None else sha256(f"sound {value['sampling_rate']} {inner}".encode())
    try:
        return sha256(b"value " + written(value))
    except (TypeError, ValueError):
        return None
