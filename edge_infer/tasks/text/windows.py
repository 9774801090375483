"""Windows: a long second text of a pair cut into parts that overlap, each with the whole first text before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError
from edge_infer.tasks.text.encoding import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.text.encoding import Encoding

_MAX_WINDOWS = 10_000


class Window(NamedTuple):
    """A pair of texts whose tokens are known already: the whole texts, and the tokens of one part of the second.

    Attributes:
        text: The first text.
        pair: The second text, which `encoding.offsets` point into.
        encoding: The tokens that the model takes.
    """

    text: str
    pair: str
    encoding: Encoding


def context_tokens(type_ids: Sequence[int], special: Sequence[int]) -> list[int]:
    """Return the places of the second text's tokens; templates without type ids put special tokens between both."""
    if any(type_ids):
        return [i for i, kind in enumerate(type_ids) if kind == 1 and not special[i]]
    between = [i for i, is_special in enumerate(special) if is_special]
    inner = [i for i in between if 0 < i < len(special) - 1]
    return [i for i in range(inner[0] if inner else 0, len(special)) if not special[i]]


def windows(encoding: Encoding, length: int, stride: int) -> list[Encoding]:
    """Return encodings of at most so many tokens, which together hold all tokens of the second text.

    They are those that the `tokenizers` package gives for `only_second` with this `stride`.

    Args:
        encoding: A pair, neither cut nor filled up.
        length: The most tokens of a window.
        stride: How many tokens of the second text a window has again.

    Raises:
        InputError: The first text leaves no room, or there are more than 10,000 windows.
    """
    if len(encoding) <= length:
        return [encoding]
    tokens = context_tokens(encoding.type_ids, encoding.special_tokens_mask)
    if not tokens:
        return [encoding.part(0, length)]
    start, end = tokens[0], tokens[-1] + 1
    room = length - start - (len(encoding) - end)
    step = room - stride
    if room < 1 or step < 1:
        raise InputError(
            f"the question and the stride of {stride} leave no room in {length} tokens",
            hint="ask a shorter question, or give a smaller `doc_stride`",
        )
    if (end - start) // step > _MAX_WINDOWS:
        raise InputError(f"the context needs more than {_MAX_WINDOWS} windows", hint="give a shorter context")
    head, tail = encoding.part(0, start), encoding.part(end, len(encoding))
    found = []
    for at in range(start, max(end - stride, start + 1), step):
        parts = (head, encoding.part(at, min(at + room, end)), tail)
        found.append(joined(encoding.spelling, parts, has_offsets=encoding.offsets is not None))
    return found
