"""Whatever is added, deleted and compacted, an index holds what a dictionary would."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import edge_infer
from edge_infer.errors import InputError

_NUMBERS = st.integers(0, 12)
_VECTOR = st.tuples(*[st.integers(-3, 3)] * 3).filter(any)


class Changes(RuleBasedStateMachine):
    """An index beside a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name, "a.index")
        self.index = edge_infer.Index.create(self.path, 3)
        self.model: dict[int, tuple[tuple[int, ...], str]] = {}
        self.next = 0

    @rule(entries=st.dictionaries(_NUMBERS, _VECTOR, min_size=1, max_size=4))
    def add(self, entries: dict[int, tuple[int, ...]]) -> None:
        texts = [f"{number} {vector}" for number, vector in entries.items()]
        arguments: dict[str, Any] = {"vectors": [*entries.values()], "ids": [*entries], "texts": texts}
        if self.model.keys() & entries.keys():
            try:
                self.index.add(**arguments)
            except InputError:
                return
            raise AssertionError("an id was taken twice")
        self.index.add(**arguments)
        self.model.update(zip(entries, zip(entries.values(), texts, strict=True), strict=True))
        self.next = max(self.next, *(number + 1 for number in entries))

    @rule(vector=_VECTOR)
    def add_without_an_id(self, vector: tuple[int, ...]) -> None:
        assert self.index.add([vector], texts=["new"]) == [self.next]
        self.model[self.next] = (vector, "new")
        self.next += 1

    @rule(numbers=st.lists(_NUMBERS, max_size=4))
    def delete(self, numbers: list[int]) -> None:
        there = self.model.keys() & set(numbers)
        assert self.index.delete(numbers) == len(there)
        for number in there:
            del self.model[number]

    @rule()
    def compact(self) -> None:
        self.index.compact()
        assert self.index.info()["deleted"] == 0

    @rule()
    def open_again(self) -> None:
        self.index = edge_infer.Index.open(self.path)

    @precondition(lambda self: self.model)
    @rule(query=_VECTOR)
    def search(self, query: tuple[int, ...]) -> None:
        hits = self.index.search(query, 100)
        assert {hit.id: hit.text for hit in hits} == {number: text for number, (_, text) in self.model.items()}
        for hit in hits:
            assert abs(hit.score - edge_infer.cosine_similarity(self.model[hit.id][0], query)) < 0.02

    @invariant()
    def the_ids_are_the_same(self) -> None:
        assert len(self.index) == len(self.model)
        assert sorted(self.index.ids()) == sorted(self.model)

    def teardown(self) -> None:
        self._folder.cleanup()


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=10, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
