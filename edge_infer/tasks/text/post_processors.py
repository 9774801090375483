"""The post-processors: what is put around the tokens of a text or a pair, and whose offsets are trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError
from edge_infer.tasks.text.byte_alphabet import SPACE
from edge_infer.tasks.text.definition import malformed, unsupported
from edge_infer.tasks.text.encoding import Encoding, joined
from edge_infer.tasks.text.unicode_table import members

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.length import Cut

#: The most encodings that a pair may overflow into.
_MAX_OVERFLOWING = 100_000
_KINDS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing")


class _Item(NamedTuple):
    """One place of a template: the ids of special tokens, or a text by its number.

    What overflows from a text has a type id of its own: the package gives it that of the template only in Roberta's.
    """

    ids: tuple[int, ...]
    text: int | None
    type_id: int
    overflowing_type_id: int = 0


_A, _B = _Item((), 0, 0, 0), _Item((), 1, 1, 1)


class PostProcessor:
    """Puts encodings together as a part of the file says.

    Args:
        part: The part; None for nothing around the texts.
        name: Gives the token of an id.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: There is no such post-processor here, or there are two templates.
    """

    def __init__(self, part: Part | None, name: Callable[[int], str | None]) -> None:
        self._name = name
        self._templates: tuple[list[_Item], list[_Item]] = ([_A], [_A, _B])
        #: For each that trims offsets, whether the first token was given a space.
        self._trims: list[bool] = []
        templates = 0
        for one in _flat(part):
            if one.kind in ("ByteLevel", "RobertaProcessing") and one.flag("trim_offsets", True):
                self._trims.append(one.flag("add_prefix_space", True))
            if one.kind != "ByteLevel":
                templates += 1
                self._templates = _templates(one)
        if part is not None and templates > 1:
            unsupported(f"`{part.where}`", "more than one template")

    def added(self, *, is_pair: bool) -> int:
        """Return how many tokens are put around one text or two."""
        return sum(len(one.ids) for one in self._templates[is_pair])

    def _trim(self, encoding: Encoding) -> None:
        """Take the spaces that a token begins and ends with out of its offsets, where the file asks for it.

        A single one in front of a text may be there only because the tokenizer put it there.
        """
        if encoding.offsets is None:
            return
        for has_space in self._trims:
            for index, (token, (start, end)) in enumerate(zip(encoding.tokens, encoding.offsets, strict=True)):
                spelling = encoding.spellings.get(index, token)
                leading, trailing = _spaces(spelling), _spaces(spelling[::-1])
                if leading == 1 and has_space and (index == 0 or start == 0):
                    leading = 0
                start = min(start + leading, end)
                if trailing and end >= trailing:
                    end = max(end - trailing, start)
                encoding.offsets[index] = (start, end)

    def join(self, first: Cut, second: Cut | None, *, add_special_tokens: bool) -> Encoding:
        """Return the encoding of a text or a pair, with what overflows from it.

        Raises:
            InputError: It overflows into more than 100,000 encodings.
        """
        texts = [first, *([second] if second is not None else [])]
        for text in texts:
            for part in (text.kept, *text.overflowing):
                self._trim(part)
        count = 1
        for text in texts:
            count *= 1 + len(text.overflowing)
        if count > _MAX_OVERFLOWING:
            raise InputError(f"the pair overflows into {count} encodings", hint="truncate only one of the two")
        has_offsets = first.kept.offsets is not None
        main: list[Encoding] = []
        overflowing: list[list[Encoding]] = []
        for item in self._templates[second is not None]:
            if item.text is None:
                if add_special_tokens:
                    offsets = [(0, 0)] * len(item.ids) if has_offsets else None
                    one = Encoding(self._name, list(item.ids), offsets, type_id=item.type_id, is_special=True)
                    main.append(one)
                    overflowing = [[*before, one] for before in overflowing]
                continue
            text = texts[item.text]
            kept = text.kept.part(0, len(text.kept), item.type_id)
            rest = [one.part(0, len(one), item.overflowing_type_id) for one in text.overflowing]
            overflowing = [[*before, one] for before in overflowing for one in (kept, *rest)] + [
                [*main, one] for one in rest
            ]
            main.append(kept)
        found = joined(self._name, main, has_offsets=has_offsets)
        found.overflowing = [joined(self._name, one, has_offsets=has_offsets) for one in overflowing]
        return found


def _flat(part: Part | None) -> list[Part]:
    if part is None:
        return []
    if part.kind not in _KINDS:
        part.unknown("post-processor", _KINDS)
    return [each for one in part.parts("processors") for each in _flat(one)] if part.kind == "Sequence" else [part]


def _templates(part: Part) -> tuple[list[_Item], list[_Item]]:
    """Return what stands around one text, and around two."""
    if part.kind == "TemplateProcessing":
        special = part.part("special_tokens")
        return _template(part, "single", special, {"A"}), _template(part, "pair", special, {"A", "B"})
    start, end = (_Item((_id(part, key),), None, 0) for key in ("cls", "sep"))
    if part.kind == "BertProcessing":
        return [start, _A, end], [start, _A, end, _B, end._replace(type_id=1)]
    return [start, _A, end], [start, _A, end, end, _Item((), 1, 0), end]


def _id(part: Part, key: str) -> int:
    pair = part.items(key)
    if len(pair) != 2 or type(pair[1]) is not int or not 0 <= pair[1] < 2**32:
        malformed(f"`{part.where}.{key}`", "must be a token and its id")
    return pair[1]


def _template(part: Part, key: str, special: Part, texts: set[str]) -> list[_Item]:
    items = []
    for one in part.parts(key):
        if (sequence := one.optional("Sequence")) is not None:
            text = sequence.choice("id", sorted(texts))
            number = "AB".index(text)
            items.append(_Item((), number, sequence.whole("type_id", 0), number))
            continue
        token = one.part("SpecialToken")
        ids = special.part(token.text("id")).items("ids")
        if not all(type(number) is int and 0 <= number < 2**32 for number in ids):
            malformed(f"`{special.where}`", "must give ids")
        items.append(_Item(tuple(number for number in ids if isinstance(number, int)), None, token.whole("type_id", 0)))
    if {"AB"[one.text] for one in items if one.text is not None} != texts:
        malformed(f"`{part.where}.{key}`", "leaves a text out")
    return items


def _spaces(token: str) -> int:
    count, is_white = 0, members("space")
    for character in token:
        if character != SPACE and not is_white[character]:
            break
        count += 1
    return count
