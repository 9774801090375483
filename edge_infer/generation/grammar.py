"""Answers of a form: JSON objects, and JSON by a schema."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.generation.automaton import Automaton, State
from edge_infer.generation.json_schema import ANY_OBJECT, json_grammar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from edge_infer.generation.automaton import Node
    from edge_infer.generation.vocabulary import Vocabulary


def grammar_of(
    response_format: Mapping[str, Any], vocabulary: Vocabulary, ends: Collection[int]
) -> TokenGrammar | None:
    """Return the grammar of a response format; None for any text.

    Args:
        response_format: `{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema", "schema": {...}}`;
            OpenAI's `{"type": "json_schema", "json_schema": {"schema": {...}}}` is read too.
        vocabulary: The bytes of each token.
        ends: Tokens that end an answer.

    Raises:
        InputError: It is another, or the schema cannot be kept.
    """
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return TokenGrammar(ANY_OBJECT, vocabulary, ends)
    if kind != "json_schema":
        raise InputError(
            f"`response_format` is of the type {kind!r}",
            hint="choose from `text`, `json_object`, `json_schema`",
            option="response_format",
        )
    holder = response_format.get("json_schema", response_format)
    if not isinstance(holder, dict) or "schema" not in holder:
        raise InputError(
            "`response_format` has no schema",
            hint='{"type": "json_schema", "schema": {"type": "object"}}',
            option="response_format",
        )
    return TokenGrammar(json_grammar(holder["schema"]), vocabulary, ends)


class TokenGrammar:
    """Which tokens may come next in an answer of a form; of one answer.

    Args:
        root: The form, over bytes.
        vocabulary: The bytes of each token.
        ends: Tokens that may come where the form may be complete.
    """

    def __init__(self, root: Node, vocabulary: Vocabulary, ends: Collection[int]) -> None:
        self._automaton = Automaton(root)
        self._vocabulary = vocabulary
        self._ends = frozenset(ends)
        self._state: State = self._automaton.start
        self._next: dict[int, State] = {}

    def accepts(self, token: int) -> bool:
        """Tell whether a token may come next."""
        if token in self._ends:
            return self._automaton.may_end(self._state)
        data = self._vocabulary.bytes_of(token)
        if not data:
            return False
        found = self._next[token] = self._automaton.after(self._state, data)
        return bool(found)

    def allowed(self) -> Iterator[int]:
        """Return all tokens that may come next: tokens that begin alike are looked at together."""
        if self._automaton.may_end(self._state):
            yield from sorted(self._ends)
        ordered = self._vocabulary.ordered()
        path: list[State] = [self._state]
        before, at = b"", 0
        while at < len(ordered):
            data, token = ordered[at]
            shared = 0
            limit = min(len(data), len(before), len(path) - 1)
            while shared < limit and data[shared] == before[shared]:
                shared += 1
            del path[shared + 1 :]
            for length in range(shared, len(data)):
                state = self._automaton.after(path[-1], data[length : length + 1])
                if not state:
                    # No token with this beginning fits.
                    at = max(at + 1, bisect_left(ordered, (data[: length + 1] + b"\xff" * 256, 0)))
                    break
                path.append(state)
            else:
                if token not in self._ends:
                    yield token
                at += 1
            before = data

    def advance(self, token: int) -> bool:
        """Take the token that came next, and tell whether nothing may follow it."""
        found = self._next.get(token)
        if found is None:
            found = self._automaton.after(self._state, self._vocabulary.bytes_of(token))
        self._state, self._next = found, {}
        return self._automaton.must_end(found)
