r"""Regular expressions in the syntax of RE2, matched in a time in proportion to the text.

Python's `re` goes back and tries again, which can take years, and reads some patterns in another way. Here it tests
single characters and places only: all states that a pattern may be in go over the text together (Thompson's way).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    #: Puts a part of a pattern in front of a state, and returns the state where it begins.
    Part: TypeAlias = Callable[[int], int]

#: The most states of a pattern, and the most times that a part of it is repeated, as in RE2.
_MOST_STATES, _MOST_TIMES = 10_000, 1000
_REPEATED = re.compile(r"(?:([*+?])|\{(\d+)(,?)(\d*)\})\??", re.ASCII)
_OPENED = re.compile(r"\((?:\?(?:P?<[A-Za-z_]\w*>|([imsU]*)(?:-([imsU]+))?([:)])))?(?!\?)", re.ASCII)
#: A character: by its number of base 16 or 8, behind a backslash, or itself.
_CHARACTER = re.compile(
    r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})|\\(0[0-7]{0,2}|[1-7][0-7]{1,2})"
    r"|\\([afnrtv_]|[^\w\x80-\U0010ffff])|([^\\])",
    re.DOTALL | re.ASCII,
)
_LETTERS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
#: What stands for a set of characters, all of ASCII; a capital letter and a `^` say all others.
_SETS = {
    "d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_", "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f",
    "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_SET = re.compile(rf"\\([dswDSW])|\[:(\^?)({'|'.join(_SETS)}):\]")
#: What tests a place, or any character, in the words of Python.
_TESTS = {"^": r"\A", "$": r"\Z", ".": ".", r"\A": r"\A", r"\z": r"\Z", r"\b": r"\b", r"\B": r"(?!\b)"}
_TEST = re.compile(r"[.^$]|\\[AzbB]")


class Pattern:
    r"""A pattern that a whole text matches or does not.

    Args:
        text: In the syntax of RE2, but for `\p` (Unicode's classes), `\Q` and `\C`.

    Raises:
        ValueError: It is no such pattern, or a very large one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._flags = ""
        #: What each state tests, nothing where None, and the states behind it. The first one is the end.
        self._states: list[tuple[re.Pattern[str] | None, tuple[int, ...]]] = [(None, ())]
        try:
            part = self._alternatives()
            if self._place < len(text):
                raise self._wrong("expected a `(` before this")
            self._first = part(0)
        except RecursionError as error:
            raise self._wrong("expected fewer groups inside of groups") from error

    def matches(self, text: str) -> bool:
        """Return whether all of a text matches."""
        waiting, seen = {self._first}, set[int]()
        for place in range(len(text) + 1):
            seen, after, left = set(waiting), set[int](), [*waiting]
            while left:
                test, behind = self._states[left.pop()]
                found = test.match(text, place) if test else None
                if found and found.end() > place:
                    after.update(behind)
                elif found or not test:
                    left += [one for one in behind if one not in seen]
                    seen.update(behind)
            waiting = after
        return 0 in seen

    def _wrong(self, expected: str) -> ValueError:
        there = self._text[self._place : self._place + 10]
        return ValueError(f"`{self._text[:80]}` is no pattern that RE2 reads here: at `{there}`, {expected}")

    def _taken(self, what: re.Pattern[str]) -> re.Match[str] | None:
        """Return what stands next, behind which reading goes on."""
        found = what.match(self._text, self._place)
        self._place = found.end() if found else self._place
        return found

    def _state(self, test: re.Pattern[str] | None, *behind: int) -> int:
        if len(self._states) >= _MOST_STATES:
            raise self._wrong(f"expected a pattern of less than {_MOST_STATES} states: shorter repetitions")
        self._states.append((test, behind))
        return len(self._states) - 1

    def _alternatives(self) -> Part:
        parts = [self._sequence()]
        while self._text.startswith("|", self._place):
            self._place += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else lambda after: self._state(None, *(one(after) for one in parts))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._place < len(self._text) and self._text[self._place] not in "|)":
            one = self._atom()
            if one:
                parts.append(self._repeated(one))

        def build(after: int) -> int:
            for one in reversed(parts):
                after = one(after)
            return after

        return build

    def _repeated(self, one: Part) -> Part:
        """Return a part with the repetition that follows it; which way would be tried first makes no difference."""
        found = self._taken(_REPEATED)
        if not found:
            return one
        sign, first, comma, last = found.groups()
        least = int(first or sign == "+")
        most = int(last) if last else 1 if sign == "?" else None if sign or comma else least
        if not least <= (least if most is None else most) <= _MOST_TIMES or _REPEATED.match(self._text, self._place):
            raise self._wrong(f"expected one repetition before this, of at most {_MOST_TIMES} times")

        def build(end: int) -> int:
            after = end
            if most is None:
                after = self._state(None, end)
                self._states[after] = (None, (one(after), end))
            for _ in range(least, most or 0):
                after = self._state(None, one(after), end)
            for _ in range(least):
                after = one(after)
            return after

        return build

    def _atom(self) -> Part | None:
        """Return what may be repeated, or None for flags alone."""
        if opened := self._taken(_OPENED):
            before, (on, off, end) = self._flags, opened.groups()
            self._flags = "".join(sorted({*self._flags, *(on or "")} - {*(off or ""), "U"}))
            if end == ")":
                return None
            inner = self._alternatives()
            if not self._text.startswith(")", self._place):
                raise self._wrong("expected a `)`")
            self._place += 1
            self._flags = before
            return inner
        if found := self._taken(_TEST):
            # At the ends of lines both tests are those of Python.
            many = "m" in self._flags and found[0] in "^$"
            return self._test(found[0] if many else _TESTS[found[0]], "a")
        if found := self._taken(_SET):
            return self._test("[{}{}]".format("^" * _set(found)[0], _set(found)[1]))
        if self._text.startswith("[", self._place):
            return self._test(self._class())
        if self._text[self._place] == "(" or _REPEATED.match(self._text, self._place):
            raise self._wrong(
                "expected the syntax of RE2: something before a repetition, no look-ahead, no look-behind"
            )
        return self._test(re.escape(self._character()))

    def _test(self, test: str, more: str = "") -> Part:
        flags = more + self._flags
        compiled = re.compile(f"(?{flags}){test}" if flags else test)
        return lambda after: self._state(compiled, after)

    def _character(self) -> str:
        found = self._taken(_CHARACTER)
        if not found:
            raise self._wrong("expected the syntax of RE2: no references to groups, no `\\p`, `\\Q` or `\\C`")
        short, long, octal, escaped, itself = found.groups()
        number = int(short or long or "0", 16) + int(octal or "0", 8)
        if number > 0x10FFFF:
            raise self._wrong("expected the number of a character before this")
        return itself or _LETTERS.get(escaped, escaped) or chr(number)

    def _class(self) -> str:
        """Return a class in the words of Python: what it has, and the sets that it has all but."""
        negated = self._text.startswith("[^", self._place)
        self._place += 1 + negated
        some, others, start = "", "", self._place
        while not self._text.startswith("]", self._place) or self._place == start:
            if found := self._taken(_SET):
                is_all_but, characters = _set(found)
                others += f"|[^{characters}]" if is_all_but else ""
                some += "" if is_all_but else characters
                continue
            first = last = self._character()
            if self._text.startswith("-", self._place) and not self._text.startswith("-]", self._place):
                self._place += 1
                last = self._character()
            if first > last:
                raise self._wrong("expected the first character of a range before its last")
            some += f"{re.escape(first)}-{re.escape(last)}"
        self._place += 1
        one = f"[{some}]{others}" if some else others[1:]
        return rf"(?!{one})[\s\S]" if negated else f"(?:{one})"


def _set(found: re.Match[str]) -> tuple[bool, str]:
    """Return whether a set is all but some characters, and these in the words of Python's classes."""
    letter, is_not, name = found.groups()
    return (letter.isupper(), _SETS[letter.lower()]) if letter else (bool(is_not), _SETS[name])
