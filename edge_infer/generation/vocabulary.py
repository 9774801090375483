"""The bytes of each token: what streamed text and grammars are made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edge_infer.tasks.text.byte_alphabet import BYTES, CHARACTERS

if TYPE_CHECKING:
    from edge_infer.tasks.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """The tokens of a tokenizer as bytes.

    Byte-level vocabularies (GPT-2, Llama 3, Qwen) write each byte as a character, those of SentencePiece (Llama 2,
    Gemma) have tokens such as `<0x0A>` for bytes; the tokenizer's own decoding tells which it is. A token of text is
    what it adds behind another token.

    Args:
        tokenizer: The tokenizer.
        size: Tokens of the model, which may be more than the tokenizer has.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self._is_byte_level = self._writes_bytes()
        self._anchor = self._an_anchor()
        self._known: dict[int, bytes] = {}
        self._ordered: list[tuple[bytes, int]] = []

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token; none for a special token and for an id that the tokenizer lacks."""
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._bytes_of(token)
        return found

    def ordered(self) -> list[tuple[bytes, int]]:
        """Return the bytes and the id of all tokens that are text, in the order of their bytes."""
        if not self._ordered:
            self._ordered = sorted((data, token) for token in range(self.size) if (data := self.bytes_of(token)))
        return self._ordered

    def is_special(self, token: int) -> bool:
        """Tell whether a token is a mark such as `</s>`, which is not text."""
        return (
            self.tokenizer.id_to_token(token) is not None
            and not self.tokenizer.decode([token])
            and bool(self.tokenizer.decode([token], skip_special_tokens=False))
        )

    def _writes_bytes(self) -> bool:
        """Tell whether the tokenizer reads the characters of the byte alphabet as bytes."""
        for byte, character in CHARACTERS.items():
            number = self.tokenizer.token_to_id(character)
            if number is not None and character != chr(byte):
                return self.tokenizer.decode([number]) == bytes([byte]).decode("utf-8", "replace")
        return False

    def _an_anchor(self) -> tuple[int, str] | None:
        """Find a token of plain text to stand before another one, as decoders treat the first token in its own way."""
        for number in range(min(self.size, 4096)):
            text = self.tokenizer.decode([number])
            if text.isascii() and text.isalnum():
                return number, text
        return None

    def _bytes_of(self, token: int) -> bytes:
        written = self.tokenizer.id_to_token(token)
        if written is None:
            return b""
        decode = self.tokenizer.decode
        byte = _BYTE.fullmatch(written)
        if byte and decode([token], skip_special_tokens=False) != written:
            return bytes.fromhex(byte[1])
        if self.is_special(token):
            return b""
        if self._is_byte_level:
            data = bytes(BYTES[character] for character in written if character in BYTES)
            # An added token is written as it is, and may hold characters of the alphabet.
            is_bytes = len(data) == len(written) and decode([token]) == data.decode("utf-8", "replace")
            return data if is_bytes else written.encode()
        if self._anchor is not None:
            anchor, text = self._anchor
            both = decode([anchor, token])
            if both.startswith(text):
                return both[len(text) :].encode()
        return decode([token]).encode()
