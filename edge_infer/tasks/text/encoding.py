"""The encoding of a text: the ids of its tokens, with masks, types and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.tasks.text.alignment import Spans


class Encoding:
    """The tokens of a text, or of a pair of texts. All lists have one entry for each token.

    Attributes:
        ids: The numbers of the tokens, int64 for most models.
        type_ids: 0, or 1 for the tokens of the second text, as the tokenizer's template says.
        attention_mask: 1, or 0 where a token only fills the length (padding).
        special_tokens_mask: 1 where the template put a token there or it is padding, else 0.
        offsets: Start and end of each token in its text, in characters; None where they were not asked for. A token
            that stands for no text has `(0, 0)`.
        overflowing: What truncation cut off, as further encodings of the same kind.
        spellings: What an added token was in the text, by its place: white space beside it may belong to it.
    """

    __slots__ = (
        "_name",
        "attention_mask",
        "ids",
        "offsets",
        "overflowing",
        "special_tokens_mask",
        "spellings",
        "type_ids",
    )

    def __init__(
        self,
        name: Callable[[int], str | None],
        ids: list[int],
        offsets: Spans | None,
        *,
        type_id: int = 0,
        is_special: bool = False,
    ) -> None:
        self._name = name
        self.ids = ids
        self.offsets = offsets
        self.type_ids = [type_id] * len(ids)
        self.special_tokens_mask = [int(is_special)] * len(ids)
        self.attention_mask = [1] * len(ids)
        self.overflowing: list[Encoding] = []
        self.spellings: dict[int, str] = {}

    @property
    def tokens(self) -> list[str]:
        """The tokens as the vocabulary spells them; an id that nobody has is an empty text."""
        return [self._name(number) or "" for number in self.ids]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({len(self.ids)} tokens, {len(self.overflowing)} overflowing)"

    def spelling(self, number: int) -> str | None:
        """Return the token of an id as the vocabulary spells it; None for an id that nobody has."""
        return self._name(number)

    def part(self, start: int, end: int, type_id: int | None = None) -> Encoding:
        """Return some of the tokens as an encoding of their own, without what overflows."""
        found = Encoding(self._name, self.ids[start:end], None if self.offsets is None else self.offsets[start:end])
        found.special_tokens_mask = self.special_tokens_mask[start:end]
        found.attention_mask = self.attention_mask[start:end]
        found.spellings = {at - start: text for at, text in self.spellings.items() if start <= at < end}
        found.type_ids = self.type_ids[start:end] if type_id is None else [type_id] * len(found.ids)
        return found


def joined(name: Callable[[int], str | None], parts: Sequence[Encoding], *, has_offsets: bool) -> Encoding:
    """Return the tokens of some encodings, one after the other, without what overflows."""
    found = Encoding(name, [one for part in parts for one in part.ids], [] if has_offsets else None)
    found.type_ids = [one for part in parts for one in part.type_ids]
    found.special_tokens_mask = [one for part in parts for one in part.special_tokens_mask]
    found.attention_mask = [one for part in parts for one in part.attention_mask]
    if has_offsets:
        found.offsets = [one for part in parts for one in part.offsets or []]
    return found
