"""Tokens to text, piece by piece: a character that is not whole yet is held back."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_infer.generation.vocabulary import Vocabulary

_Decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """Writes the text of tokens that arrive one by one.

    The pieces together are the text of all tokens' bytes; bytes that are not UTF-8 become U+FFFD, as in JavaScript's
    `TextDecoder`. They never raise an error.

    Args:
        vocabulary: The bytes of each token.
        is_answer: Whether the text stands alone, as an answer in a chat does, and does not go on from a prompt. Then
            the first token is written as the tokenizer writes a first token: some leave its space out.
    """

    def __init__(self, vocabulary: Vocabulary, *, is_answer: bool = False) -> None:
        self._vocabulary = vocabulary
        self._is_first = is_answer
        self._decoder = _Decoder("replace")

    def add(self, token: int) -> str:
        """Take the next token and return the text that is now certain; an empty one where there is none."""
        data = self._vocabulary.bytes_of(token)
        if self._is_first and data:
            self._is_first = False
            shown = self._vocabulary.tokenizer.decode([token], skip_special_tokens=False).encode()
            if data == b" " + shown:
                data = shown
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Return what was held back; a character that never became whole is U+FFFD."""
        return self._decoder.decode(b"", final=True)
