"""The base of tokenizer models, and the error for a word that cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from edge_infer.errors import InputError

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from typing import TypeAlias

    #: The id of a token, and its start and end in the word, in characters.
    Token: TypeAlias = tuple[int, int, int]

#: The longest word that BPE and Unigram cut: they need some 400 bytes for each of its characters.
MAX_WORD = 1_000_000


class Model(Protocol):
    """Cuts words into tokens."""

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The id of each token."""
        ...

    @property
    def cut(self) -> re.Pattern[str] | None:
        """A pattern at which a long word may be cut without changing its tokens; None for none."""
        ...

    def split(self, word: str) -> list[Token]:
        """Return the tokens of a word that is not empty.

        Raises:
            InputError: It has characters that the vocabulary cannot write, or too many.
        """
        ...


def cannot_write(word: str) -> NoReturn:
    """Raise the error of a word that needs an unknown token where there is none.

    Raises:
        InputError: Always.
    """
    raise InputError(
        f"`{word[:40]}` is not in the vocabulary, which has no unknown token",
        hint="name one in `model.unk_token` of tokenizer.json, or leave the word out",
    )


def check_length(word: str) -> None:
    """Refuse a word that would take too much memory.

    Raises:
        InputError: It has more than a million characters.
    """
    if len(word) > MAX_WORD:
        raise InputError(
            f"a word of {len(word)} characters is longer than {MAX_WORD}", hint="cut the text, for example by line"
        )
