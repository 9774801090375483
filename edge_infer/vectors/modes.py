"""The modes of a search: by the vector of a query, by its words, or by both."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.vectors.fusion import DEPTH, fuse
from edge_infer.vectors.hit import Hit
from edge_infer.vectors.postings import score_words
from edge_infer.vectors.search import Found, best, nearest
from edge_infer.vectors.ways import encode_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.vectors.arithmetic import Arithmetic
    from edge_infer.vectors.view import View

MODES = ("vectors", "words", "hybrid")
MAX_K = 10_000


def check_search(k: object, mode: object) -> None:
    """Check what does not depend on the index.

    Raises:
        InputError: `k` or `mode` is not what it can be.
    """
    if type(k) is not int or not 1 <= k <= MAX_K:
        raise InputError(f"`k` is {k!r}, expected 1 to {MAX_K:,}", hint="k=10", got=k)
    if mode not in MODES:
        raise InputError(f"`mode` is {mode!r}", hint='use "vectors", "words" or "hybrid"', allowed=[*MODES])


def find(
    view: View,
    arithmetic: Arithmetic,
    text: str | None,
    vector: Any,
    k: int,
    *,
    where: Mapping[str, Any] | None,
    full_scan: bool,
    mode: str,
) -> list[Hit]:
    """Find the nearest entries of an index as it is, with what computes; the others are arguments of `Index.find`.

    Raises:
        InputError: The query does not fit the index, or an argument is not what it can be.
        BundleError: The index is damaged.
    """
    check_search(k, mode)
    if mode != "vectors" and text is None:
        raise InputError(f"a vector has no words to look for in the mode {mode!r}", hint='mode="vectors"')
    if mode != "vectors" and not view.catalogue.words:
        raise InputError("the index does not count words", hint='Index.create(..., words=True), or mode="vectors"')
    masks = view.masks(where)
    if mode == "words" and text is not None:
        return _hits(view, _by_words(view, masks, text, k))
    asked = encode_query(vector, view.catalogue.dimension, view.catalogue.metric)
    deep = max(DEPTH, k) if mode == "hybrid" else k
    found = nearest(view.segments, masks, asked, deep, arithmetic, full_scan=full_scan)
    if mode == "hybrid" and text is not None:
        return _hits(view, fuse([found, _by_words(view, masks, text, deep)])[:k])
    if view.catalogue.rows == "int8":
        scores = array("f", [one.score * asked.factor for one in found])
        found = [one._replace(score=score) for one, score in zip(found, scores, strict=True)]
    return _hits(view, found)


def _by_words(view: View, masks: Sequence[bytes | None], text: str, k: int) -> list[Found]:
    scores = score_words([one.postings for one in view.segments], text)
    found = []
    for place, (segment, mask, here) in enumerate(zip(view.segments, masks, scores, strict=True)):
        found += [
            Found(score, segment.ids[row], place, row) for row, score in here.items() if mask is None or mask[row]
        ]
    return best(found, k)


def _hits(view: View, found: Sequence[Found]) -> list[Hit]:
    return [Hit(one.id, one.score, *view.segments[one.segment].payload(one.row)) for one in found]
