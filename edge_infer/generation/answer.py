"""The text of one answer as its tokens arrive: characters made whole, and stop strings found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.generation.detokenize import Detokenizer
from edge_infer.generation.stops import Found, Stops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.generation.vocabulary import Vocabulary


class Answer:
    """Writes an answer.

    Args:
        vocabulary: The bytes of each token.
        stops: Strings that end the answer.
        is_chat: Whether the text stands alone, and does not go on from a prompt.

    Raises:
        InputError: The stop strings are too long together.
    """

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str] = (), *, is_chat: bool = False) -> None:
        self._detokenizer = Detokenizer(vocabulary, is_answer=is_chat)
        self._stops = Stops(stops)

    def add(self, token: int) -> Found:
        """Take the next token and return the text that is certain; after a stop string nothing more may be added."""
        return self._stops.add(self._detokenizer.add(token))

    def end(self) -> Found:
        """Return the rest of the text once no token follows."""
        found = self._stops.add(self._detokenizer.flush())
        return found if found.is_stopped else Found(found.text + self._stops.flush(), is_stopped=False)
