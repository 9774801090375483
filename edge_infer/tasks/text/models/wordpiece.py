"""WordPiece: the longest token that the rest of the word begins with, again and again.

https://github.com/google-research/bert, tokenization.py (`WordpieceTokenizer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.text.definition import unsupported
from edge_infer.tasks.text.models.base import cannot_write

if TYPE_CHECKING:
    import re

    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.models.base import Token

#: The most characters that a word may be asked to have before it is unknown; published tokenizers have 100 or 200.
_MAX_LIMIT = 1000


class WordPiece:
    """The model of a part WordPiece.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: Its words may be longer than 1000 characters.
    """

    cut: re.Pattern[str] | None = None

    def __init__(self, part: Part) -> None:
        self.vocabulary = part.vocabulary("vocab")
        self._unknown = self.vocabulary.get(part.text("unk_token", "[UNK]"))
        self._prefix = part.text("continuing_subword_prefix", "##")
        self._limit = part.whole("max_input_chars_per_word", 100)
        self._longest = max(map(len, self.vocabulary), default=0)
        if self._limit > _MAX_LIMIT:
            unsupported(f"`{part.where}.max_input_chars_per_word`", f"{self._limit}")

    def split(self, word: str) -> list[Token]:
        """Return the tokens of a word; the unknown one where a part of it is in no token."""
        vocabulary, length, prefix = self.vocabulary, len(word), self._prefix
        if (whole := vocabulary.get(word)) is not None and length <= self._limit:
            return [(whole, 0, length)]
        found: list[Token] = []
        start = 0
        while length <= self._limit:
            for end in range(min(length, start + self._longest), start, -1):
                number = vocabulary.get(prefix + word[start:end] if start else word[:end])
                if number is not None:
                    break
            else:
                break
            found.append((number, start, end))
            start = end
            if start == length:
                return found
        if self._unknown is None:
            cannot_write(word)
        return [(self._unknown, 0, length)]
