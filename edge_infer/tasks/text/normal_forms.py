"""The normal forms of Unicode (https://www.unicode.org/reports/tr15), with spans, as the package has them.

Python's own `unicodedata` does the work. Characters that the package's table is too old to know, or that are younger
than the oldest Python which is supported, are left alone: so every Python gives the same.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Literal, cast

from edge_infer.tasks.text.alignment import apply_changes
from edge_infer.tasks.text.unicode_table import finder, members, top_of

if TYPE_CHECKING:
    from edge_infer.tasks.text.alignment import Aligned, Change, Normalizer, Spans

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def normal_form(name: str) -> Normalizer:
    """Return the step that brings a text into one of `FORMS`."""
    form = cast("_Form", name)
    decomposed: _Form = "NFKD" if "K" in form else "NFD"

    def normalize(text: str, spans: Spans | None) -> Aligned:
        if text.isascii():
            return text, spans
        if spans is None:
            return _without_spans(text, form), None
        changes = _decompose(text, decomposed)
        return apply_changes(_compose(changes) if form[-1] == "C" else changes, spans)

    return normalize


def _without_spans(text: str, form: _Form) -> str:
    parts, at = [], 0
    for found in finder("unnormalized", top_of(text), "+").finditer(text):
        parts += [unicodedata.normalize(form, text[at : found.start()]), found[0]]
        at = found.end()
    return "".join(parts) + unicodedata.normalize(form, text[at:])


def _decompose(text: str, form: _Form) -> list[Change]:
    """Return the decomposed characters, the marks behind each starter sorted by their class."""
    unknown = members("unnormalized")
    changes: list[Change] = []
    marks: list[tuple[int, str, int]] = []
    for old in text:
        is_known = not unknown[old]
        for index, character in enumerate(unicodedata.normalize(form, old) if is_known else old):
            order = unicodedata.combining(character) if is_known else 0
            if order:
                marks.append((order, character, int(index > 0)))
                continue
            changes += _sorted(marks)
            marks = []
            changes.append((character, int(index > 0)))
    return changes + _sorted(marks)


def _sorted(marks: list[tuple[int, str, int]]) -> list[Change]:
    return [(character, change) for _, character, change in sorted(marks, key=lambda one: one[0])]


def _compose(changes: list[Change]) -> list[Change]:
    """Join each mark with its starter where both are one character (UAX 15, D117)."""
    unknown = members("unnormalized")
    found: list[Change] = []
    starter, last = -1, -1  # the index of the starter, and the class of the last mark that is kept behind it
    for character, change in changes:
        is_known = not unknown[character]
        order = unicodedata.combining(character) if is_known else 0
        if starter >= 0 and is_known and (last < order or last == -1):
            both = unicodedata.normalize("NFC", found[starter][0] + character)
            if len(both) == 1 and (last == -1 or order) and not unknown[found[starter][0]]:
                found[starter] = (both, found[starter][1] + change - 1)
                continue
        found.append((character, change))
        if order:
            last = order
        else:
            starter, last = len(found) - 1, -1
    return found
