"""The normalizers: each rewrites a text before it is cut into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.text import alignment, byte_alphabet
from edge_infer.tasks.text.character_map import character_map
from edge_infer.tasks.text.normal_forms import FORMS, normal_form
from edge_infer.tasks.text.patterns import read_pattern
from edge_infer.tasks.text.unicode_table import Rewriting, characters, deleting, lower_case, members

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.tasks.text.alignment import Aligned, Normalizer, Spans
    from edge_infer.tasks.text.definition import Part

# What SentencePiece's rule `nmt_nfkc` removes and writes as a space (src/builder.cc there).
_NMT_REMOVED = {*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F}
_NMT_SPACES = {9, 10, 12, 13, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD}


def normalizer(part: Part | None) -> Normalizer | None:
    """Return the step that a part describes; None for none.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: There is no such normalizer here.
    """
    if part is None:
        return None
    if part.kind in FORMS:
        return normal_form(part.kind)
    if part.kind not in _NORMALIZERS:
        part.unknown("normalizer", [*_NORMALIZERS, *FORMS])
    return _NORMALIZERS[part.kind](part)


def _sequence(part: Part) -> Normalizer:
    steps = [step for one in part.parts("normalizers") if (step := normalizer(one))]

    def normalize(text: str, spans: Spans | None) -> Aligned:
        for step in steps:
            text, spans = step(text, spans)
        return text, spans

    return normalize


def _bert(part: Part) -> Normalizer:
    """BERT's BasicTokenizer (https://github.com/google-research/bert, tokenization.py) in the package's form."""
    is_cleaned, is_lower = part.flag("clean_text", True), part.flag("lowercase", True)
    steps: list[Normalizer] = []
    if is_cleaned:
        is_control, is_white = members("bert_control"), members("space")
        clean = Rewriting(lambda one: None if is_control[one] else " " if is_white[one] else one)
        steps.append(_translated(clean))
    if part.flag("handle_chinese_chars", True):
        is_chinese = members("bert_chinese")
        spaced = Rewriting(lambda one: f" {one} " if is_chinese[one] else one)
        steps.append(_translated(spaced))
    if part.flag("strip_accents", is_lower):
        steps += [normal_form("NFD"), _translated(deleting("bert_accent"))]
    if is_lower:
        steps.append(_lower)

    def normalize(text: str, spans: Spans | None) -> Aligned:
        if text.isascii() and spans is None:
            text = text.translate(clean) if is_cleaned else text
            return text.lower() if is_lower else text, None
        for step in steps:
            text, spans = step(text, spans)
        return text, spans

    return normalize


def _lower(text: str, spans: Spans | None) -> Aligned:
    return (text.lower(), spans) if text.isascii() else alignment.translate(text, spans, lower_case())


def _replace(part: Part) -> Normalizer:
    find, new = read_pattern(part), part.text("content")
    literal = part.part("pattern").text("String", None)

    def normalize(text: str, spans: Spans | None) -> Aligned:
        if spans is None and literal:
            return text.replace(literal, new), None
        parts, aligned, at = [], [], 0
        for start, end in find(text):
            parts += [text[at:start], new]
            if spans is not None:
                aligned += [*spans[at:start], *[spans[end - 1] if end else (0, 0)] * len(new)]
            at = end
        parts.append(text[at:])
        return "".join(parts), None if spans is None else [*aligned, *spans[at:]]

    return normalize


def _prepend(part: Part) -> Normalizer:
    new = part.text("prepend")

    def normalize(text: str, spans: Spans | None) -> Aligned:
        if not text:
            return text, spans
        return new + text, None if spans is None else [*spans[:1] * len(new), *spans]

    return normalize


def _strip(part: Part) -> Normalizer:
    is_left, is_right = part.flag("strip_left", True), part.flag("strip_right", True)
    white = characters("space")

    def normalize(text: str, spans: Spans | None) -> Aligned:
        start = len(text) - len(text.lstrip(white)) if is_left else 0
        end = len(text.rstrip(white)) if is_right else len(text)
        return alignment.cut(text, spans, start, max(start, end))

    return normalize


def _translated(table: Rewriting) -> Normalizer:
    return lambda text, spans: alignment.translate(text, spans, table)


def _nmt(character: str) -> str | None:
    code = ord(character)
    return None if code in _NMT_REMOVED else " " if code in _NMT_SPACES else character


def bytes_as_characters(text: str, spans: Spans | None) -> Aligned:
    """Write each byte of the text as a character of the byte alphabet."""
    if spans is None or text.isascii():
        return byte_alphabet.to_characters(text), spans
    aligned = [span for one, span in zip(text, spans, strict=True) for _ in one.encode()]
    return byte_alphabet.to_characters(text), aligned


_NORMALIZERS: dict[str, Callable[[Part], Normalizer]] = {
    "BertNormalizer": _bert,
    "ByteLevel": lambda _: bytes_as_characters,
    "Lowercase": lambda _: _lower,
    "Nmt": lambda _: _translated(Rewriting(_nmt)),
    "Precompiled": character_map,
    "Prepend": _prepend,
    "Replace": _replace,
    "Sequence": _sequence,
    "Strip": _strip,
    "StripAccents": lambda _: _translated(deleting("mark")),
}
