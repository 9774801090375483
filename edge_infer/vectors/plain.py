"""The arithmetic of a search in plain Python: for a page or a device without numpy."""

from __future__ import annotations

import math
from array import array
from heapq import nsmallest
from operator import mul
from struct import pack, unpack_from
from typing import TYPE_CHECKING

from edge_infer.vectors.arithmetic import OneThread, no_direction, not_finite, too_large, wrong_length

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from edge_infer.vectors.arithmetic import Codes, Query, Scored

    Rows = list[array[float]]

_MAX_F16 = 65504.0
_MOST = 127
_LEAST_NORMAL = 2.0**-126


class Plain(OneThread):
    """Computes with whole numbers and floats of Python."""

    name = "plain"

    def rows(self, vectors: Any, dimension: int) -> Rows:  # noqa: D102  as `Arithmetic` says
        found: Rows = []
        for number, vector in enumerate(vectors):
            try:
                row = array("f", vector.tolist() if hasattr(vector, "tolist") else vector)
            except (OverflowError, TypeError, ValueError) as error:
                raise not_finite(number) from error
            if len(row) != dimension:
                raise wrong_length(number, len(row), dimension)
            if not all(map(math.isfinite, row)):
                raise not_finite(number)
            found.append(row)
        return found

    def pick(self, rows: Rows, order: Sequence[int]) -> Rows:  # noqa: D102
        return [rows[i] for i in order]

    def normalize(self, rows: Rows) -> Rows:  # noqa: D102
        found = []
        for number, row in enumerate(rows):
            length = _length(row)
            if length == 0:
                raise no_direction(number)
            found.append(array("f", [value / length for value in row]))
        return found

    def encode(self, rows: Rows) -> tuple[bytes, bytes]:  # noqa: D102
        codes, scales = array("b"), array("f")
        for row in rows:
            values = row.tolist()
            scales.append(max(map(abs, values)) / _MOST)
            scale = scales[-1] or 1.0
            whole = map(round, array("f", [value / scale for value in values]))
            if scale < _LEAST_NORMAL:  # float32 rounds such a scale so coarsely that a quotient may leave 8 bits
                whole = map(_bounded, whole)
            codes.extend(whole)
        return codes.tobytes(), scales.tobytes()

    def mean(self, rows: Rows) -> bytes:  # noqa: D102
        sums = [0.0] * len(rows[0])
        for row in rows:
            sums = [one + value for one, value in zip(sums, row, strict=True)]
        return array("f", [one / len(rows) for one in sums]).tobytes()

    def codes(self, rows: Rows, mean: bytes | memoryview) -> bytes:  # noqa: D102
        means = memoryview(mean).cast("B").cast("f")
        size = -(-len(means) // 64) * 8
        return b"".join(_code(row, means).to_bytes(size, "little") for row in rows)

    def floats(self, rows: Rows, kind: str) -> bytes:  # noqa: D102
        if kind == "f32":
            return b"".join(row.tobytes() for row in rows)
        for number, row in enumerate(rows):
            if max(max(row), -min(row)) > _MAX_F16:
                raise too_large(number)
        return b"".join(pack(f"<{len(row)}e", *row) for row in rows)

    def decoded(self, codes: bytes, scales: bytes, kept: bytes, kind: str, dimension: int) -> Rows:  # noqa: D102
        if kind != "int8":
            letter, size = ("e", 2) if kind == "f16" else ("f", 4)
            return [
                array("f", unpack_from(f"<{dimension}{letter}", kept, start))
                for start in range(0, len(kept), dimension * size)
            ]
        data = memoryview(codes).cast("b")
        return [
            array("f", [value * scale for value in data[row * dimension : (row + 1) * dimension]])
            for row, scale in enumerate(memoryview(scales).cast("f"))
        ]

    def scan(  # noqa: D102
        self,
        codes: Codes,
        query: Query,
        k: int,
        allowed: bytes | None,
        picked: Sequence[int] | None,
        span: tuple[int, int],
    ) -> list[Scored]:
        asked, wide, data = memoryview(query.codes).cast("b").tolist(), codes.dimension, codes.rows
        chosen: Iterable[int] = range(*span) if picked is None else picked
        rows = [row for row in chosen if allowed is None or allowed[row]]
        dots = array("f", [sum(map(mul, data[row * wide : (row + 1) * wide], asked)) for row in rows])
        scores = array("f", [dot * codes.scales[row] for dot, row in zip(dots, rows, strict=True)])
        best = nsmallest(k, zip([-score for score in scores], rows, strict=True))
        return [(-score, row) for score, row in best]

    def nearest(self, codes: Codes, code: bytes, count: int, allowed: bytes | None) -> Sequence[int]:  # noqa: D102
        size, asked, data = len(code), int.from_bytes(code, "little"), codes.bits
        far = (
            ((int.from_bytes(data[row * size : (row + 1) * size], "little") ^ asked).bit_count(), row)
            for row in range(codes.count)
            if allowed is None or allowed[row]
        )
        return sorted(row for _, row in nsmallest(count, far))

    def exact(self, codes: Codes, query: Query, picked: Sequence[int]) -> list[float]:  # noqa: D102
        assert codes.floats is not None
        wide, data = codes.dimension, codes.floats
        kind, size = ("e", 2) if len(data) == 2 * codes.count * wide else ("f", 4)
        found = array("f")
        for row in picked:
            total = 0.0
            for value, asked in zip(unpack_from(f"<{wide}{kind}", data, row * wide * size), query.floats, strict=True):
                total += value * asked
            found.append(total)
        return found.tolist()


def _bounded(value: int) -> int:
    return max(-_MOST, min(_MOST, value))


def _length(row: Iterable[float]) -> float:
    # `sum` is more exact than this from Python 3.12 on, and would give other bits.
    total = 0.0
    for value in row:
        total += value * value
    return math.sqrt(total)


def _code(row: Iterable[float], means: Iterable[float]) -> int:
    return sum(1 << i for i, (value, mean) in enumerate(zip(row, means, strict=True)) if value > mean)
