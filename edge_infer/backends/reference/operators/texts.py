"""Operators of texts."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.patterns import Pattern

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _each(x: Array, function: Any, dtype: Any = object) -> Array:
    result = np.empty(x.shape, dtype)
    result.reshape(-1)[:] = [function(one) for one in x.reshape(-1)]
    return result


def string_concat(call: Call, a: Array, b: Array) -> Array:
    """Compute StringConcat."""
    first, second = np.broadcast_arrays(a, b)
    result = np.empty(first.shape, object)
    result.reshape(-1)[:] = [str(x) + str(y) for x, y in zip(first.reshape(-1), second.reshape(-1), strict=True)]
    return result


def string_split(call: Call, x: Array) -> tuple[Array, Array]:
    """Compute StringSplit: parts, filled up with empty texts, and how many there are."""
    limit = call.get("maxsplit", None)
    parts = [str(one).split(call.get("delimiter", "") or None, -1 if limit is None else limit) for one in x.reshape(-1)]
    most = max((len(one) for one in parts), default=0)
    table = np.full((len(parts), most), "", object)
    for row, found in zip(table, parts, strict=True):
        row[: len(found)] = found
    counts = np.array([len(one) for one in parts], np.int64).reshape(x.shape)
    return table.reshape(*x.shape, most), counts


def regex_full_match(call: Call, x: Array) -> Array:
    """Compute RegexFullMatch, within a bound of steps."""
    pattern = Pattern(call.get("pattern", ""))
    return _each(x, lambda one: pattern.matches(str(one)), bool)


def string_normalizer(call: Call, x: Array) -> Array:
    """Compute StringNormalizer: without stop words, of one case; a text that is left empty falls away."""
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(call.get("case_change_action", "NONE"), str)
    is_sensitive = bool(call.get("is_case_sensitive", 0))
    words = call.get("stopwords", None) or []
    stops = {*words} if is_sensitive else {one.lower() for one in words}
    rows = []
    for row in np.atleast_2d(x):
        kept = [_plain(str(one)) for one in row]
        kept = [
            " ".join(word for word in one.split(" ") if (word if is_sensitive else word.lower()) not in stops)
            for one in kept
        ]
        rows.append([change(one) for one in kept if one] or [""])
    return np.array(rows if x.ndim == 2 else rows[0], object)


def _plain(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def tfidf(call: Call, x: Array) -> Array:
    """Compute TfIdfVectorizer: counts of n-grams, with gaps of up to `max_skip_count`."""
    pool = call.get("pool_int64s", None) or call.get("pool_strings", None) or []
    starts, places = call.get("ngram_counts", []), call.get("ngram_indexes", [])
    shortest, longest = call.get("min_gram_length", 1), call.get("max_gram_length", 1)
    known: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, start in enumerate(starts, 1):
        end = starts[length] if length < len(starts) else len(pool)
        for at in range(start, end - length + 1, length):
            if shortest <= length <= longest:
                known[tuple(pool[at : at + length])] = places[number]
            number += 1
    width = max(places) + 1
    rows = np.atleast_2d(x)
    counts = np.zeros((rows.shape[0], width))
    for row, total in zip(rows.tolist(), counts, strict=True):
        for length in range(shortest, longest + 1):
            for gap in range(1, (1 if length == 1 else call.get("max_skip_count", 0) + 1) + 1):
                for at in range(len(row) - gap * (length - 1)):
                    place = known.get(tuple(row[at : at + gap * (length - 1) + 1 : gap]))
                    if place is not None:
                        total[place] += 1
                if length == 1:
                    break
    mode, weights = call.get("mode", "TF"), call.get("weights", None)
    if mode == "IDF":
        counts = (counts > 0).astype(float)
    if mode != "TF" and weights:
        counts = counts * np.array(weights)
    return counts.astype(np.float32).reshape(*x.shape[:-1], width)


OPERATORS: dict[str, Operator] = {
    "RegexFullMatch": regex_full_match,
    "StringConcat": string_concat,
    "StringNormalizer": string_normalizer,
    "StringSplit": string_split,
    "TfIdfVectorizer": tfidf,
}
