"""A found entry of an index."""

from __future__ import annotations

from typing import Any, NamedTuple


class Hit(NamedTuple):
    """One entry that a search found.

    Attributes:
        id: The entry's number.
        score: How near it is, larger is nearer: the cosine or the dot product, or the BM25 score of a search by words,
            or the sum of reciprocal ranks of a hybrid search.
        text: Its text; None where it was added without one.
        metadata: Its metadata; empty where it was added without.
    """

    id: int
    score: float
    text: str | None
    metadata: dict[str, Any]
