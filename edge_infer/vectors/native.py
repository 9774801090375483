"""The arithmetic of a search in our kernels: whole numbers by the processor's own instructions, on all its cores.

A kernel holds no lock of Python while it runs. A search that takes about 10 ms or more is spread over threads, some
rows of a segment to each at a time; a shorter one would only wait for them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

from edge_infer.errors import BundleError
from edge_infer.kernels.search_library import SearchLibrary, search_library
from edge_infer.platform.cpu import usable_cpus
from edge_infer.vectors.arithmetic import OfKernels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import ThreadPoolExecutor
    from typing import Any

    from edge_infer.vectors.arithmetic import Arithmetic, Codes, Query, Scored

#: What one core compares in about 10 ms.
_PARALLEL_BYTES = 128 * 2**20
#: A core gets so many parts of such a search: one that is kept from its own leaves the rest to others.
_PARTS = 4


class Native(OfKernels):
    """Computes with our kernels; what they do not know, such as encoding rows, by another arithmetic.

    Args:
        other: That arithmetic.
        library: The kernels; those for this CPU unless given.

    Raises:
        BackendUnavailable: There are no kernels for this system or CPU.
    """

    def __init__(self, other: Arithmetic, library: SearchLibrary | None = None) -> None:
        super().__init__(other)
        self._library = library or search_library()

    def each(self, tasks: Sequence[Callable[[], list[Any]]], work: int) -> list[list[Any]]:  # noqa: D102
        if work < _PARALLEL_BYTES or len(tasks) == 1 or usable_cpus() == 1:
            return [task() for task in tasks]
        return list(_pool().map(lambda task: task(), tasks))

    def spans(self, count: int, row_bytes: int, work: int) -> list[tuple[int, int]]:  # noqa: D102
        cpus = usable_cpus()
        if work < _PARALLEL_BYTES or cpus == 1:
            return [(0, count)]
        rows = max(1, work // (cpus * _PARTS * row_bytes))
        return [(first, min(first + rows, count)) for first in range(0, count, rows)]

    def scan(  # noqa: D102
        self,
        codes: Codes,
        query: Query,
        k: int,
        allowed: bytes | None,
        picked: Sequence[int] | None,
        span: tuple[int, int],
    ) -> list[Scored]:
        first, end = span if picked is None else (0, len(picked))
        most = min(k, end - first)
        scores, rows = (ctypes.c_float * most)(), (ctypes.c_uint32 * most)()
        wide = (ctypes.c_int16 * codes.dimension)()
        chosen: Any = picked
        if picked is not None and not isinstance(picked, ctypes.Array):
            chosen = (ctypes.c_uint32 * len(picked))(*picked)
        places = (_address(codes.rows), _address(codes.scales), query.codes, wide, allowed, chosen)
        held = self._library.scan(*places, first, end, codes.dimension, most, scores, rows)
        return sorted(zip(scores[:held], rows[:held], strict=True), key=lambda one: (-one[0], one[1]))

    def nearest(self, codes: Codes, code: bytes, count: int, allowed: bytes | None) -> Sequence[int]:  # noqa: D102
        words = len(code) // 8
        limit = 64 * words + 1
        found, counts = (ctypes.c_uint16 * codes.count)(), (ctypes.c_uint32 * limit)()
        picked: Any = (ctypes.c_uint32 * min(count, codes.count))()
        self._library.differ(_address(codes.bits), code, allowed, 0, codes.count, words, found)
        many = self._library.select(found, codes.count, len(picked), counts, limit, picked)
        rows: Sequence[int] = picked if many == len(picked) else (ctypes.c_uint32 * many)(*picked[:many])
        return rows


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(usable_cpus(), "edge-infer-search")


def _address(view: memoryview) -> int:
    """Return where mapped memory begins.

    Raises:
        BundleError: Its elements do not lie at multiples of their size, which some processors cannot read.
    """
    place = ctypes.addressof(ctypes.c_char.from_buffer(view))
    if place % view.itemsize:
        raise BundleError("a tensor of the index is not aligned", hint="build the index again")
    return place
