"""Reciprocal rank fusion: one list of two (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.vectors.search import Found, best

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The constant of the paper.
_K = 60
#: How many of each list are looked at, at least.
DEPTH = 100


def fuse(lists: Sequence[Sequence[Found]]) -> list[Found]:
    """Join lists of found rows: a row's score is the sum of `1 / (60 + rank)` over the lists that have it.

    Args:
        lists: Lists, each the best first.
    """
    found: dict[int, Found] = {}
    for one in lists:
        for rank, row in enumerate(one, 1):
            before = found.get(row.id)
            found[row.id] = row._replace(score=(before.score if before else 0.0) + 1 / (_K + rank))
    return best(list(found.values()), len(found))
