"""Encode the tensors of a decoder, a few rows at a time on all processors, into a file instead of memory."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np

from edge_infer.generation.weight_file import Encoded
from edge_infer_converters.writers.decoder.blocks import EncodedRows, encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from edge_infer.generation.weight_file import Encoding

# Some values, so that a chunk and what is computed of it stay in a processor's cache.
_CHUNK_VALUES = 2**17


class FloatTensor(Protocol):
    """A tensor whose rows can be read as float32."""

    @property
    def name(self) -> str:
        """Its name in the weight file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, columns], or [size] of a vector."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return some rows."""

    def blocks(self, start: int, stop: int, encoding: Encoding) -> tuple[bytes, bytes] | None:
        """Return values and scales of some rows that need no encoding; None for all others."""


class Place(NamedTuple):
    """Where an encoded tensor lies in the file: its values, its scales behind them, and what it costs.

    Attributes:
        shape: Of the tensor.
        start: The first byte of its values.
        values: How many bytes they have.
        scales: How many bytes the scales have.
        error: The sum of squared differences to the floats.
        signal: The sum of squared floats.
    """

    shape: tuple[int, ...]
    start: int
    values: int
    scales: int
    error: float
    signal: float


class Spool:
    """Encoded tensors in a nameless file; use it in a `with` statement.

    Args:
        folder: Where the file lies, on a disk with room for all.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._size = 0
        #: By name and encoding.
        self.places: dict[tuple[str, Encoding], Place] = {}

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(dir=self._folder)
        self._workers = ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)))
        self._map: mmap.mmap | None = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._file.close()

    def add(self, tensor: FloatTensor, encodings: Sequence[Encoding], done: Callable[[int], None]) -> None:
        """Encode a tensor in one or more ways; its floats are read once.

        Args:
            tensor: The tensor.
            encodings: The ways.
            done: Told how many values are done.

        Raises:
            ConversionError: The errors of `encode_rows`, and those of the tensor's `rows`.
        """
        columns = math.prod(tensor.shape[1:])
        rows = max(1, _CHUNK_VALUES // max(columns, 1))

        def encoded(start: int) -> tuple[float, int, list[EncodedRows]]:
            stop = min(start + rows, tensor.shape[0])
            values = np.ascontiguousarray(tensor.rows(start, stop), np.float32)
            flat = values.reshape(-1)
            parts = []
            for encoding in encodings:
                taken = tensor.blocks(start, stop, encoding)
                parts.append(encode_rows(values, encoding) if taken is None else EncodedRows(*taken, 0.0))
            return float(np.dot(flat, flat)), values.size, parts

        sizes = [_nbytes(tensor.shape, one) for one in encodings]
        starts = [self._size]
        for one in sizes:
            starts.append(starts[-1] + sum(one))
        self._size = starts[-1]
        reached = [[start, start + values] for start, (values, _) in zip(starts, sizes, strict=False)]
        errors, signal = [0.0] * len(encodings), 0.0
        for energy, count, parts in self._in_order(encoded, range(0, tensor.shape[0], rows)):
            signal += energy
            for i, part in enumerate(parts):
                for j, data in enumerate((part.values, part.scales)):
                    self._file.seek(reached[i][j])
                    self._file.write(data)
                    reached[i][j] += len(data)
                errors[i] += part.error
            done(count)
        for i, encoding in enumerate(encodings):
            self.places[tensor.name, encoding] = Place(tensor.shape, starts[i], *sizes[i], errors[i], signal)

    def replace(self, name: str, encoding: Encoding, rows: EncodedRows) -> None:
        """Put other values and scales, as large as before, in the place of a tensor that was added."""
        place = self.places[name, encoding]
        self._file.seek(place.start)
        self._file.write(rows.values)
        self._file.write(rows.scales)
        self.places[name, encoding] = place._replace(error=rows.error)

    def encoded(self, chosen: Iterable[tuple[str, Encoding]]) -> Iterator[tuple[str, Encoded]]:
        """Give encoded tensors for a weight file; their bytes are those of the mapped file."""
        self._file.flush()
        if self._map is None or len(self._map) < self._size:
            self._map = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        view = memoryview(self._map)
        for name, encoding in chosen:
            place = self.places[name, encoding]
            middle = place.start + place.values
            scales = view[middle : middle + place.scales] if place.scales else None
            yield name, Encoded(encoding, place.shape, view[place.start : middle], scales)

    def forget_pages(self) -> None:
        """Give the memory of what was read back to the system, which reads it again from the file where it must."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _in_order(
        self, work: Callable[[int], tuple[float, int, list[EncodedRows]]], starts: range
    ) -> Iterator[tuple[float, int, list[EncodedRows]]]:
        """Work on some chunks at once and give the results in order; few of them are in memory."""
        waiting = [self._workers.submit(work, start) for start in starts[:16]]
        for start in starts[16:]:
            yield waiting.pop(0).result()
            waiting.append(self._workers.submit(work, start))
        for one in waiting:
            yield one.result()


def _nbytes(shape: tuple[int, ...], encoding: Encoding) -> tuple[int, int]:
    """Return the bytes of a tensor's values and scales."""
    count = math.prod(shape)
    bits = {"f32": 32, "f16": 16, "int8": 8, "int4": 4}[encoding]
    return count * bits // 8, count // 32 * 2 if encoding.startswith("int") else 0
