"""A decoder without weights: its logits are a hash of what its cache holds: a wrong cache gives others."""

from __future__ import annotations

from array import array
from heapq import nsmallest
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.generation.random_numbers import RandomNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PRIME = 0x100000001B3


class FakeDecoder:
    """Has the methods of `edge_infer.generation.decoder.Decoder`, and keeps what it was asked to run.

    Args:
        vocab_size: Tokens of the model.
        slots: Rows of the cache.
        context: Positions of a slot.
        scale: The logits are between minus this and this.
        change: Called with the tokens that a row sees and its logits, which it may change.
    """

    def __init__(
        self,
        vocab_size: int = 50,
        slots: int = 1,
        context: int = 64,
        scale: float = 8.0,
        change: Callable[[list[int], memoryview[float]], None] | None = None,
    ) -> None:
        self.config: Any = SimpleNamespace(vocab_size=vocab_size, context=context)
        self.slots, self.context, self.threads = slots, context, 1
        self.runs: list[tuple[list[int], list[int], list[int], list[int]]] = []
        self.copies: list[tuple[int, int, int]] = []
        self.is_closed = False
        self._scale, self._change = scale, change
        self._cache = [[-1] * context for _ in range(slots)]
        self._logits: list[memoryview[float]] = []

    def run(self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], wanted: Sequence[int]) -> None:
        assert not self.is_closed
        self.runs.append((list(tokens), list(slots), list(positions), list(wanted)))
        last: dict[int, int] = {}
        self._logits = []
        for row, (token, slot, position) in enumerate(zip(tokens, slots, positions, strict=True)):
            if not (0 <= token < self.config.vocab_size and 0 <= slot < self.slots and 0 <= position < self.context):
                raise InputError(f"row {row} is out of range")
            assert last.get(slot, -1) < position, "the rows of a slot rise"
            last[slot] = position
            self._cache[slot][position] = token
            if row in wanted:
                self._logits.append(self._row(self._cache[slot][: position + 1]))
        assert list(wanted) == sorted(wanted)

    def _row(self, seen: list[int]) -> memoryview[float]:
        assert -1 not in seen, "a row sees positions that were never written"
        key = 0xCBF29CE484222325
        for token in seen:
            key = ((key ^ (token + 1)) * _PRIME) & (2**64 - 1)
        uniform = RandomNumbers(key).uniform
        values = array("f", ((2.0 * uniform() - 1.0) * self._scale for _ in range(self.config.vocab_size)))
        logits = memoryview(values).cast("B").cast("f")
        if self._change is not None:
            self._change(seen, logits)
        return logits

    def logits(self, index: int) -> memoryview[float]:
        return self._logits[index]

    def top(self, index: int, count: int) -> list[tuple[int, float]]:
        logits = self._logits[index].tolist()

        def order(one: int) -> tuple[bool, float, int]:
            return logits[one] == logits[one], -logits[one], one

        return [(one, logits[one]) for one in nsmallest(count, range(len(logits)), key=order)]

    def copy(self, from_slot: int, to_slot: int, length: int) -> None:
        self.copies.append((from_slot, to_slot, length))
        self._cache[to_slot][:length] = self._cache[from_slot][:length]

    def close(self) -> None:
        self.is_closed = True
