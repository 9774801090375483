"""What a regular expression may cost: Python's `re` goes back and tries again, which can take years.

ONNX's RegexFullMatch has the syntax of RE2, which takes time in proportion to the text. So patterns whose repetitions
can be read in several ways are refused, and so are texts that are too long for the others.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Steps that a match may take in the worst case: seconds.
_MOST_STEPS = 1e7
_BOUNDS = re.compile(r"\{(\d*)(,?)(\d*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
_OPEN = re.compile(r"\((?:\?(?:P?<[A-Za-z_]\w*>|[aimsux]*(?:-[imsx]+)?[:)]))?")
#: A class of POSIX, or a repetition without its first bound: Python's `re` takes them for something else.
_OTHER = re.compile(r"\[:\^?\w+:\]|\{,\d+\}")
_FOLDS = re.compile(r"\(\?[a-z]*i")


class Cost(NamedTuple):
    """What a part of a pattern may cost.

    Attributes:
        ways: In how many ways it can match one text, but for repetitions without an end.
        endless: How many of those there are beside one another: each multiplies the steps by the text's length.
    """

    ways: float = 1.0
    endless: int = 0


class Pattern:
    """A pattern that is matched within a bound of steps.

    Args:
        text: In the syntax that RE2 and Python share.

    Raises:
        ValueError: It is no such pattern, or could take a time that grows without bound.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        if other := _OTHER.search(text):
            raise ValueError(
                f"the pattern `{text[:80]}` has `{other[0]}`, which RE2 and Python read in two ways; expected a class "
                "such as `[A-Za-z]`, or both bounds of a repetition"
            )
        try:
            # RE2's \d, \w, \s and \b know ASCII alone, but letters of either case are those of Unicode.
            self._compiled = re.compile(text, 0 if _FOLDS.search(text) else re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"`{text[:80]}` is no pattern: {error}") from error
        self._place = 0
        self._cost = self._alternatives()

    def matches(self, text: str) -> bool:
        """Return whether all of a text matches.

        Raises:
            ValueError: The text is too long for the pattern.
        """
        if self._cost.ways * float(max(len(text), 1)) ** self._cost.endless > _MOST_STEPS:
            raise ValueError(
                f"a text of {len(text)} characters, for which the pattern `{self._text[:80]}` could take more than "
                f"{_MOST_STEPS:.0e} steps; onnxruntime takes time in proportion to the text"
            )
        return self._compiled.fullmatch(text) is not None

    def _alternatives(self) -> Cost:
        total, endless = 0.0, 0
        while True:
            one = self._sequence()
            total, endless = total + one.ways, max(endless, one.endless)
            if self._text[self._place : self._place + 1] != "|":
                return Cost(total, endless)
            self._place += 1

    def _sequence(self) -> Cost:
        found = Cost()
        while self._place < len(self._text) and self._text[self._place] not in "|)":
            one = self._repeated(self._atom())
            found = Cost(min(found.ways * one.ways, 1e300), found.endless + one.endless)
        return found

    def _atom(self) -> Cost:
        text, place = self._text, self._place
        opened = _OPEN.match(text, place)
        if opened and opened[0][-1] == ")":  # flags alone
            self._place = opened.end()
        elif opened and text[opened.end() : opened.end() + 1] != "?":
            self._place = opened.end()
            inner = self._alternatives()
            self._place += 1
            return inner
        elif text[place] == "(" or re.match(r"\\[1-9]", text[place : place + 2]):
            raise ValueError(
                f"the pattern `{text[:80]}` has `{text[place : place + 4]}`, expected the syntax of RE2: no "
                "look-ahead, no look-behind and no references to groups"
            )
        elif text[place] == "[" and (found := _CLASS.match(text, place)):
            self._place = found.end()
        else:
            self._place += 2 if text[place] == "\\" else 1
        return Cost()

    def _repeated(self, one: Cost) -> Cost:
        """Return the cost of a part with the repetitions that follow it."""
        while self._place < len(self._text):
            bounds = _BOUNDS.match(self._text, self._place)
            letter = self._text[self._place]
            if letter in "*+" or (bounds and bounds[2] and not bounds[3]):
                if one.ways > 1 or one.endless:
                    raise ValueError(
                        f"the pattern `{self._text[:80]}` repeats what can be read in several ways, so that the "
                        "time could double with each character; expected a class such as `[ab]*` for `(a|b)*`"
                    )
                one = Cost(1.0, 1)
            elif letter == "?":
                one = Cost(one.ways + 1, one.endless)
            elif bounds and (bounds[1] or bounds[3]):
                least, most = int(bounds[1] or 0), int(bounds[3] or bounds[1])
                ways = (most - least + 1) * min(one.ways, 1e9) ** min(most, 30)
                one = Cost(min(ways, 1e300), one.endless * most)
            else:
                return one
            self._place += len(bounds[0]) if bounds else 1
            if self._text[self._place : self._place + 1] in ("?", "+"):  # lazy, or possessive
                self._place += 1
        return one
