"""Many generations on one decoder: continuous batching over the slots of its cache."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from edge_infer.errors import EdgeInferError, ExecutionError, InputError
from edge_infer.generation.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from edge_infer.generation.config import DecoderConfig
    from edge_infer.generation.options import GenerationOptions
    from edge_infer.generation.sampler import Choice, Grammar

    FinishReason = Literal["stop", "length", "cancelled", "error"]

    class SlotDecoder(Protocol):
        """What `Slots` needs of a decoder."""

        @property
        def config(self) -> DecoderConfig:
            """The model's shape."""

        @property
        def slots(self) -> int:
            """Sequences that the cache holds."""

        @property
        def context(self) -> int:
            """Positions of each."""

        @property
        def threads(self) -> int:
            """How many threads compute the next token."""

        def run(
            self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], wanted: Sequence[int]
        ) -> None:
            """Compute rows."""

        def logits(self, index: int) -> memoryview[Any]:
            """Return the logits of a wanted row."""

        def top(self, index: int, count: int) -> Sequence[tuple[int, float]]:
            """Return the best tokens of a wanted row."""

        def copy(self, from_slot: int, to_slot: int, length: int) -> None:
            """Copy rows of the cache."""


#: The most tokens of prompts in one step, and the fewest that are worth reading the weights for.
CHUNK, SMALLEST_CHUNK = 128, 16
#: How long a step with a prompt may hold running generations up, in seconds.
STEP_S = 0.025
#: The share of the last step in what a token of a prompt is taken to cost.
_NEWEST = 0.25


class Event(NamedTuple):
    """What a step did to a job.

    Attributes:
        job: The job.
        choice: The new token; None where the job ended without one.
        finish_reason: Why the job has ended; None while it goes on.
        error: What went wrong, where the reason is `error`.
    """

    job: Job
    choice: Choice | None
    finish_reason: FinishReason | None
    error: EdgeInferError | None = None


class Job:
    """One generation.

    Attributes:
        prompt: The tokens to go on from.
        options: How.
        tokens: The new tokens.
        cached_tokens: How many tokens of the prompt were in the cache already.
        finish_reason: Why it has ended; None while it goes on.
    """

    __slots__ = ("_sampler", "cached_tokens", "finish_reason", "grammar", "options", "prompt", "slot", "tokens")

    def __init__(
        self, prompt: Sequence[int], options: GenerationOptions, grammar: Grammar | None, vocab_size: int
    ) -> None:
        self.prompt = tuple(prompt)
        self.options = options
        self.grammar = grammar
        self.tokens: list[int] = []
        self.cached_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.slot: Slot | None = None
        self._sampler = Sampler(options, self.prompt, vocab_size)

    def choose(self, row: Row) -> Choice:
        """Choose the next token."""
        return self._sampler.choose(row, self.grammar)


class Slot:
    """One sequence of the cache.

    Attributes:
        number: Its place in the cache.
        tokens: Whose rows the cache holds, from position 0.
        job: Who uses it; None where it is free.
        last_used: The number of the step that used it last.
    """

    __slots__ = ("job", "last_used", "number", "tokens")

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.job: Job | None = None
        self.last_used = 0


class Row:
    """The logits of one row of the last run."""

    __slots__ = ("_decoder", "_index")

    def __init__(self, decoder: SlotDecoder, index: int) -> None:
        self._decoder, self._index = decoder, index

    def logits(self) -> memoryview[float]:
        """Return the logits."""
        return self._decoder.logits(self._index)

    def top(self, count: int) -> Sequence[tuple[int, float]]:
        """Return the best tokens."""
        return self._decoder.top(self._index, count)


class Slots:
    """Runs jobs on the slots of a decoder. It belongs to one thread at a time.

    A step computes one token of every running job and at most 128 tokens of prompts; beside running jobs as many as
    take 25 ms by what they took before, but 16. A job takes the slot whose tokens it goes on from, or a copy of them;
    so a conversation is never computed twice. A job's tokens do not depend on the others, as rows of a decoder do not.

    Args:
        decoder: The model.
        ends: Tokens that end a generation, such as `</s>`.
        chunk: The most tokens of prompts in one step.
        clock: Tells the time in seconds.
    """

    def __init__(
        self,
        decoder: SlotDecoder,
        ends: Iterable[int] = (),
        *,
        chunk: int = CHUNK,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._decoder = decoder
        self._ends = frozenset(ends)
        self._chunk = chunk
        self._clock = clock
        #: Seconds of one token of a prompt, with its share of the rest of the step; 0 before the first.
        self._token_s = 0.0
        self._slots = [Slot(number) for number in range(decoder.slots)]
        self._waiting: deque[Job] = deque()
        self._steps = 0

    @property
    def waiting(self) -> int:
        """How many jobs have no slot yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many slots are in use."""
        return sum(slot.job is not None for slot in self._slots)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and self.running == 0

    def check(self, prompt: Sequence[int]) -> None:
        """Check a prompt.

        Raises:
            InputError: It is empty, longer than the context, or has tokens that the model lacks.
        """
        size = self._decoder.config.vocab_size
        if not prompt:
            raise InputError("the prompt is empty", hint="write at least one character")
        if len(prompt) > self._decoder.context:
            raise InputError(
                f"the prompt has {len(prompt)} tokens, the context has room for {self._decoder.context}",
                hint="shorten the prompt or the conversation",
                expected=self._decoder.context,
                got=len(prompt),
            )
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < size:
                raise InputError(f"the prompt has the token {token}, the model has {size} tokens", got=token)

    def submit(self, prompt: Sequence[int], options: GenerationOptions, grammar: Grammar | None = None) -> Job:
        """Add a job; it begins as soon as a slot is free.

        Args:
            prompt: Tokens.
            options: How to go on; with a seed where the temperature is above 0.
            grammar: What the answer must be.

        Raises:
            InputError: The prompt is empty, longer than the context, or has tokens that the model lacks.
        """
        self.check(prompt)
        job = Job(prompt, options, grammar, self._decoder.config.vocab_size)
        self._waiting.append(job)
        return job

    def cancel(self, job: Job) -> None:
        """End a job before its next token; its slot is free at once. A job that has ended stays as it is."""
        if job.finish_reason is not None:
            return
        job.finish_reason = "cancelled"
        if job.slot is None:
            self._waiting.remove(job)
        self._free(job)

    def step(self) -> list[Event]:
        """Compute the next tokens, and return what came of it.

        An error of one job does not end the others; where the decoder itself fails, all running jobs end.
        """
        self._steps += 1
        active: list[Slot] = []
        try:
            self._admit()
            active = [slot for slot in self._slots if slot.job is not None]
            return self._run(active)
        except EdgeInferError as error:
            return self._fail(active, error)
        except BaseException:
            self._fail(active, ExecutionError("the generation was interrupted"))
            raise

    def _run(self, active: list[Slot]) -> list[Event]:
        tokens: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        jobs: list[Job] = []
        written: list[tuple[Slot, Sequence[int]]] = []
        left = room = self._room(active)
        # Prompts in the order in which they arrived; a running job always has its one row.
        for slot in sorted(active, key=lambda one: one.last_used):
            job = slot.job
            assert job is not None
            begin = len(slot.tokens)
            known = len(job.prompt) + len(job.tokens)
            is_decoding = _is_decoding(slot)
            end = known if is_decoding else min(known, begin + left)
            if not is_decoding:
                left -= end - begin
            if begin == end:
                continue
            rows = job.tokens[-1:] if is_decoding else job.prompt[begin:end]
            tokens += rows
            slots += [slot.number] * len(rows)
            positions += range(begin, end)
            written.append((slot, rows))
            if end == known:
                wanted.append(len(tokens) - 1)
                jobs.append(job)
        if not tokens:
            return []
        start = self._clock()
        self._decoder.run(tokens, slots, positions, wanted)
        self._measure(self._clock() - start, room - left)
        # Only now: an interrupt or a failure before leaves the slots as the cache is.
        for slot, more in written:
            slot.tokens += more
        return [self._advance(job, Row(self._decoder, index)) for index, job in enumerate(jobs)]

    def _room(self, active: Sequence[Slot]) -> int:
        """Return how many tokens of prompts the next step computes at most."""
        if not self._token_s or not any(_is_decoding(slot) for slot in active):
            return self._chunk
        # Rows are computed four at a time.
        count = int(STEP_S / self._token_s) // 4 * 4
        return min(self._chunk, max(SMALLEST_CHUNK, count))

    def _measure(self, seconds: float, count: int) -> None:
        """Take note of a step with so many tokens of prompts; the last few of a prompt tell little."""
        if count < SMALLEST_CHUNK:
            return
        token_s = seconds / count
        self._token_s = token_s if not self._token_s else self._token_s + _NEWEST * (token_s - self._token_s)

    def _advance(self, job: Job, row: Row) -> Event:
        try:
            choice = job.choose(row)
        except EdgeInferError as error:
            job.finish_reason = "error"
            slot = job.slot
            self._free(job)
            if slot is not None:
                slot.tokens = []  # rows that gave no numbers are of no use to others
            return Event(job, None, "error", error)
        if choice.token in self._ends:
            job.finish_reason = "stop"
            self._free(job)
            return Event(job, None, "stop")
        job.tokens.append(choice.token)
        if job.grammar is not None and job.grammar.advance(choice.token):
            job.finish_reason = "stop"
            self._free(job)
            return Event(job, choice, "stop")
        # The new token needs a row of its own before another can follow.
        is_full = len(job.prompt) + len(job.tokens) > self._decoder.context
        if is_full or len(job.tokens) >= job.options.max_tokens:
            job.finish_reason = "length"
            self._free(job)
        return Event(job, choice, job.finish_reason)

    def _free(self, job: Job) -> None:
        if job.slot is not None:
            job.slot.job = None
            job.slot.last_used = self._steps
            job.slot = None

    def _fail(self, active: list[Slot], error: EdgeInferError) -> list[Event]:
        events = []
        for slot in active:
            job = slot.job
            if job is not None:
                job.finish_reason = "error"
                self._free(job)
                events.append(Event(job, None, "error", error))
        return events

    def _admit(self) -> None:
        """Give free slots to jobs that wait."""
        free = [slot for slot in self._slots if slot.job is None]
        while free and self._waiting:
            job = self._waiting.popleft()
            slot = self._slot_for(job, free)
            free.remove(slot)
            slot.job, job.slot = job, slot
            slot.last_used = self._steps
            job.cached_tokens = len(slot.tokens)

    def _slot_for(self, job: Job, free: list[Slot]) -> Slot:
        """Choose a slot and leave in it the tokens that the job begins with.

        The tokens of another conversation are kept where possible: a slot is used in place where the job goes on from
        all that it holds; else the longest beginning is copied into the slot that was not used for the longest time.
        """
        # The last token of the prompt is always computed: its logits choose the first new token.
        limit = len(job.prompt) - 1
        shared = {slot.number: _common(slot.tokens, job.prompt, limit) for slot in self._slots}
        best = max(self._slots, key=lambda one: (shared[one.number], one.job is None, -one.last_used))
        length = shared[best.number]
        if best.job is None and length and length == len(best.tokens):
            return best
        target = min(free, key=lambda one: (bool(one.tokens), one.last_used))
        if length > shared[target.number]:
            self._decoder.copy(best.number, target.number, length)
            target.tokens = best.tokens[:length]
        else:
            target.tokens = target.tokens[: shared[target.number]]
        return target


def _is_decoding(slot: Slot) -> bool:
    """Whether a slot's job has read its prompt."""
    return slot.job is not None and bool(slot.job.tokens)


def _common(first: Sequence[int], second: Sequence[int], limit: int) -> int:
    """Count the tokens that two sequences begin with alike, up to a limit."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other or count == limit:
            break
        count += 1
    return count
