"""Find the smallest file within a budget: which weight is stored in how many bits.

Noise of small, independent errors adds up, so the best order in which to take bits away is that of noise per byte
saved, along the lower convex hull of each weight's choices (Shoham and Gersho 1988, "Efficient bit allocation for an
arbitrary set of quantizers"). How far along it the budget allows to go is found by bisection, each trial measured on
real outputs (with few moves, every step is). Afterwards the moves beyond are tried one by one, and those that fit are
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer_converters.passes.weight import Weight
    from edge_infer_converters.search.sensitivity import Sensitivity

#: Up to how many moves every step is measured: a metric such as accuracy may fall and rise again.
MAX_EXHAUSTIVE = 24
#: How many moves beyond the bisection's end are tried one by one.
MAX_SINGLE_TRIALS = 16


class Move(NamedTuple):
    """Store one weight in an encoding with fewer bytes."""

    weight: Weight
    encoding: str
    price: float


class Trial(NamedTuple):
    """The result of one choice of encodings.

    Attributes:
        choice: The encoding of each weight by name.
        nbytes: The estimated bytes of all these weights.
        sqnr_db: The SQNR of the outputs.
        loss: The relative drop of the metric.
        is_within: Whether it keeps the budget, the size aside.
    """

    choice: Mapping[str, str]
    nbytes: int
    sqnr_db: float
    loss: float
    is_within: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: The smallest choice within the budget, or None where even half precision is beyond it.
        trials: All that was measured, in order.
        is_interrupted: Whether it was stopped before its end.
    """

    best: Trial | None
    trials: tuple[Trial, ...]
    is_interrupted: bool


def moves_of(sensitivities: Sequence[Sensitivity]) -> tuple[Move, ...]:
    """Order all ways to take bits away from half precision by noise per byte saved, the cheapest first."""
    by_weight: dict[str, list[Sensitivity]] = {}
    for one in sensitivities:
        by_weight.setdefault(one.weight.name, []).append(one)
    moves: list[Move] = []
    for choices in by_weight.values():
        weight = choices[0].weight
        start = "fp16" if "fp16" in weight.encodings else "fp32"
        noise, nbytes = 0.0, weight.nbytes(start)
        waiting = [one for one in choices if weight.nbytes(one.encoding) < nbytes]
        while waiting:
            prices = [
                (max(one.noise - noise, 0.0) / (nbytes - weight.nbytes(one.encoding)), i)
                for i, one in enumerate(waiting)
            ]
            # Of equal prices the one that saves most, which stands last.
            price, i = min(prices, key=lambda pair: (pair[0], -pair[1]))
            taken = waiting[i]
            moves.append(Move(weight, taken.encoding, price))
            noise, nbytes = max(taken.noise, noise), weight.nbytes(taken.encoding)
            waiting = waiting[i + 1 :]
    return tuple(sorted(moves, key=lambda move: (move.price, move.weight.name)))


def search(
    weights: Sequence[Weight],
    moves: Sequence[Move],
    evaluate: Callable[[Mapping[str, str]], Trial],
    advance: Callable[[int], None] = lambda _: None,
) -> SearchResult:
    """Find the smallest choice that `evaluate` accepts.

    A KeyboardInterrupt ends the search, and the best that was found until then is returned.

    Args:
        weights: All weights.
        moves: What `moves_of` gave.
        evaluate: Measures a choice.
        advance: Told after each trial.
    """
    trials: list[Trial] = []

    def attempt(choice: Mapping[str, str]) -> Trial:
        trial = evaluate(choice)
        trials.append(trial)
        advance(1)
        return trial

    is_interrupted = False
    try:
        _climb(start_of(weights), moves, attempt)
    except KeyboardInterrupt:
        is_interrupted = True
    return SearchResult(smallest(trials), tuple(trials), is_interrupted)


def start_of(weights: Sequence[Weight]) -> dict[str, str]:
    """Return the choice that the search starts from: half precision wherever it fits."""
    return {weight.name: "fp16" for weight in weights if "fp16" in weight.encodings}


def smallest(trials: Sequence[Trial]) -> Trial | None:
    """Return the smallest trial within the budget; of equal ones the first."""
    return min((trial for trial in trials if trial.is_within), key=lambda trial: trial.nbytes, default=None)


def choice_after(start: Mapping[str, str], moves: Sequence[Move]) -> dict[str, str]:
    """Return the encodings after these moves."""
    return {**start, **{move.weight.name: move.encoding for move in moves}}


def _climb(start: dict[str, str], moves: Sequence[Move], attempt: Callable[[Mapping[str, str]], Trial]) -> None:
    if not attempt(start).is_within:
        return
    low, high = 0, len(moves)  # the first `low` moves fit
    if moves and attempt(choice_after(start, moves)).is_within:
        return
    if high <= MAX_EXHAUSTIVE:
        fits = [i for i in range(1, high) if attempt(choice_after(start, moves[:i])).is_within]
        low = high = max(fits, default=0)
    while high - low > 1:
        middle = (low + high) // 2
        if attempt(choice_after(start, moves[:middle])).is_within:
            low = middle
        else:
            high = middle
    made = list(moves[:low])
    for move in sorted(moves[low + 1 : low + 1 + MAX_SINGLE_TRIALS], key=lambda move: move.price):
        if attempt(choice_after(start, [*made, move])).is_within:
            made.append(move)
