"""Byte pair encoding: the pair of neighbours that was learnt first is joined, until no pair is known.

R. Sennrich, B. Haddow, A. Birch: Neural Machine Translation of Rare Words with Subword Units (2016),
https://arxiv.org/abs/1508.07909. Of equal pairs the leftmost is joined first.
"""

from __future__ import annotations

import re
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from edge_infer.tasks.text.definition import malformed, unsupported
from edge_infer.tasks.text.models.base import check_length

if TYPE_CHECKING:
    from edge_infer.tasks.text.definition import Part
    from edge_infer.tasks.text.models.base import Token

#: From this many characters on, the queue is faster than looking through the word for each pair.
_LONG = 48


class BPE:
    """The model of a part BPE, its bytes written as characters or as `<0x0A>` where it says so.

    Raises:
        BundleError: The part is malformed, or a pair is not of the vocabulary.
        UnsupportedModel: It leaves pairs out at random (`dropout`).
    """

    def __init__(self, part: Part) -> None:
        if part.values.get("dropout"):
            unsupported(f"`{part.where}`", "dropout", "it is for training: write null")
        self.vocabulary = vocabulary = part.vocabulary("vocab")
        self._prefix = part.text("continuing_subword_prefix", "")
        self._suffix = part.text("end_of_word_suffix", "")
        self._is_plain = not (self._prefix or self._suffix)
        self._is_unknown_fused = part.flag("fuse_unk", False)
        self._are_words_whole = part.flag("ignore_merges", False)
        unknown = part.text("unk_token", None)
        self._unknown = None if unknown is None else vocabulary.get(unknown)
        self._bytes: list[int | None] | None = None
        if part.flag("byte_fallback", False):
            self._bytes = [vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._made: list[int] = []  # by rank what the pair makes
        #: The rank of each pair of ids.
        self._pairs: dict[tuple[int, int], int] = {}
        self._read_merges(part)
        self.cut = re.compile("▁+[^▁]*|[^▁]+") if self._can_cut() else None

    def _read_merges(self, part: Part) -> None:
        vocabulary, prefix = self.vocabulary, len(self._prefix)
        for rank, merge in enumerate(part.items("merges")):
            pair = merge.split(" ", 1) if isinstance(merge, str) else merge
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
                malformed(f"`{part.where}.merges[{rank}]`", "must be two tokens")
            first, second = pair
            made = vocabulary.get(first + second[prefix:])
            if made is None or first not in vocabulary or second not in vocabulary:
                malformed(f"`{part.where}.merges[{rank}]`", "is of tokens that are not in the vocabulary")
            self._pairs[vocabulary[first], vocabulary[second]] = rank
            self._made.append(made)

    def _can_cut(self) -> bool:
        """Whether no token has `▁` behind another character: then no pair is joined there, and words are found again.

        Tokenizers of the Llama 2 kind have no pre-tokenizer, so that a whole text is one word.
        """
        if self._prefix or self._suffix or self._are_words_whole or "▁" not in self.vocabulary:
            return False
        return not any("▁" in token.lstrip("▁") for token in self.vocabulary)

    def split(self, word: str) -> list[Token]:
        """Return the tokens of a word."""
        if self._are_words_whole and (whole := self.vocabulary.get(word)) is not None:
            return [(whole, 0, len(word))]
        if self._is_plain and len(word) < _LONG:
            numbers = [*map(self.vocabulary.get, word)]
            if None not in numbers:  # the fast way: each character is a token
                return self._join(cast("list[int]", numbers), [*range(len(word))], [*range(1, len(word) + 1)])
        tokens = self._characters(word)
        if not tokens or len(tokens) >= _LONG:
            return self._join_by_queue(tokens)
        ids, starts, ends = (list(column) for column in zip(*tokens, strict=True))
        return self._join(ids, starts, ends)

    def _characters(self, word: str) -> list[Token]:
        """Return the tokens of single characters."""
        check_length(word)
        vocabulary, last = self.vocabulary, len(word) - 1
        found: list[Token] = []
        unknown: Token | None = None
        is_in_order = True
        for index, character in enumerate(word):
            written = (self._prefix if index else "") + character + (self._suffix if index == last else "")
            number = vocabulary.get(written)
            if number is not None:
                if unknown:
                    found.append(unknown)
                    unknown = None
                found.append((number, index, index + 1))
            elif numbers := self._of_bytes(written):
                found += [(one, index, index + 1) for one in numbers]
                is_in_order = is_in_order and not unknown
            elif self._unknown is not None:
                if unknown and self._is_unknown_fused:
                    unknown = (unknown[0], unknown[1], index + 1)
                else:
                    if unknown:
                        found.append(unknown)
                    unknown = (self._unknown, index, index + 1)
            else:
                is_in_order = False
        if unknown:
            found.append(unknown)
        return found if is_in_order else self._counted(word, found)

    def _counted(self, word: str, tokens: list[Token]) -> list[Token]:
        """Place tokens as the package does: one behind the other, by the bytes of their text.

        That is not where they are in the word if a character before them is in no token, or if an unknown one comes
        behind the bytes of the next character.
        """
        owners = [index for index, character in enumerate(word) for _ in character.encode()]
        found, at = [], 0
        for number, start, end in tokens:
            size = 1 if self._bytes and number in self._bytes else len(word[start:end].encode())
            found.append((number, owners[at], owners[at + size - 1] + 1))
            at += size
        return found

    def _of_bytes(self, character: str) -> list[int] | None:
        if self._bytes is None:
            return None
        found = [number for byte in character.encode() if (number := self._bytes[byte]) is not None]
        return found if len(found) == len(character.encode()) else None

    def _join(self, ids: list[int], starts: list[int], ends: list[int]) -> list[Token]:
        pairs, made, none = self._pairs, self._made, len(self._made)
        ranks = [pairs.get(pair, none) for pair in pairwise(ids)]
        while ranks and (best := min(ranks)) < none:
            at = ranks.index(best)
            ids[at] = made[best]
            del ranks[at], ids[at + 1], starts[at + 1], ends[at]
            if at < len(ranks):
                ranks[at] = pairs.get((ids[at], ids[at + 1]), none)
            if at:
                ranks[at - 1] = pairs.get((ids[at - 1], ids[at]), none)
        return [*zip(ids, starts, ends, strict=True)]

    def _join_by_queue(self, tokens: list[Token]) -> list[Token]:
        """Do the same in `n log n`: the pairs wait in a queue by rank and place, over a list that is linked."""
        pairs, count = self._pairs, len(tokens)
        ids, ends = [one[0] for one in tokens], [one[2] for one in tokens]
        following, previous = [*range(1, count), -1], list(range(-1, count - 1))
        queue: list[int] = []  # rank * count + place

        def found(at: int) -> int | None:
            rank = pairs.get((ids[at], ids[following[at]]))
            return None if rank is None else rank * count + at

        queue = [entry for at in range(count - 1) if (entry := found(at)) is not None]
        heapify(queue)
        while queue:
            rank, at = divmod(heappop(queue), count)
            behind = following[at]
            if behind < 0 or ids[at] < 0 or pairs.get((ids[at], ids[behind])) != rank:
                continue  # one of the two was joined with another since
            ids[at], ids[behind], ends[at] = self._made[rank], -1, ends[behind]
            following[at] = after = following[behind]
            if after >= 0:
                previous[after] = at
                if (entry := found(at)) is not None:
                    heappush(queue, entry)
            before = previous[at]
            if before >= 0 and (entry := found(before)) is not None:
                heappush(queue, entry)
        return [(ids[at], tokens[at][1], ends[at]) for at in range(count) if ids[at] >= 0]
