"""Reader of an ONNX file's protobuf fields, metadata and external files, without onnx or protobuf.

The wire format is https://protobuf.dev/programming-guides/encoding, the field numbers are those of onnx.proto. Weights
are stepped over, so this costs microseconds per node and not per byte.
"""

from __future__ import annotations

from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

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
#: The version that ONNX Runtime gives a model that states none.
NO_VERSION = 2**63 - 1


def external_locations(model: bytes | mmap) -> list[str]:
    """List the files that an ONNX model keeps its weights in, besides its own, each once.

    They are relative to the model's folder: the `location` in `TensorProto.external_data` of whatever tensor.

    Raises:
        ValueError: The bytes are not an ONNX model.
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
    for number, at, size in places(data, 0, len(data)):
        yield number, at if size < 0 else data[at : at + size]


def places(data: memoryview | bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Give the fields of the message between two offsets: number, then value and -1, or offset and size.

    Raises:
        ValueError: It is none.
    """
    while at < end:
        tag, at = varint(data, at)
        number, kind = (tag & 0xFFFFFFFF) >> 3, tag & 7  # protobuf keeps 32 bits of a tag, however many there are
        if kind == 0:
            value, at = varint(data, at)
            yield number, value, -1
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"not a protobuf message: field of kind {kind} at byte {at}")
        if at + size > end:
            raise ValueError(f"not a protobuf message: {size} bytes at byte {at} of {end}")
        yield number, at, size
        at += size


def varint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset behind it.

    Raises:
        ValueError: It has no end.
    """
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(f"not a protobuf message: a number without end at byte {at}")


class ModelMetadata(Record):
    """The metadata by a model's author; the attributes of `onnxruntime.ModelMetadata`."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: dict[str, str] = {}  # noqa: RUF012  never written to


def read_metadata(model: bytes) -> ModelMetadata:
    """Read a model's metadata.

    Raises:
        ValueError: The bytes are not an ONNX model.
    """
    texts = {2: "", 4: "", 6: ""}
    version = NO_VERSION
    graph_name = graph_description = ""
    custom = {}
    for number, value in fields(memoryview(model)):
        if number in texts:
            texts[number] = text_of(value)
        elif number == 5 and isinstance(value, int):
            version = value
        elif number == 14 and isinstance(value, memoryview):
            entry = dict(fields(value))
            custom[text_of(entry.get(1, 0))] = text_of(entry.get(2, 0))
        elif number == 7 and isinstance(value, memoryview):
            for part, inner in fields(value):
                if part == 2:
                    graph_name = text_of(inner)
                elif part == 10:
                    graph_description = text_of(inner)
    return ModelMetadata(texts[2], graph_name, texts[4], texts[6], graph_description, version, custom)


class Contents(Record):
    """The contents of a model.

    Attributes:
        opsets: The version of each domain that it imports; `ai.onnx` is the default one.
        operators: How many nodes each operator has, subgraphs and functions included, the most frequent first.
    """

    opsets: dict[str, int]
    operators: dict[str, int]


def read_contents(model: bytes) -> Contents:
    """Read a model's opsets and count its operators.

    Raises:
        ValueError: The bytes are not an ONNX model.

    >>> "Conv" in read_contents(open("examples/digits/digits.onnx", "rb").read()).operators
    True
    """
    opsets = {}
    for number, value in fields(memoryview(model)):
        if number == 8 and isinstance(value, memoryview):
            entry = dict(fields(value))
            version = entry.get(2, 0)
            opsets[text_of(entry.get(1, 0)) or "ai.onnx"] = version if isinstance(version, int) else 0
    counts: dict[str, int] = {}
    for name in _operators(memoryview(model), "model", _MAX_DEPTH):
        counts[name] = counts.get(name, 0) + 1
    return Contents(opsets, dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))))


def _operators(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    """Give the operator of each node, with its domain where that is not the default one."""
    if not depth:
        raise ValueError(f"not a protobuf message: {_MAX_DEPTH} messages in one another")
    if kind == "node":
        parts = dict(fields(message))
        domain, operator = text_of(parts.get(7, 0)), text_of(parts.get(4, 0))
        yield operator if domain in ("", "ai.onnx") else f"{domain}.{operator}"
    for number, value in fields(message):
        part = _PARTS[kind].get(number)
        if part in ("graph", "function", "node", "attribute") and not isinstance(value, int):
            yield from _operators(value, part, depth - 1)
