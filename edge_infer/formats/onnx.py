"""What an ONNX file refers to, read without onnx or protobuf.

Of the wire format (https://protobuf.dev/programming-guides/encoding) only what is needed is read; the field numbers
are those of onnx.proto. Weights are stepped over, so this costs microseconds per node and not per byte.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Which fields of a message hold messages that a tensor with external data may lie in, down to its key-value pairs.
_PARTS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "pair"},
}
#: As deep as protobuf itself reads.
_MAX_DEPTH = 100


def external_locations(model: bytes) -> list[str]:
    """List the files that an ONNX model keeps its weights in, besides its own, each once.

    They are relative to the model's folder: the `location` in `TensorProto.external_data` of whatever tensor.

    Raises:
        ValueError: The bytes are no ONNX model.
    """
    return list(dict.fromkeys(_locations(memoryview(model), "model", _MAX_DEPTH)))


def _locations(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    if not depth:
        raise ValueError(f"not a protobuf message: {_MAX_DEPTH} messages in one another")
    for number, value in fields(message):
        part = _PARTS[kind].get(number)
        if part is None or isinstance(value, int):
            continue
        if part != "pair":
            yield from _locations(value, part, depth - 1)
            continue
        pair = dict(fields(value))
        if text_of(pair.get(1, 0)) == "location":
            yield text_of(pair.get(2, 0), "surrogateescape")  # as Python writes the names of files


def text_of(value: memoryview | int, errors: str = "replace") -> str:
    """Return the text of a field."""
    return str(value, "utf-8", errors) if isinstance(value, memoryview) else ""


def fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Give the fields of a message: number, and value or bytes.

    Raises:
        ValueError: It is none.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = (tag & 0xFFFFFFFF) >> 3, tag & 7  # protobuf keeps 32 bits of a tag, however many there are
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"not a protobuf message: field of kind {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"not a protobuf message: {size} bytes at byte {at} of {len(data)}")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(f"not a protobuf message: a number without end at byte {at}")
