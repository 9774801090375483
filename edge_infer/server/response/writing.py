"""Write a model's outputs as the body and headers of an answer: JSON, binary tensors or plain bytes."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy

from edge_infer.errors import PayloadTooLarge
from edge_infer.formats.safetensors import write_strings
from edge_infer.server.protocol.head import JSON, OCTETS
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.parts import LONG_BYTES
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.response.parts import Part, Parts
    from edge_infer.server.scheduling.request import Answer, Timings
    from edge_infer.tensors.tensor import Array, TensorSpec

    Headers = tuple[tuple[bytes, bytes], ...]

#: The headers of how many shapes of answers are remembered.
_MAX_HEADERS = 256
_encode = msgspec.json.Encoder().encode
_FEW = 64
#: How many numbers of a long list are written at once: about a millisecond.
_PIECE = 8192
#: JSON writes a number in up to so many bytes.
_BYTES_OF_NUMBER = 8
_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)


class Written(NamedTuple):
    """An answer before it is sent.

    Attributes:
        parts: What is sent.
        headers: What goes with it, but for those of every answer.
        timings: Where its time went.
        serialization_s: How long it took to write.
        is_kept: Whether it may be sent again: one of the fast variant is not.
        variant: What ran, where the model has several variants.
    """

    parts: Parts
    headers: Headers
    timings: Timings
    serialization_s: float
    is_kept: bool = True
    variant: str = ""


def takes_long(asked: InferRequest, answer: Answer, *, is_raw: bool) -> bool:
    """Tell whether an answer is so much JSON that a thread should write it."""
    if is_raw:
        return False
    most = LARGE_BYTES // _BYTES_OF_NUMBER
    return any(value.size >= most and name not in asked.binary for name, value in answer.outputs.items())


def write(model: LoadedModel, head: RequestHead, asked: InferRequest, answer: Answer) -> Written:
    """Write an answer: octets for octets, else the protocol's JSON with the tensors that were asked for in binary."""
    start = perf_counter()
    if head.is_raw and head.json_length is None and len(model.outputs) == 1:
        spec = model.outputs[0]
        value = answer.outputs[spec.name]
        parts: Parts = (octets(value),)
        headers = _headers_of_octets(spec.dtype, value.shape)
    else:
        parts, json_length = write_answer(
            model.name,
            model.version,
            asked,
            answer.outputs,
            model.outputs,
            answer.variant,
            model.answer_size.most,
        )
        headers = _headers_of_json(json_length)
    if answer.variant:
        headers = (*headers, (b"model-variant", answer.variant.encode()))
    is_kept = answer.variant in ("", model.variant)
    return Written(parts, headers, answer.timings, perf_counter() - start, is_kept, answer.variant)


@lru_cache(_MAX_HEADERS)
def _headers_of_octets(dtype: DType, shape: tuple[int, ...]) -> Headers:
    return (
        (b"content-type", OCTETS.encode()),
        (b"tensor-datatype", DATATYPES[dtype].encode()),
        (b"tensor-shape", ",".join(map(str, shape)).encode()),
    )


@lru_cache(_MAX_HEADERS)
def _headers_of_json(json_length: int | None) -> Headers:
    """Return the headers of an answer of JSON, or of so many bytes of it and binary tensors."""
    if json_length is None:
        return ((b"content-type", JSON.encode()),)
    return (b"content-type", OCTETS.encode()), (b"inference-header-content-length", b"%d" % json_length)


def server_timing(timings: Timings, serialization_s: float, total_s: float) -> bytes:
    """Write the `Server-Timing` header (https://www.w3.org/TR/server-timing), which browsers show; in milliseconds.

    >>> from edge_infer.server.scheduling.request import Timings
    >>> server_timing(Timings(0.001, 0.0, 0.02, 4), 0.0001, 0.022)
    b'queue;dur=1.000, batch;dur=0.000, compute;dur=20.000, serialization;dur=0.100, total;dur=22.000'
    """
    return (
        f"queue;dur={timings.queue * 1000:.3f}, batch;dur={timings.batch_wait * 1000:.3f}, "
        f"compute;dur={timings.compute * 1000:.3f}, serialization;dur={serialization_s * 1000:.3f}, "
        f"total;dur={total_s * 1000:.3f}"
    ).encode()


def write_answer(
    model: str,
    version: str,
    request: InferRequest,
    outputs: Mapping[str, Array],
    specs: Sequence[TensorSpec],
    variant: str = "",
    most: int = 0,
) -> tuple[Parts, int | None]:
    """Write the body of an answer: the outputs in the order that was asked for, else the model's.

    Args:
        model: The model's name.
        version: Its version.
        request: What was asked.
        outputs: The outputs by name.
        specs: The model's outputs.
        variant: What ran, where the model has several variants that take turns.
        most: The most bytes of JSON; 0 for any number.

    Returns:
        The body: its JSON, and a part for each binary tensor, which is not copied where it is large; and how many bytes
        are JSON where binary tensors follow, else None.

    Raises:
        PayloadTooLarge: The JSON has more bytes.
    """
    names = request.outputs if request.outputs is not None else [spec.name for spec in specs]
    dtypes = {spec.name: spec.dtype for spec in specs}
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        document["id"] = request.id
    if variant:
        document["parameters"] = {"variant": variant}
    tensors: list[Part] = []
    entries = []
    for name in names:
        value = outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": DATATYPES[dtypes[name]], "shape": list(value.shape)}
        if name in request.binary:
            data = octets(value)
            entry["parameters"] = {"binary_data_size": len(data)}
            tensors.append(data)
        else:
            entry["data"] = flat(value) if value.size <= _PIECE else _in_pieces(value, most)
        entries.append(entry)
    document["outputs"] = entries
    head = _encode(document)
    return (head, *tensors), len(head) if tensors else None


def _in_pieces(value: Array, most: int) -> msgspec.Raw:
    """Write a long list piece by piece, between which other threads run: in one go they would wait for all of it."""
    elements: Any = flat(value) if isinstance(value, Tensor) else value.reshape(-1)
    pieces, size = [], 0
    for at in range(0, value.size, _PIECE):
        part = elements[at : at + _PIECE]
        pieces.append(_encode(part if isinstance(part, list) else flat(part))[1:-1])
        size += len(pieces[-1])
        if most and size > most:
            raise PayloadTooLarge(
                f"The JSON of the answer has more than {most} bytes",
                hint='ask for the tensors in binary: `"parameters": {"binary_data_output": true}`',
                expected=most,
            )
    return msgspec.Raw(b"[%b]" % b",".join(pieces))


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


def octets(value: Array) -> Part:
    """Return the bytes of an array, row-major, little-endian; texts each behind 4 bytes of length.

    Those of a large array that has its memory for itself are not copied.
    """
    if not isinstance(value, Tensor):
        if value.dtype.isbuiltin and not value.dtype.hasobject and value.dtype.kind != "U":
            if value.nbytes >= LONG_BYTES and value.flags.c_contiguous and _is_all_of_its_memory(value):
                return memoryview(value.reshape(-1).view(numpy.uint8))
            data: bytes = value.tobytes()
            return data
        value = to_tensor(value)
    value = value.to_host()
    return write_strings(value) if value.dtype is DType.STRING else value.data()


def _is_all_of_its_memory(value: numpy.ndarray[Any, Any]) -> bool:
    """Tell whether an array, or the one that it is another shape of, owns its memory and no more than that."""
    owner = value
    while isinstance(owner.base, numpy.ndarray):
        owner = owner.base
    return owner.flags.owndata and owner.nbytes == value.nbytes
