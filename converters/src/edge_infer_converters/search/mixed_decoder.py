"""Search the parts of a decoder that may have 4 bits: the smallest file whose perplexity keeps a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import AccuracyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def part_of(tensor: str) -> str:
    """Return the part that a tensor belongs to: its layer, or itself where it is in none."""
    words = tensor.split(".")
    return ".".join(words[:2]) if words[0] == "layers" else tensor


def search(
    sizes: Mapping[str, int], perplexity: Callable[[frozenset[str]], float], limit: float, done: Callable[[int], None]
) -> frozenset[str]:
    """Return the parts that have 4 bits; all others have 8.

    Each part is tried alone in 4 bits. They are taken in the order of what they lose for a byte, as many as the budget
    allows; that many is found by halving, measured each time, as losses do not simply add up.

    Args:
        sizes: By part the bytes that 4 bits save.
        perplexity: Of a choice.
        limit: The largest perplexity.
        done: Told of each choice that was measured.

    Raises:
        AccuracyError: 8 bits alone lose too much.
    """

    def measured(chosen: frozenset[str]) -> float:
        found = perplexity(chosen)
        done(1)
        return found

    whole = frozenset(sizes)
    if measured(whole) <= limit:
        return whole
    least = measured(frozenset())
    if not least <= limit:
        raise AccuracyError(
            f"8 bits have a perplexity of {least:.4g}, the budget allows {limit:.4g}",
            hint="--precision fp16, or a larger --max-loss",
            got=least,
            expected=limit,
        )
    losses = {part: (measured(frozenset((part,))) - least) / size for part, size in sizes.items()}
    order = sorted(losses, key=lambda part: (losses[part], part))
    fits, fails = 0, len(order)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if measured(frozenset(order[:middle])) <= limit:
            fits = middle
        else:
            fails = middle
    return frozenset(order[:fits])


def most_trials(parts: int) -> int:
    """Return how many choices a search of so many parts measures at most."""
    return parts + 2 + max(parts, 1).bit_length()
