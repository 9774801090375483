"""Place the values of a program in one arena, so that those which live at the same time do not overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer_converters.writers.compiled.calls import Value


class Arena(NamedTuple):
    """Where values lie.

    Attributes:
        nbytes: The size of the arena.
        places: Of each value, by its identity, where it starts.
    """

    nbytes: int
    places: dict[int, int]


def place(values: Sequence[Value], alignment: int) -> Arena:
    """Place values, each into the first gap that it fits.

    Several orders are tried and the smallest result is kept: by size, by first use, by length of life, and by both
    (Pisarchyk and Lee 2020, arXiv:2001.03288, greedy by size and by breadth).

    Args:
        values: The roots, each once.
        alignment: Each starts at a multiple of it, in bytes.
    """
    orders: tuple[Callable[[Value], tuple[int, ...]], ...] = (
        lambda one: (-one.nbytes, one.first),
        lambda one: (one.first, -one.nbytes),
        lambda one: (one.first - one.last, -one.nbytes),
        lambda one: (-one.nbytes * (one.last - one.first + 1), one.first),
    )
    return min((_greedy(sorted(values, key=order), alignment) for order in orders), key=lambda found: found.nbytes)


def _greedy(values: Sequence[Value], alignment: int) -> Arena:
    placed: list[tuple[int, int, Value]] = []
    for value in values:
        start = 0
        for begin, end, other in sorted(placed, key=lambda one: one[:2]):
            if other.last < value.first or value.last < other.first:
                continue
            if start + value.nbytes <= begin:
                break
            start = max(start, -(-end // alignment) * alignment)
        placed.append((start, start + value.nbytes, value))
    return Arena(max((end for _, end, _ in placed), default=0), {id(value): start for start, _, value in placed})
