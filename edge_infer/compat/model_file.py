"""What an ONNX file says about itself, read without onnx or protobuf: its metadata, and the files it refers to.

Of the wire format (https://protobuf.dev/programming-guides/encoding) only what is needed is read; the field numbers
are those of onnx.proto3. Weights are stepped over, so this costs microseconds per node and not per byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What the native package gives as the version of a model that states none.
NO_VERSION = 2**63 - 1
_EXTERNAL = 1


class ModelMetadata(NamedTuple):
    """What a model's author wrote into it; the attributes of `onnxruntime.ModelMetadata`."""

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
        ValueError: The bytes are no ONNX model.
    """
    texts = {2: "", 4: "", 6: ""}
    version = NO_VERSION
    graph_name = graph_description = ""
    custom = {}
    for number, value in _fields(memoryview(model)):
        if number in texts:
            texts[number] = _text(value)
        elif number == 5 and isinstance(value, int):
            version = value
        elif number == 14 and isinstance(value, memoryview):
            entry = dict(_fields(value))
            custom[_text(entry.get(1, 0))] = _text(entry.get(2, 0))
        elif number == 7 and isinstance(value, memoryview):
            for part, inner in _fields(value):
                if part == 2:
                    graph_name = _text(inner)
                elif part == 10:
                    graph_description = _text(inner)
    return ModelMetadata(texts[2], graph_name, texts[4], texts[6], graph_description, version, custom)


def external_files(model: bytes) -> list[str]:
    """List the files that a model's initializers lie in, relative to the model's folder, each once.

    Raises:
        ValueError: The bytes are no ONNX model.
    """
    found: dict[str, None] = {}
    for number, graph in _fields(memoryview(model)):
        if number != 7 or not isinstance(graph, memoryview):
            continue
        for part, tensor in _fields(graph):
            if part != 5 or not isinstance(tensor, memoryview):
                continue
            fields = list(_fields(tensor))
            if (14, _EXTERNAL) in fields:
                entries = [dict(_fields(value)) for key, value in fields if key == 13 and isinstance(value, memoryview)]
                for entry in entries:
                    if _text(entry.get(1, 0)) == "location":
                        found[_text(entry.get(2, 0))] = None
    return list(found)


def _text(value: memoryview | int) -> str:
    return str(value, "utf-8", "replace") if isinstance(value, memoryview) else ""


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Give the fields of a message: number, and value or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
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
