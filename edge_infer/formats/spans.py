"""Find the tensors inside a model file: where their bytes lie, without changing or re-writing the file.

Readers of ONNX (onnx.proto: ModelProto, GraphProto, TensorProto), safetensors and TFLite (schema.fbs), only as deep as
this needs. A file that cannot be read so far has no tensors: it is then sent as plain bytes, never wrongly.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Span(NamedTuple):
    """The bytes of one tensor in a file.

    Attributes:
        name: The tensor's name.
        width: The bytes of one element; 1 where elements are smaller.
        is_float: Whether elements are floating-point numbers.
        offset: Where the bytes begin.
        length: How many they are.
    """

    name: str
    width: int
    is_float: bool
    offset: int
    length: int


# TensorProto.DataType to (width, is_float); a complex number is two floats.
_ONNX = {1: (4, True), 10: (2, True), 11: (8, True), 16: (2, True), 14: (4, True), 15: (8, True)}
_ONNX |= {5: (2, False), 4: (2, False), 6: (4, False), 12: (4, False), 7: (8, False), 13: (8, False)}
_SAFETENSORS = {"F64": (8, True), "F32": (4, True), "F16": (2, True), "BF16": (2, True)}
_SAFETENSORS |= {"I64": (8, False), "U64": (8, False), "I32": (4, False), "U32": (4, False), "I16": (2, False)}
# schema.fbs, TensorType.
_TFLITE = {0: (4, True), 1: (2, True), 10: (8, True), 2: (4, False), 4: (8, False), 7: (2, False), 15: (4, False)}
#: Tensors below this size are left to the bytes around them.
MIN_SPAN = 64


def find_spans(path: str, files: dict[str, bytes]) -> list[Span]:
    """Return the tensors of one file of a bundle, in the order of their bytes, none overlapping.

    Args:
        path: The file's path inside the bundle.
        files: The bundle's files by path: an ONNX model tells where tensors lie in the files beside it.
    """
    data = files[path]
    found: list[Span] = []
    try:
        if path.endswith(".onnx"):
            found = [span for location, span in _onnx(data) if not location]
        elif path.endswith(".tflite"):
            found = list(_tflite(data))
        elif path.endswith(".safetensors"):
            found = list(_safetensors(data))
        else:
            folder = path.rpartition("/")[0]
            for other in files:
                if other.endswith(".onnx") and other.rpartition("/")[0] == folder:
                    name = path[len(folder) :].lstrip("/")
                    found += [span for location, span in _onnx(files[other]) if location == name]
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return []
    kept: list[Span] = []
    end = 0
    for span in sorted(found, key=lambda one: one.offset):
        if span.offset >= end and span.length >= MIN_SPAN and span.offset + span.length <= len(data):
            kept.append(span if span.length % span.width == 0 else span._replace(width=1, is_float=False))
            end = span.offset + span.length
    return kept


# -- ONNX: protobuf's wire format (protobuf.dev/programming-guides/encoding) --


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, value or offset, length) of a message; of a number the length is -1."""
    while start < end:
        tag, start = _varint(data, start)
        kind = tag & 7
        if kind == 0:
            value, start = _varint(data, start)
            yield tag >> 3, value, -1
        elif kind == 2:
            length, start = _varint(data, start)
            if start + length > end:
                raise ValueError("cut short")
            yield tag >> 3, start, length
            start += length
        elif kind in (1, 5):
            start += 8 if kind == 1 else 4
        else:
            raise ValueError("a group")


def _varint(data: bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, start
        shift += 7
        if shift > 63:
            raise ValueError("no varint")


def _onnx(data: bytes) -> Iterator[tuple[str, Span]]:
    """Yield (the file it lies in, empty for this one; tensor) for each tensor with raw or external data."""
    for number, start, length in _fields(data, 0, len(data)):
        if number == 7 and length >= 0:
            yield from _onnx_graph(data, start, start + length, "", 0)


def _onnx_graph(data: bytes, start: int, end: int, prefix: str, depth: int) -> Iterator[tuple[str, Span]]:
    if depth > 16:
        raise ValueError("too deep")
    node = 0
    for number, at, length in _fields(data, start, end):
        if number == 5 and length >= 0:  # initializer
            yield from _onnx_tensor(data, at, at + length, prefix)
        elif number == 1 and length >= 0:  # node
            node += 1
            for inner, where, size in _fields(data, at, at + length):
                if inner == 5 and size >= 0:  # attribute
                    for kind, place, count in _fields(data, where, where + size):
                        if kind == 5 and count >= 0:  # t
                            yield from _onnx_tensor(data, place, place + count, f"{prefix}{node}/")
                        elif kind == 6 and count >= 0:  # g
                            yield from _onnx_graph(data, place, place + count, f"{prefix}{node}/", depth + 1)


def _onnx_tensor(data: bytes, start: int, end: int, prefix: str) -> Iterator[tuple[str, Span]]:
    name, kind, raw, external = "", 0, (0, 0), dict[str, str]()
    for number, at, length in _fields(data, start, end):
        if number == 2 and length < 0:
            kind = at
        elif number == 8 and length >= 0:
            name = data[at : at + length].decode()
        elif number == 9 and length >= 0:
            raw = (at, length)
        elif number == 13 and length >= 0:
            entry = {n: data[a : a + s].decode() for n, a, s in _fields(data, at, at + length) if s >= 0}
            external[entry.get(1, "")] = entry.get(2, "")
    width, is_float = _ONNX.get(kind, (1, False))
    if raw[1]:
        yield "", Span(prefix + name, width, is_float, *raw)
    elif external.get("location") and "length" in external:
        offset, length = int(external.get("offset", "0")), int(external["length"])
        if offset >= 0 and length >= 0:
            yield external["location"], Span(prefix + name, width, is_float, offset, length)


def _safetensors(data: bytes) -> Iterator[Span]:
    (size,) = struct.unpack_from("<Q", data)
    if size > len(data) - 8:
        raise ValueError("cut short")
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (int(one) for one in entry["data_offsets"])
            width, is_float = _SAFETENSORS.get(entry["dtype"], (1, False))
            if 0 <= begin <= end:
                yield Span(name, width, is_float, 8 + size + begin, end - begin)


# -- TFLite: FlatBuffers (flatbuffers.dev/internals) --


def _tflite(data: bytes) -> Iterator[Span]:
    if data[4:8] != b"TFL3":
        raise ValueError("no TFLite file")
    model = _u32(data, 0)
    kinds: dict[int, tuple[int, bool]] = {}
    names: dict[int, str] = {}
    for index, subgraph in enumerate(_tables(data, model, 2)):
        for tensor in _tables(data, subgraph, 0):
            kind, buffer = _slot(data, tensor, 1), _slot(data, tensor, 2)
            number = _u32(data, buffer) if buffer else 0
            kinds[number] = _TFLITE.get(data[kind] if kind else 0, (1, False))
            text = _slot(data, tensor, 3)
            if text:
                at = text + _u32(data, text)
                names[number] = f"{index}/{data[at + 4 : at + 4 + _u32(data, at)].decode()}"
    for number, buffer in enumerate(_tables(data, model, 4)):
        slot = _slot(data, buffer, 0)
        if slot:
            at = slot + _u32(data, slot)
            width, is_float = kinds.get(number, (1, False))
            yield Span(names.get(number, str(number)), width, is_float, at + 4, _u32(data, at))


def _u32(data: bytes, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value


def _slot(data: bytes, table: int, field: int) -> int:
    """Return where a field of a table lies, 0 where it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise ValueError("outside")
    size: int = struct.unpack_from("<H", data, vtable)[0]
    entry = 4 + 2 * field
    if entry + 2 > size:
        return 0
    offset: int = struct.unpack_from("<H", data, vtable + entry)[0]
    return table + offset if offset else 0


def _tables(data: bytes, table: int, field: int) -> Iterator[int]:
    slot = _slot(data, table, field)
    if not slot:
        return
    vector = slot + _u32(data, slot)
    count = _u32(data, vector)
    if count > len(data) // 4:
        raise ValueError("cut short")
    for i in range(count):
        at = vector + 4 + 4 * i
        yield at + _u32(data, at)
