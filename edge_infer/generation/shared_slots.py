"""SharedSlots: the slots of a decoder for several threads, in which whoever waits computes for all."""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import TYPE_CHECKING

from edge_infer.errors import UnsupportedError
from edge_infer.generation.completion import Usage
from edge_infer.generation.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edge_infer.generation.options import GenerationOptions
    from edge_infer.generation.sampler import Grammar
    from edge_infer.generation.slots import Event, Job, SlotDecoder


class SharedSlots:
    """Runs jobs of several threads on one decoder.

    Args:
        decoder: The model.
        ends: Tokens that end a generation, such as `</s>`.
    """

    def __init__(self, decoder: SlotDecoder, ends: Iterable[int]) -> None:
        self._decoder = decoder
        self._slots = Slots(decoder, ends)
        # A stream may end inside a step, where its last reference goes away: the lock lets its thread in again.
        self._lock = RLock()
        self._events: dict[Job, deque[Event]] = {}
        self._is_closed = False
        self._totals = Usage(0, 0, 0)

    def submit(self, prompt: Sequence[int], options: GenerationOptions, grammar: Grammar | None) -> Job:
        """Add a job; `end` must follow.

        Raises:
            UnsupportedError: They were closed.
            InputError: The prompt is empty, longer than the context, or has tokens that the model lacks.
        """
        with self._lock:
            if self._is_closed:
                raise UnsupportedError("the generator is closed", hint="edge_infer.generate(...) opens another")
            job = self._slots.submit(prompt, options, grammar)
            self._events[job] = deque()
        return job

    def next_event(self, job: Job) -> Event | None:
        """Return what happened next to a job, computed where it must be; None where it was ended from outside."""
        events = self._events.get(job)
        if events is None:
            return None
        while not events:
            with self._lock:
                if events:
                    break
                if job.finish_reason is not None:
                    return None
                for event in self._slots.step():
                    found = self._events.get(event.job)
                    if found is not None:
                        found.append(event)
        return events.popleft()

    def end(self, job: Job, tokens: int) -> None:
        """Free the slot of a job, and count what it took.

        Args:
            job: The job, which may have ended already.
            tokens: How many of its new tokens were read.
        """
        with self._lock:
            self._slots.cancel(job)
            if self._events.pop(job, None) is not None:
                taken = (len(job.prompt), tokens, job.cached_tokens)
                self._totals = Usage(*(one + more for one, more in zip(self._totals, taken, strict=True)))

    def counts(self) -> tuple[int, int, Usage]:
        """Return the slots in use, the jobs without a slot, and what all ended jobs took."""
        with self._lock:
            return self._slots.running, self._slots.waiting, self._totals

    def close(self) -> None:
        """End all jobs and give the decoder's memory back."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for job in list(self._events):
                self._slots.cancel(job)
            close = getattr(self._decoder, "close", None)
            if close is not None:
                close()
