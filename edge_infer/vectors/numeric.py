"""The arithmetic of a search in numpy."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.vectors.arithmetic import OneThread, no_direction, not_finite, too_large, wrong_length

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.vectors.arithmetic import Codes, Query, Scored

    Rows = np.ndarray[Any, np.dtype[np.float32]]

#: So many rows are widened at once: they stay in the processor's cache.
_BLOCK = 512
#: A dot product of so many pairs of 8-bit numbers stays below 2^24, where float32 is exact in any order of adding.
_EXACT = 1024
_MAX_F16 = 65504.0
#: The 1-bit codes that are compared at once.
_CODES = 8192


class Numeric(OneThread):
    """Computes with numpy."""

    name = "numpy"

    def rows(self, vectors: Any, dimension: int) -> Rows:  # noqa: D102  as `Arithmetic` says
        try:
            with np.errstate(over="ignore"):
                found = np.asarray(_whole(vectors), np.float32)
        except (TypeError, ValueError) as error:
            _refuse(vectors, dimension)
            raise not_finite(0) from error
        if found.ndim == 1 and not found.size:
            found = found.reshape(0, dimension)
        if found.ndim != 2:
            _refuse(vectors, dimension)
        if found.shape[1] != dimension:
            raise wrong_length(0, found.shape[1], dimension)
        finite = np.isfinite(found).all(axis=1)
        if not finite.all():
            raise not_finite(int(finite.argmin()))
        return np.ascontiguousarray(found)

    def pick(self, rows: Rows, order: Sequence[int]) -> Rows:  # noqa: D102
        return rows[np.asarray(order, np.intp)]

    def normalize(self, rows: Rows) -> Rows:  # noqa: D102
        total = np.zeros(len(rows))
        for column in np.ascontiguousarray(rows.T):  # one after the other: numpy's own sums add in another order
            wide = column.astype(np.float64)
            total += wide * wide
        if not total.all():
            raise no_direction(int(total.argmin()))
        made = np.empty_like(rows)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            made[part] = rows[part] / np.sqrt(total[part])[:, None]
        return made

    def encode(self, rows: Rows) -> tuple[bytes, bytes]:  # noqa: D102
        codes, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            scales[part] = np.abs(rows[part]).max(axis=1) / np.float32(127)
            scale = np.where(scales[part] == 0, np.float32(1), scales[part])
            codes[part] = np.clip(np.rint(rows[part] / scale[:, None]), -127, 127)
        return codes.tobytes(), scales.tobytes()

    def mean(self, rows: Rows) -> bytes:  # noqa: D102
        total = np.zeros(rows.shape[1])
        for row in rows:
            total += row
        return (total / len(rows)).astype(np.float32).tobytes()

    def codes(self, rows: Rows, mean: bytes | memoryview) -> bytes:  # noqa: D102
        means = np.frombuffer(mean, np.float32)
        made = np.zeros((len(rows), -(-len(means) // 64) * 8), np.uint8)
        made[:, : -(-len(means) // 8)] = np.packbits(rows > means, axis=1, bitorder="little")
        return made.tobytes()

    def floats(self, rows: Rows, kind: str) -> bytes:  # noqa: D102
        if kind == "f32":
            return rows.tobytes()
        large = np.abs(rows).max(axis=1) > _MAX_F16
        if large.any():
            raise too_large(int(large.argmax()))
        return rows.astype(np.float16).tobytes()

    def decoded(self, codes: bytes, scales: bytes, kept: bytes, kind: str, dimension: int) -> Rows:  # noqa: D102
        if kind != "int8":
            rows = np.frombuffer(kept, np.float16 if kind == "f16" else np.float32)
            return rows.reshape(-1, dimension).astype(np.float32)
        whole = np.frombuffer(codes, np.int8).reshape(-1, dimension).astype(np.float32)
        return whole * np.frombuffer(scales, np.float32)[:, None]

    def scan(  # noqa: D102
        self,
        codes: Codes,
        query: Query,
        k: int,
        allowed: bytes | None,
        picked: Sequence[int] | None,
        span: tuple[int, int],
    ) -> list[Scored]:
        data = np.frombuffer(codes.rows, np.int8).reshape(codes.count, codes.dimension)
        scales = np.frombuffer(codes.scales, np.float32)
        chosen = None if picked is None else np.asarray(picked, np.intp)
        if picked is None and span != (0, codes.count):
            chosen = np.arange(*span)
        if allowed is not None:
            mask = np.frombuffer(allowed, np.bool_)
            chosen = np.flatnonzero(mask) if chosen is None else chosen[mask[chosen]]
        asked = np.frombuffer(query.codes, np.int8).astype(np.float32)
        count = codes.count if chosen is None else len(chosen)
        scores = np.empty(count, np.float32)
        for start in range(0, count, _BLOCK):
            part = slice(start, start + _BLOCK)
            block = data[part] if chosen is None else data[chosen[part]]
            scores[part] = _dots(block, asked) * (scales[part] if chosen is None else scales[chosen[part]])
        places = _largest(scores, k)
        rows = places if chosen is None else chosen[places]
        return list(zip(scores[places].tolist(), rows.tolist(), strict=True))

    def nearest(self, codes: Codes, code: bytes, count: int, allowed: bytes | None) -> Sequence[int]:  # noqa: D102
        size = len(code) // 8
        data = np.frombuffer(codes.bits, np.uint64).reshape(codes.count, size)
        asked = np.frombuffer(code, np.uint64)
        far = np.empty(codes.count, np.int32)
        for start in range(0, codes.count, _CODES):
            part = slice(start, start + _CODES)
            far[part] = _ones(data[part] ^ asked)
        if allowed is not None:
            far[~np.frombuffer(allowed, np.bool_)] = np.iinfo(np.int32).max
            count = min(count, int(np.count_nonzero(np.frombuffer(allowed, np.bool_))))
        rows: Sequence[int] = np.sort(_largest(-far, count)).astype(np.uint32).data
        return rows

    def exact(self, codes: Codes, query: Query, picked: Sequence[int]) -> list[float]:  # noqa: D102
        assert codes.floats is not None
        is_half = len(codes.floats) == 2 * codes.count * codes.dimension
        data = np.frombuffer(codes.floats, np.float16 if is_half else np.float32)
        data = data.reshape(codes.count, codes.dimension)[np.asarray(picked, np.intp)].T.astype(np.float64)
        total = np.zeros(data.shape[1])
        for column, asked in zip(data, query.floats, strict=True):  # one after the other, as in plain Python
            total += column * asked
        found: list[float] = total.astype(np.float32).tolist()
        return found


def _whole(vectors: Any) -> Any:
    if isinstance(vectors, (list, tuple)) and vectors and hasattr(vectors[0], "tolist"):
        return [one.tolist() for one in vectors]
    return vectors


def _refuse(vectors: Any, dimension: int) -> None:
    """Raise the error of the first vector that does not fit."""
    from edge_infer.vectors.plain import Plain

    Plain().rows(vectors, dimension)


def _dots(block: np.ndarray[Any, Any], asked: Rows) -> Rows:
    """Return the dot products as float32; each is the whole number, rounded once."""
    if len(asked) <= _EXACT:
        # Not `@`: the threads of its library wait for each other longer than this takes.
        made: Rows = np.einsum("ij,j->i", block.astype(np.float32), asked)
        return made
    total = np.zeros(len(block), np.int64)
    for start in range(0, len(asked), _EXACT):
        part = slice(start, start + _EXACT)
        total += np.einsum("ij,j->i", block[:, part].astype(np.float32), asked[part]).astype(np.int64)
    return total.astype(np.float32)


def _largest(scores: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """Return the places of the largest, the largest first; of equal ones the lower place."""
    if k >= len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)
    places = np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]])
    places.sort()
    return places[np.argsort(-scores[places], kind="stable")]


def _ones(words: np.ndarray[Any, Any]) -> Any:
    """Count the bits of each row of 64-bit words."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.bitwise_count(words).sum(axis=1, dtype=np.int32)
    return _table()[words.view(np.uint8)].sum(axis=1, dtype=np.int32)


@cache
def _table() -> np.ndarray[Any, Any]:
    return np.array([byte.bit_count() for byte in range(256)], np.uint8)
