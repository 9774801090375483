"""Search the matrices of a decoder that may have 4 bits: the smallest file that keeps a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import AccuracyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_infer_converters.search.perplexity import Measured

#: A matrix alone is tried on one window of so many: the divergence of it is sure enough.
ALONE = 4


def search(
    sizes: Mapping[str, int],
    measure: Callable[[frozenset[str], int], Measured],
    most: float,
    done: Callable[[int], None],
) -> frozenset[str]:
    """Return the matrices that have 4 bits; all others have 8.

    Each is tried alone in 4 bits. They are taken in the order of what they diverge for a byte, as many as the budget
    allows; that many is found by halving, measured each time, as losses do not simply add up.

    Args:
        sizes: By matrix the bytes that 4 bits save.
        measure: Of a choice, and of how many windows one is read.
        most: The largest loss, 0.01 being 1 %: of what was seen, and of what is to be expected.
        done: Told of each choice that was measured.

    Raises:
        AccuracyError: 8 bits alone lose too much.
    """

    def keeps(chosen: frozenset[str]) -> bool:
        found = measure(chosen, 1)
        done(1)
        return found.worst <= most

    whole = frozenset(sizes)
    if keeps(whole):
        return whole
    least = measure(frozenset(), 1)
    done(1)
    if not least.worst <= most:
        raise AccuracyError(
            f"8 bits lose {least.worst:.2%} (a perplexity of {least.perplexity:.4g}), the budget allows {most:.2%}",
            hint="--precision fp16, or a larger --max-loss",
            got=least.worst,
            expected=most,
        )
    losses = {}
    for name, size in sizes.items():
        losses[name] = measure(frozenset((name,)), ALONE).divergence / size
        done(1)
    order = sorted(losses, key=lambda name: (losses[name], name))
    fits, fails = 0, len(order)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if keeps(frozenset(order[:middle])):
            fits = middle
        else:
            fails = middle
    return frozenset(order[:fits])


def most_trials(matrices: int) -> int:
    """Return how many choices a search of so many matrices measures at most."""
    return matrices + 2 + max(matrices, 1).bit_length()
