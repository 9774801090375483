"""Outputs to the body of an answer: JSON, and behind it the bytes of the outputs that were asked for in binary."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
import numpy

from edge_infer.formats.safetensors import write_strings
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.tensors.tensor import Array, TensorSpec

_encode = msgspec.json.Encoder().encode
_FEW = 64
_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)


def write_answer(
    model: str,
    version: str,
    request: InferRequest,
    outputs: Mapping[str, Array],
    specs: Sequence[TensorSpec],
    variant: str = "",
) -> tuple[bytes, int | None]:
    """Write the body of an answer: the outputs in the order that was asked for, else the model's.

    Args:
        model: The model's name.
        version: Its version.
        request: What was asked.
        outputs: The outputs by name.
        specs: The model's outputs.
        variant: What ran, where the model has several variants that take turns.

    Returns:
        The body, and how many bytes of it are JSON where binary tensors follow, else None.
    """
    names = request.outputs if request.outputs is not None else [spec.name for spec in specs]
    dtypes = {spec.name: spec.dtype for spec in specs}
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        document["id"] = request.id
    if variant:
        document["parameters"] = {"variant": variant}
    chunks: list[Any] = []
    entries = []
    for name in names:
        value = outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": DATATYPES[dtypes[name]], "shape": list(value.shape)}
        if name in request.binary:
            data = octets(value)
            entry["parameters"] = {"binary_data_size": len(data)}
            chunks.append(data)
        else:
            entry["data"] = flat(value)
        entries.append(entry)
    document["outputs"] = entries
    head = _encode(document)
    if not chunks:
        return head, None
    return b"".join((head, *chunks)), len(head)


def flat(value: Array) -> list[Any]:
    """Return the elements of an array in row-major order; what JSON cannot write is spelt."""
    if isinstance(value, Tensor):
        value = value.to_host()
        elements: list[Any] = value.reshape(-1).tolist() if value.shape else [value.item()]
        if value.dtype not in _FLOATS or all(map(isfinite, elements)):
            return elements
    else:
        elements = value.reshape(-1).tolist()
        if value.dtype.kind == "O" or value.dtype.kind == "U":
            return [str(text) for text in elements]
        if value.dtype.kind != "f" and value.dtype.isbuiltin:
            return elements
        # A call of numpy costs as much as a hundred numbers here.
        if all(map(isfinite, elements)) if len(elements) < _FEW else numpy.isfinite(value).all():
            return elements
    return [one if isfinite(one) else _spelt(one) for one in elements]


def _spelt(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def octets(value: Array) -> bytes | memoryview:
    """Return the bytes of an array, row-major, little-endian; texts each behind 4 bytes of length."""
    if not isinstance(value, Tensor):
        if value.dtype.isbuiltin and not value.dtype.hasobject and value.dtype.kind != "U":
            data: bytes = value.tobytes()
            return data
        value = to_tensor(value)
    value = value.to_host()
    return write_strings(value) if value.dtype is DType.STRING else value.data()
