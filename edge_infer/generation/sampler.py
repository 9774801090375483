"""The choice of the next token: penalties, selection and draw, with the same bits in Python and JavaScript.

The rules, which the page follows too (`tests/support/generation/sampling_vectors.json` holds draws by them):

1. Logits are float32. All arithmetic is float64, sums run in order, and `exp` is the project's own.
2. The logits of some tokens change, in this order, each time rounded to float32: `logit_bias` is added; of the tokens
   of the prompt and the answer, a logit above 0 is divided by `repetition_penalty`, another is multiplied by it; of
   those of the answer, `frequency_penalty * times + presence_penalty` is subtracted.
3. Tokens are ordered by falling logit, then by id. Temperature 0 takes the first.
4. The first `top_k` are kept. Their weights are `exp((logit - best) / temperature)`.
5. Weights below `min_p` are left out (the best one's is 1).
6. With `top_p` below 1, nothing is kept behind the first whose running sum reaches `top_p` times the sum of rule 4.
7. One uniform number times the sum of what is kept: the first token whose running sum is above it, or else the last.
8. A token that the grammar refuses gets the logit minus infinity, and rules 3 to 7 are followed again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edge_infer.errors import ExecutionError, InputError
from edge_infer.generation.exact_math import exp, log, sum_of_exps
from edge_infer.generation.random_numbers import RandomNumbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edge_infer.generation.options import GenerationOptions

#: How many of the best tokens are looked at first where `top_k` does not say.
FIRST_SELECTION = 64
#: After so many refusals, all tokens that the grammar allows are looked for at once.
MAX_REFUSALS = 64


class Row(Protocol):
    """The logits of one row, as a decoder gives them."""

    def logits(self) -> memoryview[float]:
        """Return the logits, float32[vocab], which may be written."""

    def top(self, count: int) -> Sequence[tuple[int, float]]:
        """Return the best tokens with their logits, by falling logit and then by id; a NaN is the first."""


class Grammar(Protocol):
    """What the next token may be."""

    def accepts(self, token: int) -> bool:
        """Tell whether a token may come next."""

    def allowed(self) -> Iterable[int]:
        """Return all tokens that may come next."""

    def advance(self, token: int) -> bool:
        """Take the token that came next, and tell whether nothing may follow it."""


class Choice(NamedTuple):
    """A token that was chosen.

    Attributes:
        token: Its id.
        logprob: The logarithm of its probability by the model alone; None where it was not asked for.
        top: The best tokens with theirs.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses the tokens of one answer.

    Args:
        options: How; their seed must be set where the temperature is above 0.
        prompt: The tokens of the prompt, for the repetition penalty.
        vocab_size: Tokens of the model.

    Raises:
        InputError: `logit_bias` names a token that the model does not have.
    """

    def __init__(self, options: GenerationOptions, prompt: Sequence[int], vocab_size: int) -> None:
        for token in options.logit_bias:
            if token >= vocab_size:
                raise InputError(f"`logit_bias` names token {token}, the model has {vocab_size}", option="logit_bias")
        self._options = options
        self._vocab_size = vocab_size
        self._random = RandomNumbers(options.seed or 0)
        self._seen = set(prompt) if options.repetition_penalty != 1.0 else set()
        self._times: dict[int, int] = {}

    def choose(self, row: Row, grammar: Grammar | None = None) -> Choice:
        """Choose the next token and remember it; the row's logits are changed.

        Raises:
            ExecutionError: The model's logits are not numbers.
        """
        wanted = self._options.logprobs
        total = best = 0.0
        top: tuple[tuple[int, float], ...] = ()
        if wanted is not None:
            first = _usable(row.top(max(wanted, 1)))
            best = first[0][1]
            total = log(sum_of_exps(row.logits(), best))
            top = tuple((token, (logit - best) - total) for token, logit in first[:wanted])
            plain = row.logits().tolist()
        self._penalize(row)
        token = self._draw(row)
        if grammar is not None:
            token = self._draw_allowed(row, grammar, token)
        self._times[token] = self._times.get(token, 0) + 1
        if wanted is None:
            return Choice(token)
        return Choice(token, (plain[token] - best) - total, top)

    def _penalize(self, row: Row) -> None:
        options = self._options
        repetition = options.repetition_penalty
        frequency, presence = options.frequency_penalty, options.presence_penalty
        logits = row.logits()
        for token, bias in options.logit_bias.items():
            logits[token] += bias
        if repetition != 1.0:
            for token in self._seen.union(self._times):
                logit = logits[token]
                logits[token] = logit / repetition if logit > 0.0 else logit * repetition
        if frequency or presence:
            for token, times in self._times.items():
                logits[token] -= frequency * times + presence

    def _draw_allowed(self, row: Row, grammar: Grammar, token: int) -> int:
        """Draw until the grammar accepts: that is a draw from the accepted tokens alone."""
        for _ in range(MAX_REFUSALS):
            if grammar.accepts(token):
                return token
            row.logits()[token] = -inf
            token = self._draw(row)
        if grammar.accepts(token):
            return token
        logits = row.logits()
        allowed = [(one, logits[one]) for one in grammar.allowed() if one < len(logits)]
        for one in range(len(logits)):
            logits[one] = -inf
        for one, logit in allowed:
            logits[one] = logit
        return self._draw(row)

    def _draw(self, row: Row) -> int:
        options = self._options
        if options.temperature == 0.0:
            return _usable(row.top(1))[0][0]
        uniform = self._random.uniform()
        kept = min(options.top_k or self._vocab_size, self._vocab_size)
        count = min(kept, options.top_k or FIRST_SELECTION)
        while True:
            best = _usable(row.top(count))
            found = decide(best, kept - len(best), uniform, options)
            if found is not None:
                return found
            count = min(count * 4, kept)


def decide(best: Sequence[tuple[int, float]], left: int, uniform: float, options: GenerationOptions) -> int | None:
    """Draw from the best tokens, or return None where the others could change what is drawn.

    Each of the others weighs at most as much as the last of the best: so their sum has a bound, and where the draw is
    the same with none of it and with all of it, it is the draw from all tokens.

    Args:
        best: Tokens and logits in order.
        left: How many tokens follow them.
        uniform: The random number.
        options: The temperature, `min_p` and `top_p`.
    """
    highest, temperature, min_p, top_p = best[0][1], options.temperature, options.min_p, options.top_p
    if best[-1][1] == -inf:
        best, left = [one for one in best if one[1] > -inf], 0
    sums: list[float] = []
    total = weight = 0.0
    kept = 0
    for _, logit in best:
        weight = exp((logit - highest) / temperature)
        total = total + weight
        sums.append(total)
        kept += weight >= min_p
    known = len(sums)
    end_of_kept = known if left and kept == known else kept - 1
    # A little above the bound, for the rounding of a sum of so many numbers.
    most = (total + left * weight) * (1.0 + 1e-9) if left else total
    drawn = []
    for whole in (total, most):
        end = min(bisect_left(sums, top_p * whole) if top_p < 1.0 else known, end_of_kept)
        mass = sums[end] if end < known else whole
        drawn.append(min(bisect_right(sums, uniform * mass), end))
    low, high = drawn
    return best[low][0] if low == high < known else None


def _usable(best: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Return the best tokens.

    Raises:
        ExecutionError: The logits are not numbers, or all tokens are forbidden.
    """
    logit = best[0][1]
    if logit == -inf:
        raise ExecutionError(
            "no token may come next: all of them are forbidden", hint="check `logit_bias` and `response_format`"
        )
    if not isfinite(logit):
        raise ExecutionError(
            f"the model's best logit is {logit}, so that no token can be chosen",
            hint="the weights are damaged or overflow: convert the model again",
        )
    return best
