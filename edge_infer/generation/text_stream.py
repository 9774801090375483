"""TextStream: the pieces of one answer as they are generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from edge_infer.errors import ExecutionError
from edge_infer.generation.completion import Completion, TokenLogprob, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edge_infer.generation.answer import Answer
    from edge_infer.generation.shared_slots import SharedSlots
    from edge_infer.generation.slots import Event, Job


class TextStream:
    """Pieces of one answer as they are generated; an iterator that belongs to one thread.

    Args:
        slots: What computes.
        job: The generation.
        answer: Makes its text from tokens.
        token_text: Returns the text of one token.
    """

    def __init__(self, slots: SharedSlots, job: Job, answer: Answer, token_text: Callable[[int], str]) -> None:
        self._slots, self._job = slots, job
        self._answer, self._token_text = answer, token_text
        self._parts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._tokens: list[int] = []
        self._reason: str | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = self.next_piece()
        if piece is None:
            raise StopIteration
        return piece

    def next_piece(self) -> str | None:
        """Return the next piece of text, which is never empty; None at the end.

        Raises:
            ExecutionError: The generation failed.
        """
        while self._reason is None:
            event = self._slots.next_event(self._job)
            if event is None:
                self._finish("cancelled")
                break
            piece = self._read(event)
            if piece:
                self._parts.append(piece)
                return piece
        return None

    def _read(self, event: Event) -> str:
        if event.finish_reason == "error":
            self._finish("error")
            raise event.error or ExecutionError("the generation failed")
        text = ""
        if event.choice is not None:
            self._tokens.append(event.choice.token)
            if event.choice.logprob is not None:
                self._logprobs.append(self._logprob(event))
            found = self._answer.add(event.choice.token)
            text = found.text
            if found.is_stopped:
                self._finish("stop")
                return text
        if event.finish_reason is not None:
            rest = self._answer.end()
            self._finish("stop" if rest.is_stopped else event.finish_reason)
            text += rest.text
        return text

    def _finish(self, reason: str) -> None:
        self._reason = reason
        self._slots.end(self._job, len(self._tokens))

    def _logprob(self, event: Event) -> TokenLogprob:
        assert event.choice is not None
        token, logprob, top = event.choice
        assert logprob is not None
        text = self._token_text
        return TokenLogprob(token, text(token), logprob, tuple((one, text(one), value) for one, value in top))

    def result(self) -> Completion:
        """Generate to the end, and return the answer."""
        with self:
            for _ in self:
                pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """The answer as far as it was read; `finish_reason` is `cancelled` before its end."""
        job = self._job
        return Completion(
            "".join(self._parts),
            self._reason or "cancelled",
            Usage(len(job.prompt), len(self._tokens), job.cached_tokens),
            tuple(self._logprobs) if job.options.logprobs is not None else None,
            job.options.seed or 0,
            tuple(self._tokens),
        )

    def close(self) -> None:
        """End the generation where it goes on still."""
        if self._reason is None:
            self._finish("cancelled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A stream that nobody reads any more would keep its slot.
        if getattr(self, "_reason", "") is None:
            self.close()
