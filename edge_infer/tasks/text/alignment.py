"""Map each character of a changed text to the characters of the given text that it stands for.

A text travels as its characters and, where offsets are asked for, one `Span` of the given text for each of them. None
instead of the spans is the fast way: the same steps, without them. The rules are those of `NormalizedString` in
https://github.com/huggingface/tokenizers (tokenizers/src/tokenizer/normalizer.rs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from edge_infer.tasks.text.unicode_table import Rewriting

    #: Start and end in the given text, in characters.
    Span: TypeAlias = tuple[int, int]
    Spans: TypeAlias = list[Span]
    #: A text and its spans.
    Aligned: TypeAlias = tuple[str, Spans | None]
    #: A step that rewrites a text.
    Normalizer: TypeAlias = Callable[[str, Spans | None], Aligned]
    #: A part of a text, its spans, and whether it begins where the given text begins.
    Piece: TypeAlias = tuple[str, Spans | None, bool]
    #: A step that cuts pieces into smaller ones.
    PreTokenizer: TypeAlias = Callable[[list[Piece]], list[Piece]]
    #: A new character and what it does to the alignment: 1 where it is inserted, 0 where it stands for the next old
    #: character, -n where it stands for it and the n behind it are gone.
    Change: TypeAlias = tuple[str, int]


def apply_changes(changes: Iterable[Change], spans: Spans) -> Aligned:
    """Write the changed text. An inserted character takes the span of the old character before it."""
    text, new, at = [], [], 0
    for character, change in changes:
        if change > 0:
            new.append(spans[at - 1] if at else (0, 0))
        else:
            new.append(spans[at])
            at += 1 - change
        text.append(character)
    return "".join(text), new


def translate(text: str, spans: Spans | None, table: Rewriting) -> Aligned:
    """Replace single characters by texts, as `str.translate` does: what is new belongs to the old character."""
    new = text.translate(table)
    if spans is None or (new == text):
        return new, spans
    aligned: Spans = []
    for character, span in zip(text, spans, strict=True):
        aligned += [span] * len(table[ord(character)] or "")
    return new, aligned


def cut(text: str, spans: Spans | None, start: int, end: int) -> Aligned:
    """Return a part of the text."""
    return text[start:end], None if spans is None else spans[start:end]
