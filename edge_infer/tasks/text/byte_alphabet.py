"""The 256 characters that stand for bytes in a byte-level vocabulary (https://github.com/openai/gpt-2, src/encoder.py).

The printable characters of Latin-1 stand for themselves, and the other bytes for U+0100 onwards.
"""

from __future__ import annotations

_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
#: The character of each byte.
CHARACTERS = {byte: chr(byte) if byte in _PRINTABLE else chr(256 + _OTHERS.index(byte)) for byte in range(256)}
#: The byte of each character.
BYTES = {character: byte for byte, character in CHARACTERS.items()}
#: The character of a space: `Ġ`.
SPACE = CHARACTERS[32]


def to_characters(text: str) -> str:
    """Write each byte of the text in UTF-8 as its character."""
    return text.encode().decode("latin-1").translate(CHARACTERS)
