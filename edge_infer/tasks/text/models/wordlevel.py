"""WordLevel: each word is one token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.text.models.base import cannot_write

if TYPE_CHECKING:
    import re

    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.models.base import Token


class WordLevel:
    """The model of a part WordLevel.

    Raises:
        BundleError: The part is malformed.
    """

    cut: re.Pattern[str] | None = None

    def __init__(self, part: Part) -> None:
        self.vocabulary = part.vocabulary("vocab")
        self._unknown = self.vocabulary.get(part.text("unk_token", "<unk>"))

    def split(self, word: str) -> list[Token]:
        """Return the one token of a word."""
        number = self.vocabulary.get(word, self._unknown)
        if number is None:
            cannot_write(word)
        return [(number, 0, len(word))]
