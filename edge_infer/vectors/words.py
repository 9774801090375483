"""The words of a text, as the search by words counts them: the same in Python and in the page.

A word is a run of letters, marks and digits in lower case, by the Unicode table of the tokenizers. Scripts without
spaces (Han, Hiragana, Katakana) give a word for each character.
"""

from __future__ import annotations

import re
from functools import cache

from edge_infer.tasks.text.unicode_table import LAST, lower_case, ranges, union, write_class

#: CJK ideographs with their extensions and compatibility forms, Hiragana and Katakana, by the blocks of Unicode.
ONE_BY_ONE = ((0x3041, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
#: Longer runs are cut: they are no words of a language.
MAX_LENGTH = 64
_ASCII = re.compile("[a-z0-9]+")


@cache
def _pattern() -> re.Pattern[str]:
    single = write_class(ONE_BY_ONE, LAST)
    return re.compile(f"{single}|(?:(?!{single}){write_class(union(ranges('L'), ranges('M'), ranges('N')), LAST)})+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in their order.

    >>> words_of("The café, open 24h: 東京")
    ['the', 'café', 'open', '24h', '東', '京']
    """
    found = _ASCII.findall(text.lower()) if text.isascii() else _pattern().findall(text.translate(lower_case()))
    return [word[:MAX_LENGTH] for word in found]
