"""Check that the tables of a TFLite file lie inside it.

ai-edge-litert verifies a file before it reads it; tflite-runtime follows any offset and ends the process where it
leads out of a file that was cut short. This walks the same tables by the same offsets first.

The layout is FlatBuffers' (https://flatbuffers.dev/internals): a table starts with a signed offset back to its
vtable, which holds its own size, the table's size and the offset of each field; a field that is a table, a vector or
a string holds an offset forward. The field numbers are those of tensorflow/lite/schema/schema.fbs, version 3.
"""

from __future__ import annotations

from struct import error as struct_error
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from edge_infer.formats.tflite_tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    Walk = Callable[["_File", int], None]

_IDENTIFIER = b"TFL3"


def is_whole(content: bytes) -> bool:
    """Tell whether these bytes are a TFLite file whose tables, vectors and strings all lie inside it."""
    if content[4:8] != _IDENTIFIER:
        return False
    try:
        _MODEL(_File(content), _forward(content, 0))
    except (struct_error, IndexError):
        return False
    return True


class _File:
    """The bytes, and which tables of them were seen: many vectors may point at one table."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.seen: set[tuple[Walk, int]] = set()


def _forward(content: bytes, place: int) -> int:
    return int(place + unpack_from("<I", content, place)[0])


def _vector(item_size: int) -> Walk:
    """Check a vector of scalars: its length, then its items."""

    def walk(file: _File, place: int) -> None:
        (length,) = unpack_from("<I", file.content, place)
        if place + 4 + length * item_size > len(file.content):
            raise IndexError(place)

    return walk


def _tables(item: Walk) -> Walk:
    """Check a vector of offsets to tables, and the tables."""

    def walk(file: _File, place: int) -> None:
        if (walk, place) in file.seen:
            return
        file.seen.add((walk, place))
        _vector(4)(file, place)
        (length,) = unpack_from("<I", file.content, place)
        for i in range(length):
            item(file, _forward(file.content, place + 4 + 4 * i))

    return walk


def _table(**fields: Any) -> Walk:
    """Check a table and those of its fields that are offsets: `_NUMBER=walk`."""
    walks = {int(name[1:]): walk for name, walk in fields.items()}

    def walk(file: _File, place: int) -> None:
        if (walk, place) in file.seen:
            return
        file.seen.add((walk, place))
        content = file.content
        vtable = place - unpack_from("<i", content, place)[0]
        if vtable < 0:
            raise IndexError(place)
        vtable_size, table_size = unpack_from("<HH", content, vtable)
        if vtable_size < 4 or vtable + vtable_size > len(content) or place + table_size > len(content):
            raise IndexError(place)
        for number, field in walks.items():
            if 6 + 2 * number <= vtable_size:
                (offset,) = unpack_from("<H", content, vtable + 4 + 2 * number)
                if offset:
                    field(file, _forward(content, place + offset))

    return walk


_STRING = _BYTES = _vector(1)
_INTS = _FLOATS = _vector(4)
_INDEX_SIZES = {1: 4, 2: 2, 3: 1}


def _level(file: _File, place: int) -> None:
    """Check a level of a sparse tensor, whose vectors of indices have items of three sizes."""
    _table()(file, place)
    level = Table(file.content, place)
    for field in (2, 4):
        values = level.table(field + 1)
        if values is not None:
            values.vector(0, _INDEX_SIZES.get(level.number(field, "B"), 1))


_SPARSITY = _table(_0=_INTS, _1=_INTS, _2=_tables(_level))
_QUANTIZATION = _table(_0=_FLOATS, _1=_FLOATS, _2=_FLOATS, _3=_vector(8))
_TENSOR = _table(_0=_INTS, _3=_STRING, _4=_QUANTIZATION, _6=_SPARSITY, _7=_INTS)
_OPERATOR = _table(_1=_INTS, _2=_INTS, _4=_table(), _5=_BYTES)
_SUBGRAPH = _table(_0=_tables(_TENSOR), _1=_INTS, _2=_INTS, _3=_tables(_OPERATOR), _4=_STRING)
_SIGNATURE = _table(_0=_tables(_table(_0=_STRING)), _1=_tables(_table(_0=_STRING)), _2=_STRING)
_MODEL = _table(
    _1=_tables(_table(_1=_STRING)),
    _2=_tables(_SUBGRAPH),
    _3=_STRING,
    _4=_tables(_table(_0=_BYTES)),
    _5=_INTS,
    _6=_tables(_table(_0=_STRING)),
    _7=_tables(_SIGNATURE),
)
