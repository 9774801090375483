"""The answers to one request while they are generated: queued, heard piece by piece, cancelled, counted."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import EdgeInferError, PayloadTooLarge
from edge_infer.server.errors import ClientLeft
from edge_infer.server.execution.text_request import Piece, TextRequest
from edge_infer.server.ingestion.submit import answer_in_time
from edge_infer.server.ingestion.tenant_bounds import check_answer, priority_of
from edge_infer.server.response.completions import ChoiceText, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive

    from edge_infer.generation.options import GenerationOptions
    from edge_infer.generation.sampler import Grammar
    from edge_infer.server.execution.text_model import TextModel
    from edge_infer.server.ingestion.http_call import HttpCall
    from edge_infer.server.scheduling.request import Answer

#: What a piece that waits for its client counts beside its text, in bytes.
_PIECE_BYTES = 128


class News(NamedTuple):
    """What became of one answer: a piece, its end (None), or an error; and the memory that it counts."""

    answer: int
    what: Piece | EdgeInferError | None
    size: int = 0


class Prompt(NamedTuple):
    """A prompt, ready to run: its tokens, and the options and grammar of each of its answers."""

    ids: list[int]
    ways: list[tuple[GenerationOptions, Grammar | None]]


class Generation:
    """The answers to one request while they are generated, on the event loop.

    Args:
        call: The request, which holds its model.
        model: The model.

    Attributes:
        requests: Its answers, each a request of its own for a slot.
        answer: Where the time of one of them went, once one has ended.
    """

    def __init__(self, call: HttpCall, model: TextModel) -> None:
        self.requests: list[TextRequest] = []
        self._call = call
        self._model = model
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._failure: News | None = None
        self._size = 0
        self.answer: Answer | None = None

    def start(self, prompts: Sequence[Prompt], *, is_chat: bool) -> None:
        """Queue all answers.

        Raises:
            QueueFull: There is no room for one; `cancel` lets the others go.
            PriorityRefused: They are more urgent than their tenant's may be.
        """
        call, head = self._call, self._call.head
        assert head is not None
        priority = priority_of(call.tenant, head.priority)
        deadline = call.start + head.timeout_s if head.timeout_s else inf
        for prompt in prompts:
            for options, grammar in prompt.ways:
                index = len(self.requests)
                request = TextRequest(
                    prompt.ids,
                    options,
                    grammar,
                    is_chat=is_chat,
                    hear=partial(self._hear, index),
                    arrived=call.start,
                    finish=partial(self._finish, index),
                    priority=priority,
                    deadline=deadline,
                    is_gone=call.is_gone,
                    tenant=call.tenant,
                )
                self._model.runner.submit(self._model, request)
                self.requests.append(request)
                if head.timeout_s:
                    answer_in_time(self._model, request, deadline - perf_counter())

    def _hear(self, index: int, piece: Piece) -> None:
        size = len(piece.text) + _PIECE_BYTES * (1 + (len(piece.choice.top) if piece.choice is not None else 0))
        self._size += size
        check_answer(self._call.tenant, self._size)
        most = self._model.batcher.limits.max_answer_bytes
        if most and self._size > most:
            raise PayloadTooLarge(
                f"The answer has more than {most} bytes", hint="lower `max_tokens` or `top_logprobs`", expected=most
            )
        self._call.grow(size)
        self._news.put_nowait(News(index, piece, size))

    def _finish(self, index: int, result: Answer | EdgeInferError) -> None:
        if isinstance(result, EdgeInferError):
            self._news.put_nowait(News(index, result))
        else:
            self.answer = result
            self._news.put_nowait(News(index, None))

    async def next(self) -> list[News]:
        """Wait for news, and return all that there are, up to an error.

        Raises:
            EdgeInferError: An answer failed, and all that came before was returned.
        """
        found: list[News] = []
        one = self._failure or await self._news.get()
        while not isinstance(one.what, EdgeInferError):
            found.append(one)
            if self._news.empty():
                return found
            one = self._news.get_nowait()
        if not found:
            raise one.what
        self._failure = one
        return found

    def taken(self, found: Sequence[News]) -> None:
        """Give back the memory of pieces that the client has."""
        self._call.take(-sum(one.size for one in found))

    def cancel(self) -> None:
        """Free the slots and the places in the queue of answers that have not ended: the client left, or one failed."""
        for request in self.requests:
            if not request.is_answered:
                request.answer(ClientLeft("The client left before its answer was generated"))
                self._model.runner.drop(self._model, request)

    def usage(self, prompts: Sequence[Prompt]) -> Usage:
        """Count tokens; a prompt of several answers counts once."""
        firsts, at = [], 0
        for prompt in prompts:
            firsts.append(self.requests[at])
            at += len(prompt.ways)
        return Usage(
            sum(len(request.prompt) for request in firsts),
            sum(request.completion_tokens for request in self.requests),
            sum(request.cached_tokens for request in firsts),
        )


class Watched:
    """Cancels a generation once its client leaves, and whatever is left of it at the end."""

    def __init__(self, receive: Receive, generation: Generation) -> None:
        self._generation = generation
        self._receive = receive

    async def __aenter__(self) -> Generation:
        self._task = asyncio.create_task(self._watch())
        return self._generation

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._generation.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._generation.cancel()


async def all_of(generation: Generation, count: int) -> list[ChoiceText]:
    """Wait for all answers, and return them."""
    answers = [ChoiceText(index) for index in range(count)]
    parts: list[list[str]] = [[] for _ in answers]
    left = count
    while left:
        for index, what, _ in await generation.next():
            if isinstance(what, Piece):
                parts[index].append(what.text)
                if what.choice is not None:
                    answers[index].choices.append(what.choice)
            else:
                left -= 1
                answers[index].finish_reason = generation.requests[index].finish_reason
    for answer, texts in zip(answers, parts, strict=True):
        answer.text = "".join(texts)
    return answers
