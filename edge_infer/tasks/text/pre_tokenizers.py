"""The pre-tokenizers: each cuts a text into words, and a model never joins two of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edge_infer.tasks.text.definition import malformed
from edge_infer.tasks.text.normalizers import bytes_as_characters
from edge_infer.tasks.text.patterns import GPT2, Pattern, read_pattern
from edge_infer.tasks.text.unicode_table import complement, ranges, top_of, union, write_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.tasks.text.alignment import Piece, PreTokenizer, Span
    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.unicode_table import Ranges, Top

    Finder = Callable[[str], list[Span]]

#: What becomes of the delimiters: `SplitDelimiterBehavior` of the package.
BEHAVIOURS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")


def pre_tokenizer(part: Part | None) -> PreTokenizer | None:
    """Return the step that a part describes; None for none.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: There is no such pre-tokenizer here.
    """
    if part is None:
        return None
    if part.kind not in _PRE_TOKENIZERS:
        part.unknown("pre-tokenizer", list(_PRE_TOKENIZERS))
    return _PRE_TOKENIZERS[part.kind](part)


def before_bytes(part: Part | None) -> PreTokenizer | None:
    """Return the step without its last part where that only writes bytes as characters; None where it does not.

    The bytes of each distinct word are then written once.
    """
    if part is None:
        return None
    if part.kind == "ByteLevel" and not part.flag("add_prefix_space", True) and part.flag("use_regex", True):
        return _gpt2_words(part.where)
    if part.kind == "Sequence" and (steps := part.parts("pretokenizers")):
        last = steps[-1]
        if last.kind == "ByteLevel" and not last.flag("add_prefix_space", True) and not last.flag("use_regex", True):
            return _chained([step for one in steps[:-1] if (step := pre_tokenizer(one))])
    return None


def _sequence(part: Part) -> PreTokenizer:
    return _chained([step for one in part.parts("pretokenizers") if (step := pre_tokenizer(one))])


def _chained(steps: list[PreTokenizer]) -> PreTokenizer:
    def split(pieces: list[Piece]) -> list[Piece]:
        for step in steps:
            pieces = step(pieces)
        return pieces

    return split


def _splitting(find: Finder, behaviour: str, is_inverted: bool = False) -> PreTokenizer:
    """Return the step that cuts at the delimiters that `find` gives; inverted, at what is between its spans."""

    def split(pieces: list[Piece]) -> list[Piece]:
        found: list[Piece] = []
        for text, spans, is_first in pieces:
            for start, end in _parts(find(text), len(text), behaviour, is_inverted):
                if start < end:
                    part_spans = None if spans is None else spans[start:end]
                    found.append((text[start:end], part_spans, is_first and start == 0))
        return found

    return split


def _parts(delimiters: list[Span], length: int, behaviour: str, is_inverted: bool) -> list[Span]:
    """Return the parts of a text of so many characters. Delimiters that touch stay apart unless they are merged."""
    marked: list[tuple[int, int, bool]] = []
    at = 0
    for start, end in delimiters:
        if at < start:
            marked.append((at, start, is_inverted))
        marked.append((start, end, not is_inverted))
        at = end
    if at < length:
        marked.append((at, length, is_inverted))
    if behaviour in ("removed", "isolated"):
        return [(start, end) for start, end, is_cut in marked if behaviour == "isolated" or not is_cut]
    is_backwards = behaviour == "merged_with_next"
    merged: list[Span] = []
    was_cut = False
    for start, end, is_cut in reversed(marked) if is_backwards else marked:
        joins = is_cut == was_cut if behaviour == "contiguous" else is_cut and not was_cut
        if merged and joins:
            other = merged[-1]
            merged[-1] = (min(start, other[0]), max(end, other[1]))
        else:
            merged.append((start, end))
        was_cut = is_cut
    return merged[::-1] if is_backwards else merged


class _Classes:
    """Finds the matches of a pattern that is made of classes, compiled for each top."""

    def __init__(self, write: Callable[[Callable[[Ranges], str]], str]) -> None:
        self._write = write
        self._compiled: dict[Top, re.Pattern[str]] = {}

    def pattern(self, text: str) -> re.Pattern[str]:
        top = top_of(text)
        if top not in self._compiled:
            self._compiled[top] = re.compile(self._write(lambda of: write_class(of, top)))
        return self._compiled[top]

    def __call__(self, text: str) -> list[Span]:
        return [one.span() for one in self.pattern(text).finditer(text)]


def _one_of(name: str) -> _Classes:
    return _Classes(lambda written: written(ranges(name)))


def _complement_of(*names: str) -> Ranges:
    return complement(union(*(ranges(name) for name in names)))


def _words_of(find: _Classes) -> PreTokenizer:
    """Return the step that keeps only the matches."""

    def split(pieces: list[Piece]) -> list[Piece]:
        found: list[Piece] = []
        for text, spans, is_first in pieces:
            if not text:
                continue
            if spans is None:
                words = find.pattern(text).findall(text)
                found += [(one, None, False) for one in words]
                if is_first and words and text.startswith(words[0]):
                    found[-len(words)] = (words[0], None, True)
            else:
                found += [(text[start:end], spans[start:end], is_first and not start) for start, end in find(text)]
        return found

    return split


def _bert(_: Part) -> PreTokenizer:
    def write(written: Callable[[Ranges], str]) -> str:
        others = written(_complement_of("space", "bert_punctuation"))
        return f"{written(ranges('bert_punctuation'))}|{others}+"

    return _words_of(_Classes(write))


def _whitespace(_: Part) -> PreTokenizer:
    def write(written: Callable[[Ranges], str]) -> str:
        return rf"{written(ranges('word'))}+|{written(_complement_of('space', 'word'))}+"

    return _words_of(_Classes(write))


def _split(part: Part) -> PreTokenizer:
    return _splitting(read_pattern(part), part.choice("behavior", BEHAVIOURS), part.flag("invert", False))


def _digits(part: Part) -> PreTokenizer:
    return _splitting(_one_of("numeric"), "isolated" if part.flag("individual_digits", False) else "contiguous")


def _delimiter(part: Part) -> PreTokenizer:
    delimiter = part.text("delimiter")
    if len(delimiter) != 1:
        malformed(f"`{part.where}.delimiter`", "must be one character")
    return _splitting(lambda text: [one.span() for one in re.finditer(re.escape(delimiter), text)], "removed")


def _gpt2_words(where: str) -> PreTokenizer:
    return _splitting(Pattern(GPT2, where).spans, "isolated")


def _bytes(part: Part) -> PreTokenizer:
    is_spaced = part.flag("add_prefix_space", True)
    words = _gpt2_words(part.where) if part.flag("use_regex", True) else None

    def split(pieces: list[Piece]) -> list[Piece]:
        if is_spaced:
            pieces = [_begun(piece, " ") for piece in pieces]
        if words is not None:
            pieces = words(pieces)
        return [(*bytes_as_characters(text, spans), is_first) for text, spans, is_first in pieces]

    return split


def _begun(piece: Piece, character: str) -> Piece:
    """Put a character in front unless it is there; it stands for the first one of the given text."""
    text, spans, is_first = piece
    if not text or text.startswith(character):
        return piece
    return character + text, None if spans is None else [spans[0], *spans], is_first


def prepend_scheme(part: Part) -> str:
    """Return when a part Metaspace puts its character in front of a text: `always`, `first` or `never`."""
    older = "always" if part.flag("add_prefix_space", True) else "never"
    return part.choice("prepend_scheme", ("always", "first", "never"), older)


def replacement(part: Part) -> str:
    """Return the character that a part Metaspace writes for a space."""
    found = part.text("replacement", "▁")
    if len(found) != 1:
        malformed(f"`{part.where}.replacement`", "must be one character")
    return found


def _metaspace(part: Part) -> PreTokenizer:
    mark, scheme, is_split = replacement(part), prepend_scheme(part), part.flag("split", True)
    cut = _splitting(lambda text: [one.span() for one in re.finditer(re.escape(mark), text)], "merged_with_next")

    def split(pieces: list[Piece]) -> list[Piece]:
        found: list[Piece] = []
        for text, spans, is_first in pieces:
            piece = (text.replace(" ", mark), spans, is_first)
            if scheme == "always" or (scheme == "first" and is_first):
                piece = _begun(piece, mark)
            if not is_split:
                found.append(piece)
            elif spans is not None:
                found += cut([piece])
            else:
                before, *words = piece[0].split(mark)
                found += [(before, None, is_first)] if before else []
                found += [(mark + word, None, False) for word in words]
        return found

    return split


_PRE_TOKENIZERS: dict[str, Callable[[Part], PreTokenizer]] = {
    "BertPreTokenizer": _bert,
    "ByteLevel": _bytes,
    "CharDelimiterSplit": _delimiter,
    "Digits": _digits,
    "Metaspace": _metaspace,
    "Punctuation": lambda part: _splitting(_one_of("punctuation"), part.choice("behavior", BEHAVIOURS, "isolated")),
    "Sequence": _sequence,
    "Split": _split,
    "Whitespace": _whitespace,
    "WhitespaceSplit": lambda _: _splitting(_one_of("space"), "removed"),
}
