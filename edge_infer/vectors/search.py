"""The search itself: which rows of which segments are nearest to a query.

Above 100,000 rows, the 1-bit codes choose `max(1000, rows / 100, 4 * k)` candidates of each segment, whose 8-bit rows
are then compared. A segment of fewer rows than 8 times as many, or a filter that lets no more through, is compared
whole. (So many, because they cost little: of 100,000 vectors of sentences, 200 candidates hold 0.93 of the nearest
ten, 1000 hold 0.985, all of them 0.989.)

Where an index keeps its vectors, the best `max(200, 4 * k)` by their 8-bit rows are scored again by these.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.vectors.arithmetic import Arithmetic, Query
    from edge_infer.vectors.segment import Segment

#: Indexes of more rows are searched by their 1-bit codes first.
PREFILTER_ROWS = 100_000
_LEAST, _SHARE, _WHOLE = 1000, 100, 8
#: So many are scored again by the kept vectors.
_EXACT = 200


class Found(NamedTuple):
    """A row that a search found; of two with equal scores the lower id comes first.

    Attributes:
        score: Its score.
        id: Its id.
        segment: The place of its segment.
        row: Its row there.
    """

    score: float
    id: int
    segment: int
    row: int


def best(found: Sequence[Found], k: int) -> list[Found]:
    """Return the k best, the best first."""
    return sorted(found, key=lambda one: (-one.score, one.id))[:k]


def nearest(
    segments: Sequence[Segment],
    masks: Sequence[bytes | None],
    query: Query,
    k: int,
    arithmetic: Arithmetic,
    *,
    full_scan: bool,
) -> list[Found]:
    """Return the k nearest rows, the nearest first; their scores are without `query.factor`.

    Args:
        segments: The segments.
        masks: For each segment a byte for each row, 0 where it is left out; None for all rows.
        query: What is looked for.
        k: The most that are returned.
        arithmetic: What computes.
        full_scan: Whether each 8-bit row is compared, however many there are.
    """
    keeps_floats = any(one.floats is not None for one in segments)
    wanted = max(_EXACT, 4 * k) if keeps_floats else k
    is_large = sum(one.count for one in segments) > PREFILTER_ROWS and not full_scan

    def look(place: int, candidates: int, span: tuple[int, int]) -> list[Found]:
        segment, mask = segments[place], masks[place]
        picked: Sequence[int] | None = None
        if candidates:
            picked = arithmetic.nearest(segment, _code(segment, query), candidates, mask)
        rows = arithmetic.scan(segment, query, wanted, mask, picked, span)
        return [Found(score, segment.ids[row], place, row) for score, row in rows]

    wide = len(query.codes)
    work, chosen = 0, []
    for place, (segment, mask) in enumerate(zip(segments, masks, strict=True)):
        left = segment.count if mask is None else segment.count - mask.count(0)
        candidates = max(_LEAST, segment.count // _SHARE, 4 * k, wanted)
        is_picked = is_large and left > _WHOLE * candidates
        if left:
            chosen.append((place, candidates if is_picked else 0))
            work += segment.count * -(-wide // 8) if is_picked else left * wide
    tasks = []
    for place, candidates in chosen:
        count = segments[place].count
        spans = [(0, count)] if candidates else arithmetic.spans(count, wide, work)
        tasks += [partial(look, place, candidates, span) for span in spans]
    found = [one for part in arithmetic.each(tasks, work) for one in part]
    found = best(found, wanted)
    if not keeps_floats:
        return found
    exact: list[Found] = []
    for place, segment in enumerate(segments):
        here = [one for one in found if one.segment == place]
        scores = arithmetic.exact(segment, query, [one.row for one in here]) if here else []
        exact += [one._replace(score=score) for one, score in zip(here, scores, strict=True)]
    return best(exact, k)


def _code(segment: Segment, query: Query) -> bytes:
    """Return the 1-bit code of a query against the mean of a segment."""
    made = 0
    for i, (value, mean) in enumerate(zip(query.floats, segment.mean, strict=True)):
        made |= (value > mean) << i
    return made.to_bytes(-(-segment.dimension // 64) * 8, "little")
