"""Unigram: of all ways to cut a word, the one whose tokens have the highest sum of scores.

T. Kudo: Subword Regularization (2018), https://arxiv.org/abs/1804.10959, found by Viterbi's algorithm. Of two ways
with equal sums the one that was found first stays: the ends are reached from earlier starts first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.tasks.text.definition import malformed, unsupported
from edge_infer.tasks.text.models.base import cannot_write, check_length

if TYPE_CHECKING:
    import re

    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.models.base import Token

#: The longest token: the time for a word grows with its square. SentencePiece makes tokens of at most 16 characters.
_MAX_TOKEN = 512
#: The most characters of all beginnings of all tokens, which are kept; a vocabulary of 250,000 has 5 million.
_MAX_BEGINNINGS = 100_000_000
#: How much lower than the lowest score an unknown character is (`K_UNK_PENALTY` in the package).
_UNKNOWN_PENALTY = 10.0


class Unigram:
    """The model of a part Unigram.

    Raises:
        BundleError: The part is malformed.
        UnsupportedModel: Its tokens are too long.
    """

    cut: re.Pattern[str] | None = None

    def __init__(self, part: Part) -> None:
        self.vocabulary: dict[str, int] = {}
        self._scores: dict[str, float] = {}
        for number, entry in enumerate(part.items("vocab")):
            if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)) or (
                type(entry[1]) not in (int, float) or not math.isfinite(entry[1])
            ):
                malformed(f"`{part.where}.vocab[{number}]`", "must be a token and its score")
            self.vocabulary[entry[0]], self._scores[entry[0]] = number, float(entry[1])
        self._unknown = part.whole("unk_id", None)
        count = len(part.items("vocab"))
        if not count or (self._unknown is not None and self._unknown >= count):
            malformed(f"`{part.where}`", f"has {count} tokens and the unknown one is {self._unknown}")
        lengths = [len(token) for token in self.vocabulary]
        self._longest = max(lengths)
        if self._longest > _MAX_TOKEN or sum(one * one // 2 for one in lengths) > _MAX_BEGINNINGS:
            unsupported(f"`{part.where}`", f"a vocabulary with tokens of {self._longest} characters")
        self._unknown_score = min(self._scores.values()) - _UNKNOWN_PENALTY
        # Where no token begins so, a longer part of the word need not be looked up.
        self._beginnings = {token[:end] for token in self.vocabulary for end in range(1, len(token))}
        self._bytes: list[int | None] | None = None
        if part.flag("byte_fallback", False):
            self._bytes = [self.vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]

    def split(self, word: str) -> list[Token]:
        """Return the tokens of a word."""
        check_length(word)
        found: list[Token] = []
        for start, end in self._best_parts(word):
            part = word[start:end]
            number = self.vocabulary.get(part)
            if number is None and self._bytes is not None:
                numbers = [one for byte in part.encode() if (one := self._bytes[byte]) is not None]
                if len(numbers) == len(part.encode()):
                    found += [(one, start, end) for one in numbers]
                    continue
            number = self._unknown if number is None else number
            if number is None:
                cannot_write(part)
            found.append((number, start, end))
        return found

    def _best_parts(self, word: str) -> list[tuple[int, int]]:
        """Return where the tokens of the best way are; unknown characters that touch are one."""
        length, scores, beginnings = len(word), self._scores, self._beginnings
        unknown = self._unknown
        best = [0.0] * (length + 1)
        starts = [-1] * (length + 1)
        is_unknown = bytearray(length + 1)
        for start in range(length):
            here = best[start]
            has_single = False
            for end in range(start + 1, min(length, start + self._longest) + 1):
                part = word[start:end]
                score = scores.get(part)
                if score is not None:
                    score += here
                    if starts[end] < 0 or score > best[end]:
                        best[end], starts[end] = score, start
                        is_unknown[end] = self.vocabulary[part] == unknown
                    if end == start + 1:
                        has_single = True
                if part not in beginnings:
                    break
            if not has_single:
                if unknown is None:
                    cannot_write(word[start])
                score, end = self._unknown_score + here, start + 1
                if starts[end] < 0 or score > best[end]:
                    best[end], starts[end], is_unknown[end] = score, start, True
        parts: list[tuple[int, int]] = []
        end, was_unknown = length, False
        while end > 0:
            start = starts[end]
            if is_unknown[end] and was_unknown:
                parts[-1] = (start, parts[-1][1])
            else:
                parts.append((start, end))
            was_unknown = bool(is_unknown[end])
            end = start
        return parts[::-1]
