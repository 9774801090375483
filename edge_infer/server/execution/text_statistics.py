"""What is counted of a model that generates text: tokens, and how long clients wait for them."""

from __future__ import annotations

from collections import deque

from edge_infer.server.execution.statistics import TIME_BOUNDS, Histogram

#: The time that the rate of tokens is taken over, in seconds, and into how many parts it is cut.
_WINDOW_S, _PARTS = 10.0, 20


class TextStatistics:
    """Counts, in the event loop's thread.

    Attributes:
        tokens: The new tokens of all answers.
        prompt_tokens: The tokens of all prompts that got a slot.
        cached_tokens: How many of those were not computed again.
        first_token: From a request's arrival to its first token, in seconds.
        token: From one token of a request to its next, in seconds.
    """

    def __init__(self) -> None:
        self.tokens = self.prompt_tokens = self.cached_tokens = 0
        self.first_token = Histogram(TIME_BOUNDS)
        self.token = Histogram(TIME_BOUNDS)
        self._parts: deque[tuple[int, int]] = deque(maxlen=_PARTS + 1)  # the number of a part, its tokens

    def add_token(self, now: float) -> None:
        """Count a new token."""
        self.tokens += 1
        part = int(now * _PARTS / _WINDOW_S)
        if self._parts and self._parts[-1][0] == part:
            part, count = self._parts.pop()
            self._parts.append((part, count + 1))
        else:
            self._parts.append((part, 1))

    def tokens_per_s(self, now: float) -> float:
        """Return the rate of the last ten seconds, over all requests."""
        least = int(now * _PARTS / _WINDOW_S) - _PARTS
        return sum(count for part, count in self._parts if part >= least) / _WINDOW_S
