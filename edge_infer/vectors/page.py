"""The arithmetic of a search in the page's kernels: the rows of a segment are copied into their memory once."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from edge_infer.backends.web.search_kernels import KernelRoom, search_module
from edge_infer.vectors.arithmetic import OfKernels, OneThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.vectors.arithmetic import Arithmetic, Codes, Query, Scored


class Page(OfKernels, OneThread):
    """Computes with the page's kernels; what they do not know by another arithmetic.

    Args:
        other: That arithmetic.

    Raises:
        BackendUnavailable: This is no worker of a page.
        FetchError: The kernels are missing.
    """

    def __init__(self, other: Arithmetic) -> None:
        super().__init__(other)
        self._module = search_module()
        self._rooms: WeakKeyDictionary[Codes, KernelRoom] = WeakKeyDictionary()

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
        most, room, dimension = min(k, end - first), self._room(codes), codes.dimension
        chosen = b"" if picked is None else array("I", picked).tobytes()
        sizes = (dimension, 2 * dimension, len(allowed or b""), len(chosen), 4 * most, 4 * most)
        asked, wide, mask, rows_at, scores_at, found_at = room.scratch(sizes)
        room.write(asked, query.codes)
        if allowed is not None:
            room.write(mask, allowed)
        room.write(rows_at, chosen)
        places = (*room.places[:2], asked, wide, mask if allowed is not None else 0, rows_at if chosen else 0)
        held = room.call("vectors_scan", *places, first, end, dimension, most, scores_at, found_at)
        scores = memoryview(room.read(scores_at, 4 * held)).cast("f")
        rows = memoryview(room.read(found_at, 4 * held)).cast("I")
        return sorted(zip(scores, rows, strict=True), key=lambda one: (-one[0], one[1]))

    def nearest(self, codes: Codes, code: bytes, count: int, allowed: bytes | None) -> Sequence[int]:  # noqa: D102
        room, words = self._room(codes), len(code) // 8
        limit, wanted = 64 * words + 1, min(count, codes.count)
        sizes = (len(code), len(allowed or b""), 2 * codes.count, 4 * limit, 4 * wanted)
        asked, mask, found, counts, picked = room.scratch(sizes)
        room.write(asked, code)
        if allowed is not None:
            room.write(mask, allowed)
        room.write(counts, bytes(4 * limit))
        place = mask if allowed is not None else 0
        room.call("vectors_differ", room.places[2], asked, place, 0, codes.count, words, found)
        many = room.call("vectors_select", found, codes.count, wanted, counts, limit, picked)
        return array("I", room.read(picked, 4 * many))

    def _room(self, codes: Codes) -> KernelRoom:
        room = self._rooms.get(codes)
        if room is None:
            room = self._rooms[codes] = KernelRoom(self._module, (codes.rows, codes.scales, codes.bits))
        return room
