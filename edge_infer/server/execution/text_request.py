"""TextRequest: one generation that waits for a slot, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError
from edge_infer.server.scheduling.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.errors import EdgeInferError
    from edge_infer.generation.options import GenerationOptions
    from edge_infer.generation.sampler import Choice, Grammar
    from edge_infer.server.scheduling.request import Answer
    from edge_infer.server.scheduling.shares import Tenant


class Piece(NamedTuple):
    """What one step gave to a request.

    Attributes:
        text: The text that no later token changes; it may be empty.
        choice: The token; None where the generation ended without one.
    """

    text: str
    choice: Choice | None


class TextRequest(Request):
    """One generation.

    Args:
        prompt: The tokens to go on from.
        options: How, with a seed.
        grammar: What the answer must be; None for any text.
        is_chat: Whether the answer stands alone, and does not go on from the prompt.
        hear: Called on the event loop with each piece, before `finish`.
        arrived: As those that follow, see `Request`.
        finish: Called once.
        priority: The urgency.
        deadline: When the answer is of no use any more.
        is_gone: Tells whether the client left.
        tenant: Who asks.

    Attributes:
        begun: When it got a slot, in seconds of `perf_counter`; 0 until then.
        first: When its first token was there; 0 until then.
        latest: When its latest token was there.
        completion_tokens: How many tokens it has.
        cached_tokens: How many tokens of the prompt were not computed again.
        finish_reason: `stop` or `length`; empty until it ends.
    """

    __slots__ = (
        "begun",
        "cached_tokens",
        "completion_tokens",
        "finish_reason",
        "first",
        "grammar",
        "hear",
        "is_chat",
        "latest",
        "options",
        "prompt",
    )

    def __init__(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        grammar: Grammar | None,
        *,
        is_chat: bool,
        hear: Callable[[Piece], None],
        arrived: float,
        finish: Callable[[Answer | EdgeInferError], None],
        priority: int,
        deadline: float,
        is_gone: Callable[[], bool] | None,
        tenant: Tenant,
    ) -> None:
        super().__init__(
            {},
            None,
            arrived=arrived,
            finish=finish,
            priority=priority,
            deadline=deadline,
            is_gone=is_gone,
            tenant=tenant,
        )
        self.prompt = prompt
        self.options = options
        self.grammar = grammar
        self.is_chat = is_chat
        self.hear = hear
        self.begun = self.first = self.latest = 0.0
        self.completion_tokens = self.cached_tokens = 0
        self.finish_reason = ""


def no_tensors(name: str) -> InputError:
    """Make the error for tensors that are sent to a model which generates text."""
    return InputError(
        f"`{name}` generates text: it takes prompts and messages, no tensors",
        hint='POST /v1/completions {"model": "' + name + '", "prompt": "Hello"}',
        model=name,
    )
