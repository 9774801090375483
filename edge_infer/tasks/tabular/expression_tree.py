"""Expressions over columns as data: what a manifest may hold, checked before anything is computed.

An expression is a number, null (missing), `["col", NAME]`, `["text", TEXT]`, or a list of an operator's word and what
it takes. `web/src/tasks/tabular/expression.js` reads the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError, did_you_mean, listed
from edge_infer.tasks.parameters import shown

if TYPE_CHECKING:
    from typing import Any

BINARY = ("+", "-", "*", "/", "==", "!=", "<", "<=", ">", ">=", "&", "|", "fill_null")
UNARY = ("neg", "abs", "not", "log", "log1p", "sqrt", "floor", "is_null", "length")
_WORDS = (*BINARY, *UNARY, "col", "text", "clip", "when", "lookup")
#: What one expression may have: of parts, and of parts inside one another.
MAX_PARTS, MAX_DEPTH = 4096, 64
#: The groups of one statistic.
MAX_GROUPS = 2**16


def check(tree: Any, where: str) -> set[str]:
    """Check an expression, and return the names of its columns.

    Raises:
        ManifestError: It is none; the message says which part is wrong.
    """
    names: set[str] = set()
    left, parts = [(tree, 0)], 0
    while left:
        part, depth = left.pop()
        parts += 1
        if parts > MAX_PARTS or depth > MAX_DEPTH:
            raise ManifestError(
                f"{where} is too large, expected at most {MAX_PARTS} parts and {MAX_DEPTH} inside one another",
                hint="compute parts of it as columns of their own first",
            )
        if part is None or _is_number(part):
            continue
        if not isinstance(part, list) or not part or not isinstance(part[0], str):
            raise ManifestError(
                f"{where} has {shown(part)}, expected a number, null or a list that begins with a word",
                hint='["col", "NAME"]',
            )
        word, *given = part
        if word not in _WORDS:
            raise ManifestError(
                f"{where} has the unknown word {shown(word)}",
                hint=did_you_mean(word, list(_WORDS)) or f"choose from {listed(list(_WORDS))}",
            )
        if word == "col" and _are(given, str, 1):
            names.add(given[0])
        elif word in BINARY and len(given) == 2:
            left += [(one, depth + 1) for one in given]
        elif word in UNARY and len(given) == 1:
            left.append((given[0], depth + 1))
        elif word == "when" and len(given) == 3:
            left += [(one, depth + 1) for one in given]
        elif word in ("clip", "lookup") and len(given) == 3 and _HAS_RIGHT_REST[word](*given[1:]):
            left.append((given[0], depth + 1))
        elif not (word == "text" and _are(given, str, 1)):
            raise ManifestError(f"{where}: {shown(part)} is not what `{word}` takes", hint=_form(word), field=word)
    return names


def _is_lookup(keys: Any, values: Any) -> bool:
    if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
        return False
    if len(keys) > MAX_GROUPS or not all(map(_is_number, values)):
        return False
    if all(map(_is_number, keys)):
        return len(set(map(float, keys))) == len(keys)
    return all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys)


def _are_bounds(low: Any, high: Any) -> bool:
    return all(one is None or _is_number(one) for one in (low, high))


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float64 holds
        return False


def _are(given: list[Any], kind: type, count: int) -> bool:
    return len(given) == count and all(isinstance(one, kind) for one in given)


# What the words take that are no operators.
_FORMS = {
    "col": '"NAME"',
    "text": '"TEXT"',
    "clip": "X, LOW, HIGH",
    "when": "CONDITION, X, Y",
    "lookup": 'X, ["a", "b"], [0, 1]',
}
_HAS_RIGHT_REST = {"clip": _are_bounds, "lookup": _is_lookup}


def _form(word: str) -> str:
    """Return how a word is written with what it takes."""
    parts = _FORMS.get(word) or ("X, Y" if word in BINARY else "X")
    return f'["{word}", {parts}]'
