"""Unicode as the package `tokenizers` knows it, whatever version the Python has that runs this.

`unicode_table.json` is written by `tests/support/tasks/write_unicode_table.py`, which says how. A *class* here is the
inside of `[...]` in a pattern of `re`. A *top* is the last character that a text can have: a class is cut there, since
`re` looks a class of the basic plane up in a bitmap and walks the ranges behind it one by one.
"""

from __future__ import annotations

import json
import pkgutil
import re
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING, Any, NewType

if TYPE_CHECKING:
    from collections.abc import Callable

#: The code points of a set as sorted ranges, both ends included.
Ranges = tuple[tuple[int, int], ...]
Top = NewType("Top", int)
ASCII, BASIC_PLANE, LAST = Top(0x7F), Top(0xFFFF), Top(0x10FFFF)


def top_of(text: str) -> Top:
    """Return the top for a text: three are enough."""
    if text.isascii():
        return ASCII
    return BASIC_PLANE if max(text) < "\U00010000" else LAST


@cache
def _table() -> dict[str, Any]:
    data = pkgutil.get_data(__name__, "unicode_table.json")
    assert data is not None
    table: dict[str, Any] = json.loads(data)
    return table


@cache
def ranges(name: str) -> Ranges:
    """Return the ranges of a set by its name, of a category (`Lu`), or of all categories of a letter (`L`).

    Raises:
        KeyError: There is no such set.
    """
    sets = _table()["sets"]
    if name in sets:
        flat, found, at = sets[name], [], 0
        for gap, length in zip(flat[::2], flat[1::2], strict=True):
            found.append((at + gap, at + gap + length - 1))
            at += gap + length
        return tuple(found)
    categories = [one for one in sets if len(one) == 2 and one[0] == name]
    if not categories:
        raise KeyError(name)
    return union(*(ranges(one) for one in categories))


def union(*many: Ranges) -> Ranges:
    """Return the ranges of what is in any of the sets."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(one for each in many for one in each):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def complement(of: Ranges) -> Ranges:
    """Return the ranges of every code point that is not in the set."""
    found, at = [], 0
    for first, last in of:
        if first > at:
            found.append((at, first - 1))
        at = last + 1
    return (*found, (at, LAST)) if at <= LAST else tuple(found)


def write_class(of: Ranges, top: Top) -> str:
    """Return the set as a class in square brackets, cut at the top; it matches nothing where nothing is left."""
    parts = [
        f"\\U{first:08x}" if first == last else f"\\U{first:08x}-\\U{min(last, top):08x}"
        for first, last in of
        if first <= top
    ]
    return f"[{''.join(parts)}]" if parts else "[^\\U00000000-\\U0010ffff]"


@cache
def characters(name: str) -> str:
    """Return the characters of a small set, one after the other."""
    return "".join(chr(code) for first, last in ranges(name) for code in range(first, last + 1))


class Members(dict[str, bool]):
    """Whether a character is in a set; what was asked once is remembered."""

    def __init__(self, of: Ranges) -> None:
        super().__init__()
        self._edges = [edge for first, last in of for edge in (first, last + 1)]

    def __missing__(self, character: str) -> bool:
        found = self[character] = bisect_right(self._edges, ord(character)) % 2 == 1
        return found


@cache
def members(name: str) -> Members:
    """Return who is in a set: `members("space")["a"]` is false."""
    return Members(ranges(name))


class Rewriting(dict[int, str | None]):
    """A table for `str.translate` that asks a rule about each character when it is first met.

    Args:
        rule: Gives what a character becomes; None where it is removed.
    """

    def __init__(self, rule: Callable[[str], str | None]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str | None:
        found = self[code] = self._rule(chr(code))
        return found


def deleting(name: str) -> Rewriting:
    """Return the table that removes the characters of a set."""
    is_member = members(name)
    return Rewriting(lambda one: None if is_member[one] else one)


@cache
def lower_case() -> Rewriting:
    """Return the table that writes each character in lower case, without looking at the others."""
    table: dict[str, str] = {chr(int(code)): text for code, text in _table()["lower_odd"].items()}
    flat, at = _table()["lower"], 0
    for index in range(0, len(flat), 4):
        gap, length, step, delta = flat[index : index + 4]
        at += gap
        table.update((chr(code), chr(code + delta)) for code in range(at, at + length * step, step))
    return Rewriting(lambda one: table.get(one, one))


@cache
def finder(name: str, top: Top, repeat: str = "") -> re.Pattern[str]:
    """Return the compiled pattern of a set's class; `repeat` is what stands behind it."""
    return re.compile(write_class(ranges(name), top) + repeat)
