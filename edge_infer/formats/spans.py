"""Find the tensors inside a model file: where their bytes lie, without changing or re-writing the file.

It knows ONNX (onnx.proto: ModelProto, GraphProto, TensorProto), safetensors and TFLite (schema.fbs). A file that it
cannot read has no tensors: it is then sent as plain bytes, never wrongly.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.formats.onnx import places
from edge_infer.formats.tflite_tables import IDENTIFIER, Table

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


def _onnx(data: bytes) -> Iterator[tuple[str, Span]]:
    """Yield (the file it lies in, empty for this one; tensor) for each tensor with raw or external data."""
    for number, start, length in places(data, 0, len(data)):
        if number == 7 and length >= 0:
            yield from _onnx_graph(data, start, start + length, "", 0)


def _onnx_graph(data: bytes, start: int, end: int, prefix: str, depth: int) -> Iterator[tuple[str, Span]]:
    if depth > 16:
        raise ValueError("too deep")
    node = 0
    for number, at, length in places(data, start, end):
        if number == 5 and length >= 0:  # initializer
            yield from _onnx_tensor(data, at, at + length, prefix)
        elif number == 1 and length >= 0:  # node
            node += 1
            for inner, where, size in places(data, at, at + length):
                if inner == 5 and size >= 0:  # attribute
                    for kind, place, count in places(data, where, where + size):
                        if kind == 5 and count >= 0:  # t
                            yield from _onnx_tensor(data, place, place + count, f"{prefix}{node}/")
                        elif kind == 6 and count >= 0:  # g
                            yield from _onnx_graph(data, place, place + count, f"{prefix}{node}/", depth + 1)


def _onnx_tensor(data: bytes, start: int, end: int, prefix: str) -> Iterator[tuple[str, Span]]:
    name, kind, raw, external = "", 0, (0, 0), dict[str, str]()
    for number, at, length in places(data, start, end):
        if number == 2 and length < 0:
            kind = at
        elif number == 8 and length >= 0:
            name = data[at : at + length].decode()
        elif number == 9 and length >= 0:
            raw = (at, length)
        elif number == 13 and length >= 0:
            entry = {n: data[a : a + s].decode() for n, a, s in places(data, at, at + length) if s >= 0}
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


def _tflite(data: bytes) -> Iterator[Span]:
    if data[4:8] != IDENTIFIER:
        raise ValueError("no TFLite file")
    model = Table.root(data)
    kinds: dict[int, tuple[int, bool]] = {}
    names: dict[int, str] = {}
    for index, subgraph in enumerate(model.tables(2)):
        for tensor in subgraph.tables(0):
            number = tensor.number(2, "I")
            kinds[number] = _TFLITE.get(tensor.number(1, "B"), (1, False))
            if tensor.vector(3)[0]:
                names[number] = f"{index}/{tensor.text(3)}"
    for number, buffer in enumerate(model.tables(4)):
        start, length = buffer.vector(0)
        if start:
            yield Span(names.get(number, str(number)), *kinds.get(number, (1, False)), start, length)
