"""Constants of a TFLite file that are stored without their zeros, as LiteRT's DENSIFY reads them.

A tensor's `SparsityParameters` are a tree of levels: its dimensions in some order, then the dimensions of its blocks.
A dense level has every index; a sparse one lists its indices for each entry of the level above, by segments (CSR). The
layout is that of tensorflow/lite/schema/schema.fbs, the order of values that of its `FormatConverter`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edge_infer.formats.tflite_tables import Table

_SPARSE = 1
#: The `struct` codes of the vectors that hold indices: of int32, uint16 and uint8.
_INDEX_CODES = {1: "i", 2: "H", 3: "B"}


class _Level(NamedTuple):
    """A level: how far an index moves in the tensor, its size, and its lists where it is sparse."""

    step: int
    size: int
    segments: tuple[int, ...] | None
    indices: tuple[int, ...]


def densify(data: memoryview, table: Table, shape: Sequence[int], itemsize: int) -> memoryview:
    """Return a constant with its zeros.

    Args:
        data: The stored elements.
        table: The tensor's `SparsityParameters`.
        shape: The tensor's shape; its dense bytes are allocated.
        itemsize: The bytes of an element.

    Raises:
        ValueError: The parameters contradict each other, the shape or the data.
        IndexError, struct.error: They lie outside the file.
    """
    levels, count = _levels(table, shape), prod(shape)
    dense, stored, done = bytearray(count * itemsize), len(data) // itemsize, 0
    for place in _places(levels):
        if done == stored or not 0 <= place < count:
            raise ValueError("it has more elements than data" if done == stored else "an index lies outside its shape")
        dense[place * itemsize : (place + 1) * itemsize] = data[done * itemsize : (done + 1) * itemsize]
        done += 1
    if done * itemsize != len(data):
        raise ValueError(f"it has {len(data)} bytes for {done} elements")
    return memoryview(dense)


def _levels(table: Table, shape: Sequence[int]) -> list[_Level]:
    order, block_map = table.numbers(0, "i"), table.numbers(1, "i")
    metadata, rank = list(table.tables(2)), len(shape)
    if sorted(order) != list(range(rank + len(block_map))) or len(metadata) != len(order) or len(order) > 2 * rank:
        raise ValueError("its levels are not those of its dimensions and blocks")
    is_whole = len({*block_map}) == len(block_map) and {*block_map} <= {*range(rank)}
    if not is_whole or min(order[rank:], default=rank) < rank:
        raise ValueError("its blocks are not parts of its dimensions")
    steps = [prod(shape[i + 1 :]) for i in range(rank)]
    blocks = {
        block_map[number - rank]: one.number(1, "i") for number, one in zip(order[rank:], metadata[rank:], strict=True)
    }
    levels = []
    for number, one in zip(order, metadata, strict=True):
        axis = number if number < rank else block_map[number - rank]
        step = steps[axis] * (blocks.get(axis, 1) if number < rank else 1)
        if one.number(0, "b") == _SPARSE:
            segments, indices = _vector(one, 2), _vector(one, 4)
            if not segments or [*segments] != sorted(segments) or (segments[0], segments[-1]) != (0, len(indices)):
                raise ValueError("its segments are not those of its indices")
            levels.append(_Level(step, 0, segments, indices))
        elif (size := one.number(1, "i")) < 1:
            raise ValueError(f"a level has size {size}")
        else:
            levels.append(_Level(step, size, None, ()))
    return levels


def _vector(table: Table, field: int) -> tuple[int, ...]:
    """Read a `SparseIndexVector`: its kind and, in the next field, the table that holds it."""
    code, vector = _INDEX_CODES.get(table.number(field, "B")), table.table(field + 1)
    if code is None or vector is None:
        raise ValueError("a sparse level has no indices")
    return vector.numbers(0, code)


def _places(levels: list[_Level], depth: int = 0, number: int = 0, base: int = 0) -> Iterator[int]:
    """Give the place of each stored element.

    Args:
        levels: All levels. Segments do not overlap, so that the work grows with the file only.
        depth: The level to go through.
        number: The entry of the level above, counted over the whole of that level.
        base: Where that entry begins.
    """
    level = levels[depth]
    if level.segments is None:
        entries: Iterable[tuple[int, int]] = ((number * level.size + i, i) for i in range(level.size))
    else:
        begin, end = level.segments[number], level.segments[number + 1]
        entries = zip(range(begin, end), level.indices[begin:end], strict=True)
    for entry, index in entries:
        place = base + index * level.step
        if depth + 1 == len(levels):
            yield place
        else:
            yield from _places(levels, depth + 1, entry, place)
