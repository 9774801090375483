"""Completion: an answer of a model that generates text, and what it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Usage(NamedTuple):
    """What an answer took.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens of the answer.
        cached_tokens: Tokens of the prompt that were in the cache already.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class TokenLogprob(NamedTuple):
    """How likely a token was by the model alone.

    Attributes:
        token: Its id.
        text: Its text.
        logprob: The natural logarithm of its probability.
        top: The best tokens: id, text, logarithm.
    """

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    Args:
        text: What was generated.
        finish_reason: `stop` at the end of the answer or a stop string, `length` at `max_tokens` or the end of the
            context, `cancelled` where the caller ended it.
        usage: Its tokens.
        logprobs: Of each token, where they were asked for; else None.
        seed: With it the same options give the same answer again.
        tokens: The new tokens.
    """

    text: str
    finish_reason: str
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None
    seed: int
    tokens: tuple[int, ...]
