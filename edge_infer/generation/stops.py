"""Stop strings in a text that arrives in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Characters of all stop strings of one generation together.
MAX_CHARACTERS = 65_536


class _Node:
    """A prefix of stop strings."""

    __slots__ = ("depth", "length", "next", "shorter")

    def __init__(self, depth: int) -> None:
        self.next: dict[str, _Node] = {}
        #: The longest other prefix that this one ends with.
        self.shorter: _Node | None = None
        self.depth = depth
        #: Of the longest stop string that this prefix ends with; 0 for none.
        self.length = 0


class Found(NamedTuple):
    """What may be given of a text.

    Attributes:
        text: No later text can make it a part of a stop string.
        is_stopped: Whether a stop string follows.
    """

    text: str
    is_stopped: bool


class Stops:
    """Looks for strings in a text that arrives in pieces, and holds back what may become one.

    One pass over the text by the automaton of Aho and Corasick (1975), however many strings there are.

    Args:
        strings: The stop strings.

    Raises:
        InputError: They have more than 65,536 characters together.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        if sum(map(len, strings)) > MAX_CHARACTERS:
            raise InputError(
                f"`stop` has {sum(map(len, strings))} characters in all, at most {MAX_CHARACTERS} are allowed",
                option="stop",
            )
        self._root = self._at = _automaton(strings)
        self._held = ""

    def add(self, text: str) -> Found:
        """Take the next piece and return what is certain; after a stop string nothing more may be added."""
        held = self._held + text
        if not self._root.next:
            return Found(held, is_stopped=False)
        node = self._at
        for at, character in enumerate(text, len(self._held) + 1):
            while character not in node.next and node.shorter is not None:
                node = node.shorter
            node = node.next.get(character, self._root)
            if node.length:
                self._held = ""
                return Found(held[: at - node.length], is_stopped=True)
        self._at = node
        certain = len(held) - node.depth
        self._held = held[certain:]
        return Found(held[:certain], is_stopped=False)

    def flush(self) -> str:
        """Return what was held back, once the text has ended."""
        held, self._held, self._at = self._held, "", self._root
        return held


def _automaton(strings: Sequence[str]) -> _Node:
    root = _Node(0)
    for string in strings:
        node = root
        for depth, character in enumerate(string, 1):
            node = node.next.setdefault(character, _Node(depth))
        node.length = len(string)
    waiting = list(root.next.values())
    for node in waiting:
        node.shorter = root
    for node in waiting:
        for character, child in node.next.items():
            shorter = node.shorter
            while shorter is not None and character not in shorter.next:
                shorter = shorter.shorter
            child.shorter = root if shorter is None else shorter.next[character]
            child.length = child.length or child.shorter.length
            waiting.append(child)
    return root
