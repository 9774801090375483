"""Added tokens: texts such as `[MASK]` or `<|end|>` that are found before anything else is done to a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.tasks.text import alignment
from edge_infer.tasks.text.definition import unsupported
from edge_infer.tasks.text.unicode_table import members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edge_infer.tasks.text.alignment import Normalizer, Piece
    from edge_infer.tasks.text.definition import Part

#: The longest token; all that a place may begin with are compared with it.
_MAX_CHARACTERS = 4096


class AddedToken(NamedTuple):
    """One of them.

    Attributes:
        number: Its id.
        text: What it is in a text.
        is_word: It is none inside a word.
        takes_left: The white space in front belongs to it.
        takes_right: The white space behind belongs to it.
        is_normalized: It is looked for, normalized, in the normalized text; else in the given text.
        is_special: `decode` leaves it out.
    """

    number: int
    text: str
    is_word: bool
    takes_left: bool
    takes_right: bool
    is_normalized: bool
    is_special: bool


def read_added_tokens(file: Part, vocabulary: Mapping[str, int]) -> list[AddedToken]:
    """Return the added tokens of a file; one that the vocabulary has keeps its id there.

    Raises:
        BundleError: A part is malformed.
        UnsupportedModel: One has more than 4096 characters.
    """
    found = []
    for part in file.parts("added_tokens") if file.values.get("added_tokens") is not None else []:
        text, number, is_special = part.text("content"), part.whole("id"), part.flag("special", False)
        if len(text) > _MAX_CHARACTERS:
            unsupported(f"`{part.where}.content`", f"a text of {len(text)} characters")
        if text:
            is_word, left, right = (part.flag(name, False) for name in ("single_word", "lstrip", "rstrip"))
            is_normalized = part.flag("normalized", not is_special)
            found.append(
                AddedToken(vocabulary.get(text, number), text, is_word, left, right, is_normalized, is_special)
            )
    return found


class Matcher:
    """Finds added tokens in a text: the leftmost, and of those the longest.

    Attributes:
        tokens: What is found, by its text, normalized.

    Args:
        tokens: What to find.
        normalize: What is done to their texts first; None for nothing.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalize: Normalizer | None) -> None:
        self.tokens: dict[str, AddedToken] = {}
        for one in tokens:
            text = normalize(one.text, None)[0] if normalize else one.text
            if text:
                self.tokens[text] = one
        lengths: dict[str, set[int]] = {}
        for text in self.tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        #: The lengths of the tokens that begin with a character, longest first.
        self._lengths = {character: sorted(of, reverse=True) for character, of in lengths.items()}
        self._begins = re.compile("|".join(map(re.escape, sorted(lengths)))) if lengths else None

    def _find(self, text: str) -> Iterator[tuple[int, int, AddedToken]]:
        if self._begins is None:
            return
        begin = self._begins.search(text)
        while begin:
            start = end = begin.start()
            for length in self._lengths[text[start]]:
                token = self.tokens.get(text[start : start + length])
                if token is not None:
                    end = start + length
                    yield start, end, token
                    break
            begin = self._begins.search(text, max(end, start + 1))

    def split(self, piece: Piece) -> Iterator[tuple[int | None, Piece]]:
        """Cut a piece at the tokens in it; give each part with its id, None for what is between them."""
        text, spans, is_first = piece
        at, is_letter, is_white = 0, members("word"), members("space")
        for start, end, token in self._find(text):
            if token.is_word and ((start and is_letter[text[start - 1]]) or (end < len(text) and is_letter[text[end]])):
                continue
            while token.takes_left and start > at and is_white[text[start - 1]]:
                start -= 1
            while token.takes_right and end < len(text) and is_white[text[end]]:
                end += 1
            if at < start:
                yield None, (*alignment.cut(text, spans, at, start), is_first and at == 0)
            yield token.number, (*alignment.cut(text, spans, start, end), False)
            at = end
        if at < len(text):
            yield None, (*alignment.cut(text, spans, at, len(text)), is_first and at == 0)
