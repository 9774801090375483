"""How many of the truly nearest entries a search finds, measured on the index's own vectors."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edge_infer.vectors.index import Index
    from edge_infer.vectors.segment import Segment
    from edge_infer.vectors.view import View


class Recall(NamedTuple):
    """What was measured.

    Attributes:
        quick: The share of the nearest `k` that a search finds.
        full: The share that a search with `full_scan` finds.
        queries: How many entries were looked for.
        truth: What the nearest are by: `vectors` where the index keeps them, `8-bit rows` else. The search compares
            8-bit rows, so of an index without vectors `full` is 1.
    """

    quick: float
    full: float
    queries: int
    truth: str


def measure_recall(index: Index, queries: int = 100, k: int = 10) -> Recall:
    """Look for entries that are spread evenly over the index.

    Args:
        index: The index.
        queries: How many entries to look for.
        k: How many neighbours of each.
    """
    view, arithmetic = index.view, index.computing
    count = sum(one.count for one in view.segments)
    keeps = any(one.floats is not None for one in view.segments)
    found = {"quick": 0, "full": 0, "all": 0, "queries": 0}
    for place in range(0, count, max(1, count // max(1, queries))):
        segment, alive, row = _at(view, place)
        if (alive is not None and not alive[row]) or found["queries"] == queries:
            continue
        wide = segment.dimension
        size = 0 if segment.floats is None else len(segment.floats) // segment.count
        vector = arithmetic.decoded(
            bytes(segment.rows[row * wide : (row + 1) * wide]),
            bytes(segment.scales[row : row + 1]),
            b"" if segment.floats is None else bytes(segment.floats[row * size : (row + 1) * size]),
            view.catalogue.rows,
            wide,
        )[0]
        if not any(vector):
            continue
        full = [hit.id for hit in index.search(vector, k, full_scan=True)]
        quick = {hit.id for hit in index.search(vector, k)}
        truth = set(_nearest(index, array("f", vector.tolist()), k)) if keeps else {*full}
        found["quick"] += len(quick & truth)
        found["full"] += len(truth & {*full})
        found["all"] += len(truth)
        found["queries"] += 1
    total = found["all"] or 1
    return Recall(found["quick"] / total, found["full"] / total, found["queries"], "vectors" if keeps else "8-bit rows")


def _at(view: View, place: int) -> tuple[Segment, bytes | None, int]:
    """Return the segment of a stored row, which of its rows are alive, and the row there."""
    for segment, alive in zip(view.segments, view.alive, strict=True):
        if place < segment.count:
            return segment, alive, place
        place -= segment.count
    raise IndexError(place)


def _nearest(index: Index, vector: array[float], k: int) -> list[int]:
    """Return the ids of the nearest by the kept vectors, each of which is compared."""
    from edge_infer.vectors.ways import encode_query

    view = index.view
    query = encode_query(vector, view.catalogue.dimension, view.catalogue.metric)
    scored = []
    for segment, alive in zip(view.segments, view.alive, strict=True):
        rows = [row for row in range(segment.count) if alive is None or alive[row]]
        scores = index.computing.exact(segment, query, rows)
        scored += [(-score, segment.ids[row]) for score, row in zip(scores, rows, strict=True)]
    return [number for _, number in sorted(scored)[:k]]
