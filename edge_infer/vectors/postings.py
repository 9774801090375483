"""Which words stand in which rows of a segment, and the BM25 scores of a query by them.

The score of a row is the sum, over the different words of the query in the order of their UTF-8 bytes, of `idf * count
* (k1 + 1) / (count + k1 * (1 - b + b * length / mean))` with `k1 = 1.2`, `b = 0.75` and `idf = ln(1 + (rows - having +
0.5) / (having + 0.5))` (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009; the idf is Lucene's).
`rows`, `having` and `mean` are of all segments, deleted rows included until the index is compacted. The logarithm is
`natural_log` and not the system's: so that Python and JavaScript get the same bits.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BundleError
from edge_infer.vectors.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_K1, _B = 1.2, 0.75
#: ln(2) rounded to a double.
_LN2 = 0.6931471805599453
_MAX_COUNT = 0xFFFF


class Postings(NamedTuple):
    """The words of a segment.

    Attributes:
        terms: The different words in UTF-8, one after the other, sorted by their bytes.
        term_ends: Where each of them ends.
        ends: Where the rows of each word end in `rows`.
        rows: The rows of each word, rising.
        counts: How often the word stands in each of them.
        lengths: How many words each row of the segment has.
    """

    terms: memoryview
    term_ends: memoryview
    ends: memoryview
    rows: memoryview
    counts: memoryview
    lengths: memoryview


def count_words(texts: Sequence[str | None]) -> Postings:
    """Count the words of each text; a row without a text has none."""
    found: dict[str, tuple[array[int], array[int]]] = {}
    lengths = array("I", bytes(4 * len(texts)))
    for row, text in enumerate(texts):
        words = words_of(text) if text else []
        lengths[row] = len(words)
        for word, count in Counter(words).items():
            rows, counts = found.setdefault(word, (array("I"), array("H")))
            rows.append(row)
            counts.append(min(count, _MAX_COUNT))
    terms, term_ends, ends, all_rows, all_counts = bytearray(), array("I"), array("I"), array("I"), array("H")
    for term, word in sorted((word.encode(), word) for word in found):
        rows, counts = found[word]
        terms += term
        term_ends.append(len(terms))
        all_rows += rows
        all_counts += counts
        ends.append(len(all_rows))
    parts = (bytes(terms), term_ends, ends, all_rows, all_counts, lengths)
    return Postings(*(memoryview(part) for part in parts))


def score_words(segments: Sequence[Postings | None], text: str) -> list[dict[int, float]]:
    """Return for each segment the BM25 scores of the rows that have a word of the query."""
    known = [one for one in segments if one is not None]
    rows = sum(len(one.lengths) for one in known)
    mean = sum(sum(one.lengths) for one in known) / rows if rows else 0.0
    scores: list[dict[int, float]] = [{} for _ in segments]
    for term in sorted({word.encode() for word in words_of(text)}):
        spans = [_span(one, term) if one is not None else None for one in segments]
        having = sum(span[1] - span[0] for span in spans if span is not None)
        if not having:
            continue
        idf = natural_log(1 + (rows - having + 0.5) / (having + 0.5))
        for one, span, found in zip(segments, spans, scores, strict=True):
            if one is None or span is None:
                continue
            try:
                _add(one, span, idf, mean, found)
            except (IndexError, ZeroDivisionError) as error:
                raise BundleError(f"the words of the index are damaged: {error}", hint="build it again") from error
    return scores


def _add(one: Postings, span: tuple[int, int], idf: float, mean: float, found: dict[int, float]) -> None:
    for i in range(*span):
        row, count = one.rows[i], one.counts[i]
        part = idf * (count * (_K1 + 1)) / (count + _K1 * (1 - _B + _B * one.lengths[row] / mean))
        found[row] = found.get(row, 0.0) + part


def _span(postings: Postings, term: bytes) -> tuple[int, int] | None:
    """Find the rows of a word: the part of `rows` that is its own."""
    low, high = 0, len(postings.term_ends)
    while low < high:
        middle = (low + high) // 2
        start = postings.term_ends[middle - 1] if middle else 0
        here = bytes(postings.terms[start : postings.term_ends[middle]])
        if here == term:
            first = postings.ends[middle - 1] if middle else 0
            return first, postings.ends[middle]
        low, high = (middle + 1, high) if here < term else (low, middle)
    return None


def natural_log(value: float) -> float:
    """Return the natural logarithm of a number from 1 on, by additions, products and quotients alone.

    With `value = 2^n * m` and `z = (m - 1) / (m + 1)` it is `n * ln 2 + 2 * (z + z^3/3 + z^5/5 + ...)`; 20 terms leave
    less than a unit in the last place for m between 1 and 2.
    """
    power = 0
    while value >= 2:
        value /= 2
        power += 1
    z = (value - 1) / (value + 1)
    square, total = z * z, 0.0
    for odd in range(39, 0, -2):
        total = total * square + 1 / odd
    return power * _LN2 + 2 * z * total
