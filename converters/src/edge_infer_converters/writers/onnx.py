"""Write an ONNX model as bytes, the same model always as the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def write(model: onnx.ModelProto) -> bytes:
    """Return the bytes of an `.onnx` file, weights inside; protobuf maps are sorted."""
    data: bytes = model.SerializeToString(deterministic=True)
    return data
