r"""Patterns of a tokenizer, written for Oniguruma, run by Python's `re`.

https://github.com/kkos/oniguruma, doc/RE. Every class is written out from the pinned table, so that `\s`, `\w` and
`\p{L}` mean the same on every Python. `^` and `$` work by line, as in Ruby. What `re` cannot do, or what takes
exponential time on some text, is refused: a quantifier on a group that has another one inside, or alternatives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from edge_infer.tasks.text import unicode_table
from edge_infer.tasks.text.definition import unsupported
from edge_infer.tasks.text.unicode_table import LAST, Ranges, Top, complement, top_of, union, write_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.tasks.text.definition import Part

#: The longest pattern, the deepest nesting and the most open quantifiers in a row of one alternative. The patterns of
#: published tokenizers have at most 600 characters, 2 levels and 3 such quantifiers.
_MAX_CHARACTERS, _MAX_DEPTH, _MAX_OPEN = 20_000, 16, 4
_ESCAPED = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "e": 27}
_CLASSES = {"s": "regex_space", "w": "regex_word", "d": "Nd"}
_CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\})")
_PROPERTY = re.compile(r"\\[pP]\{(\^?)([A-Za-z_]+)\}")
_QUANTIFIER = re.compile(r"[*+?]|\{\d*,\d*\}|\{\d+\}")
_GROUP = re.compile(r"\((?!\?)|\(\?(?:(?:i|-i)?:|[=!>]|<[=!])")
#: The pattern of GPT-2 (https://github.com/openai/gpt-2, src/encoder.py), which the part ByteLevel splits by.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class _Shape(NamedTuple):
    """A piece of a pattern: how `re` writes it, its least width, and what its cost depends on."""

    text: str
    least: int
    open_quantifiers: int = 0
    is_branching: bool = False


class _Reader:
    """Reads one pattern and writes it for texts up to a top."""

    def __init__(self, source: str, where: str, top: Top) -> None:
        self._source, self._where, self._top, self._at = source, where, top, 0

    def read(self) -> _Shape:
        flags = "(?i)" if self._source.startswith("(?i)") else ""
        self._at = len(flags)
        shape = self._alternatives(0)
        if self._at < len(self._source):
            self._refuse("an unpaired `)`")
        return shape._replace(text=flags + shape.text)

    def _refuse(self, what: str) -> NoReturn:
        unsupported(f"`{self._where}`", f"{what} in the pattern `{self._source[:80]}`")

    def _alternatives(self, depth: int) -> _Shape:
        if depth > _MAX_DEPTH:
            self._refuse("such deep nesting")
        found = [self._sequence(depth)]
        while self._source.startswith("|", self._at):
            self._at += 1
            found.append(self._sequence(depth))
        return _Shape(
            "|".join(one.text for one in found),
            min(one.least for one in found),
            max(one.open_quantifiers for one in found),
            len(found) > 1 or found[0].is_branching,
        )

    def _sequence(self, depth: int) -> _Shape:
        texts, least, count, is_branching = [], 0, 0, False
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            one = self._quantified(self._atom(depth))
            texts.append(one.text)
            least, count = least + one.least, count + one.open_quantifiers
            is_branching = is_branching or one.is_branching
        if count > _MAX_OPEN:
            self._refuse("a row of so many open quantifiers")
        return _Shape("".join(texts), least, count, is_branching)

    def _quantified(self, atom: _Shape) -> _Shape:
        found = _QUANTIFIER.match(self._source, self._at)
        if found is None or found[0] == "{,}":
            return atom
        self._at = found.end()
        least, _, most = found[0].strip("{}").partition(",")
        if found[0] in "*+?":
            least, most = ("1" if found[0] == "+" else "0"), ("1" if found[0] == "?" else "")
        elif "," not in found[0]:
            most = least
        behind = self._source[self._at : self._at + 1]
        if behind in ("?", "+") and behind and (found[0] in "*+?" or (behind == "?" and "," in found[0])):
            self._at += 1
        elif _QUANTIFIER.match(self._source, self._at):
            self._refuse(f"`{found[0]}{behind}`")
        else:
            behind = ""
        is_repeated, is_fixed = most == "" or int(most) > 1, least == most
        if is_repeated and (atom.open_quantifiers or atom.is_branching):
            self._refuse("a quantifier inside a quantifier")
        if max(int(least or 0), int(most or 0)) * max(atom.least, 1) > 1000:
            self._refuse(f"`{found[0]}`")
        opened = 1 if is_repeated and not is_fixed else 0
        return _Shape(
            atom.text + found[0] + behind,
            atom.least * int(least or 0),
            atom.open_quantifiers + opened,
            atom.is_branching or not is_fixed,
        )

    def _atom(self, depth: int) -> _Shape:
        character = self._source[self._at]
        if character == "(":
            found = _GROUP.match(self._source, self._at)
            if found is None:
                self._refuse(f"`{self._source[self._at : self._at + 4]}`")
            self._at = found.end()
            inside = self._alternatives(depth + 1)
            if not self._source.startswith(")", self._at):
                self._refuse("an unpaired `(`")
            self._at += 1
            opening = "(?:" if found[0] == "(" else found[0]
            is_look = found[0][-1] in "=!"
            return inside._replace(text=f"{opening}{inside.text})", least=0 if is_look else inside.least)
        if character == "[":
            self._at += 1
            return _Shape(write_class(self._class(depth), self._top), 1)
        if character == "\\":
            return self._escape()
        if character in "*+?":
            self._refuse(f"`{character}` behind nothing")
        self._at += 1
        if character == "^":
            return _Shape(r"(?:\A|(?<=\n)(?!\Z))", 0)
        if character == "$":
            return _Shape(r"(?=\n|\Z)", 0)
        return _Shape("." if character == "." else re.escape(character), 1)

    def _escape(self) -> _Shape:
        letter = self._source[self._at + 1 : self._at + 2]
        if letter in ("A", "z", "Z", "b", "B"):
            self._at += 2
            word = write_class(unicode_table.ranges("regex_word"), self._top)
            edges = {
                "b": f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))",
                "B": f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))",
                "Z": r"(?=\n?\Z)",
            }
            return _Shape(edges.get(letter, rf"\{letter.upper()}"), 0)
        found = self._member()
        return _Shape(re.escape(chr(found)) if isinstance(found, int) else write_class(found, self._top), 1)

    def _member(self) -> int | Ranges:
        """Read what may stand in a class: a character, or the set behind a backslash."""
        if self._source[self._at] != "\\":
            self._at += 1
            return ord(self._source[self._at - 1])
        letter = self._source[self._at + 1 : self._at + 2]
        if letter and letter in "pP":
            found = _PROPERTY.match(self._source, self._at)
            if found is None:
                self._refuse(f"`{self._source[self._at : self._at + 12]}`")
            self._at = found.end()
            return self._set(found[2], (letter == "P") != bool(found[1]))
        if code := _CODE.match(self._source, self._at):
            self._at = code.end()
            return min(int(code[1] or code[2] or code[3], 16), LAST)
        self._at += 2
        if letter.lower() in _CLASSES and letter:
            return self._set(_CLASSES[letter.lower()], letter.isupper())
        if letter in _ESCAPED:
            return _ESCAPED[letter]
        if not letter or letter.isalnum():
            self._refuse(f"`\\{letter}`")
        return ord(letter)

    def _set(self, name: str, is_inverted: bool) -> Ranges:
        try:
            found = unicode_table.ranges(name) if len(name) <= 2 or name.startswith("regex_") else None
        except KeyError:
            found = None
        if found is None:
            self._refuse(f"`\\p{{{name}}}`")
        return complement(found) if is_inverted else found

    def _class(self, depth: int) -> Ranges:
        """Read a class behind its `[`: the union of its members, cut with what stands behind each `&&`."""
        if depth > _MAX_DEPTH:
            self._refuse("such deep nesting")
        source = self._source
        is_inverted = source.startswith("^", self._at)
        self._at += is_inverted
        sets: list[Ranges] = []
        cut: Ranges | None = None
        begin = self._at
        while not source.startswith("]", self._at) or self._at == begin:
            if self._at >= len(source):
                self._refuse("an unpaired `[`")
            if source.startswith("&&", self._at):
                self._at += 2
                cut, sets = _both(cut, union(*sets)), []
            elif source.startswith("[:", self._at):
                self._refuse("`[:`")
            elif source.startswith("[", self._at):
                self._at += 1
                sets.append(self._class(depth + 1))
            else:
                sets.append(self._run())
        self._at += 1
        found = _both(cut, union(*sets))
        return complement(found) if is_inverted else found

    def _run(self) -> Ranges:
        """Read one member, or two with a `-` between them."""
        first = self._member()
        if isinstance(first, tuple):
            return first
        source = self._source
        if source.startswith("-", self._at) and source[self._at + 1 : self._at + 2] not in ("]", "[", ""):
            self._at += 1
            last = self._member()
            if isinstance(last, tuple) or last < first:
                self._refuse("a bad range")
            return ((first, last),)
        return ((first, first),)


def _both(one: Ranges | None, other: Ranges) -> Ranges:
    return other if one is None else complement(union(complement(one), complement(other)))


class Pattern:
    """One pattern, compiled for each top when a text first needs it.

    Args:
        source: As Oniguruma reads it.
        where: Its place in the file, for errors.

    Raises:
        UnsupportedModel: It uses what `re` has not, or may take exponential time.
    """

    def __init__(self, source: str, where: str) -> None:
        if len(source) > _MAX_CHARACTERS:
            unsupported(f"`{where}`", f"a pattern of {len(source)} characters")
        self._source, self._where = source, where
        self._compiled: dict[Top, re.Pattern[str]] = {}
        self._is_never_empty = _Reader(source, where, unicode_table.ASCII).read().least > 0
        self._compile(unicode_table.ASCII)

    def _compile(self, top: Top) -> re.Pattern[str]:
        try:
            compiled = re.compile(_Reader(self._source, self._where, top).read().text)
        except (re.error, OverflowError, RecursionError) as error:
            unsupported(f"`{self._where}`", f"the pattern `{self._source[:80]}` ({error})")
        self._compiled[top] = compiled
        return compiled

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where it matches, in characters; an empty match right behind another is none."""
        if not text:
            return []
        top = top_of(text)
        found = [one.span() for one in (self._compiled.get(top) or self._compile(top)).finditer(text)]
        if self._is_never_empty:
            return found
        ends = [-1, *(end for _, end in found)]
        return [one for one, before in zip(found, ends, strict=False) if one[0] < one[1] or one[0] != before]


def read_pattern(part: Part) -> Callable[[str], list[tuple[int, int]]]:
    """Return the finder of a part's `pattern`: a literal text or a pattern; it gives the spans of its matches.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: The pattern cannot be run.
    """
    pattern = part.part("pattern")
    literal = pattern.text("String", None)
    if literal is not None:
        compiled = re.compile(re.escape(literal))
        return lambda text: [one.span() for one in compiled.finditer(text)] if literal else []
    return Pattern(pattern.text("Regex"), f"{pattern.where}.Regex").spans
