"""The part Precompiled: the character map of a SentencePiece model.

The map (https://github.com/google/sentencepiece, src/normalizer.h) is 4 bytes of length, a double array of that many
bytes (https://github.com/s-yata/darts-clone, units of 32 bits) and texts that end with a zero byte. It is applied
grapheme by grapheme (https://www.unicode.org/reports/tr29): one of less than 6 bytes as a whole, any other by its
characters. As in the package, the *shortest* prefix that the map knows replaces all of what was looked up.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode
from functools import lru_cache
from typing import TYPE_CHECKING

from edge_infer.tasks.text.alignment import apply_changes
from edge_infer.tasks.text.definition import malformed
from edge_infer.tasks.text.unicode_table import members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.tasks.text.alignment import Aligned, Change, Normalizer, Spans
    from edge_infer.tasks.text.definition import Part

_HAS_LEAF, _WIDE, _LABEL, _VALUE = 0x100, 0x200, 0x800000FF, 0x7FFFFFFF


class _CharacterMap:
    """The double array and its texts."""

    def __init__(self, data: bytes, where: str) -> None:
        size = int.from_bytes(data[:4], "little")
        if len(data) < 8 or size % 4 or not 4 <= size <= len(data) - 4:
            malformed(f"`{where}`", "is damaged")
        self._units = array("I", data[4 : 4 + size])
        if sys.byteorder == "big":
            self._units.byteswap()
        self._texts = data[4 + size :]
        self.find = lru_cache(65536)(self._find)

    def _find(self, text: str) -> str | None:
        units = self._units
        at = _offset(units[0])
        for byte in text.encode():
            at ^= byte
            if not byte or at >= len(units) or units[at] & _LABEL != byte:
                return None
            unit = units[at]
            at ^= _offset(unit)
            if unit & _HAS_LEAF:
                if at >= len(units):
                    return None
                start = units[at] & _VALUE
                end = self._texts.find(b"\0", start)
                return self._texts[start:end].decode("utf-8", "replace") if end >= 0 else None
        return None


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & _WIDE) >> 6)


def character_map(part: Part) -> Normalizer:
    """Return the step for a part Precompiled.

    Raises:
        BundleError: The map is damaged.
    """
    where = f"{part.where}.precompiled_charsmap"
    written = part.text("precompiled_charsmap", "")
    if not written:
        return lambda text, spans: (text, spans)
    try:
        find = _CharacterMap(b64decode(written, validate=True), where).find
    except ValueError:
        malformed(f"`{where}`", "is not base64")
    changing = {chr(code) for code in range(128) if find(chr(code)) is not None}

    def normalize(text: str, spans: Spans | None) -> Aligned:
        # The line ends that are one grapheme change nothing here: a map that has them has `\r` as well.
        if text.isascii() and changing.isdisjoint(text):
            return text, spans
        changes: list[Change] = []
        is_changed = False
        for grapheme in _graphemes(text):
            new = find(grapheme) if len(grapheme.encode()) < 6 else None
            for old in grapheme if new is None else (grapheme,):
                written = find(old) if new is None else new
                if written is None:
                    changes.append((old, 0))
                else:
                    is_changed = True
                    _replace(changes, len(old), written)
        if not is_changed:
            return text, spans
        return apply_changes(changes, spans) if spans is not None else ("".join(new for new, _ in changes), None)

    return normalize


def _replace(changes: list[Change], old: int, new: str) -> None:
    """Write what replaces `old` characters: the last of the new ones count as inserted, the last of the old as gone."""
    inserted = len(new) - old
    changes += [(character, int(index >= len(new) - inserted)) for index, character in enumerate(new)]
    if inserted < 0 and changes:
        changes[-1] = (changes[-1][0], changes[-1][1] + inserted)


def _graphemes(text: str) -> Iterator[str]:
    extend, prepend, control = (members(f"grapheme_{name}") for name in ("extend", "prepend", "control"))
    start, length = 0, len(text)
    while start < length:
        end = start + 1
        if text[start] == "\r" and text[end : end + 1] == "\n":
            end += 1
        elif not control[text[start]]:
            while end < length and prepend[text[end - 1]] and not control[text[end]]:
                end += 1
            while end < length and _is_one_syllable(ord(text[end - 1]), ord(text[end])):
                end += 1
            while end < length and extend[text[end]]:
                end += 1
        yield text[start:end]
        start = end


def _is_one_syllable(first: int, second: int) -> bool:
    """Whether two code points belong to one Hangul syllable (UAX 29, GB6 to GB8)."""
    is_syllable = 0xAC00 <= second <= 0xD7A3
    is_vowel = 0x1160 <= second <= 0x11A7 or 0xD7B0 <= second <= 0xD7C6
    is_tail = 0x11A8 <= second <= 0x11FF or 0xD7CB <= second <= 0xD7FB
    if 0x1100 <= first <= 0x115F or 0xA960 <= first <= 0xA97C:
        return 0x1100 <= second <= 0x115F or 0xA960 <= second <= 0xA97C or is_vowel or is_syllable
    is_open = 0xAC00 <= first <= 0xD7A3 and (first - 0xAC00) % 28 == 0
    if is_open or 0x1160 <= first <= 0x11A7 or 0xD7B0 <= first <= 0xD7C6:
        return is_vowel or is_tail
    return (0xAC00 <= first <= 0xD7A3 or 0x11A8 <= first <= 0x11FF or 0xD7CB <= first <= 0xD7FB) and is_tail
