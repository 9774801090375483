"""TextRunner: continuous batching. Requests wait in their model's queue, those with a slot advance in one thread.

Each step of the thread gives one token to every request that has a slot. A request that ends, or whose client left,
frees its slot before the next step.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import DeadlineExceeded, EdgeInferError, ExecutionError
from edge_infer.generation.answer import Answer as Text
from edge_infer.server.errors import ModelHangs
from edge_infer.server.execution.text_request import Piece, TextRequest, no_tensors
from edge_infer.server.execution.text_statistics import TextStatistics
from edge_infer.server.execution.workers import WorkerPool
from edge_infer.server.scheduling.request import Answer, Batch, Timings
from edge_infer.server.scheduling.shares import ANYONE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from edge_infer.generation.slots import Event, Job, Slots
    from edge_infer.generation.vocabulary import Vocabulary
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.scheduling.request import Request
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)
#: How often a step that takes long is looked at, in seconds.
_LOOK_EVERY_S = 1.0


class _Told(NamedTuple):
    """What the thread tells the event loop of a request.

    Attributes:
        request: The request.
        piece: What a step gave it; None for nothing.
        end: Why it has no slot any more: a reason, or an error; None while it has.
        cached_tokens: How many tokens of its prompt were not computed again.
    """

    request: TextRequest
    piece: Piece | None
    end: str | EdgeInferError | None
    cached_tokens: int = 0


class TextRunner:
    """Runs the requests of one model that generates text. Its public methods belong to the event loop's thread.

    Args:
        slots: The model's slots, which belong to this from now on.
        count: How many they are.
        vocabulary: The bytes of the model's tokens.
        close: Closes the model, in the thread that runs it.

    Attributes:
        workers: How many requests advance at once.
        statistics: What is counted of tokens.
        running: The requests that have a slot.
    """

    def __init__(self, slots: Slots, count: int, vocabulary: Vocabulary, close: Callable[[], None]) -> None:
        self.workers = count
        self.statistics = TextStatistics()
        self.running: set[TextRequest] = set()
        self._slots = slots
        self._vocabulary = vocabulary
        self._close_decoder = close
        self._hang_s = inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._model: LoadedModel | None = None
        #: A request to begin with, or one to cancel (True); None to end.
        self._commands: SimpleQueue[tuple[TextRequest, bool] | None] = SimpleQueue()
        self._pool: WorkerPool | None = None
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._hangs = False
        #: When the step began that runs; written by the thread.
        self._step_began = inf
        #: The thread's own: the requests that have a slot, with the text of their answers.
        self._jobs: dict[Job, tuple[TextRequest, Text]] = {}

    # -- the life of the model --

    def add(self, model: LoadedModel, loop: asyncio.AbstractEventLoop, hang_s: float = 60.0) -> None:
        """Let a model take requests: its thread starts.

        Args:
            model: The model.
            loop: The event loop of all requests.
            hang_s: After how long a step is given up.
        """
        self._model, self._loop, self._hang_s = model, loop, hang_s
        self._pool = WorkerPool(1, "edge-infer text")
        self._pool.submit(self._work)

    def hold(self, model: LoadedModel) -> bool:
        """Keep the model open for a request, until `finished`; False where it is closed already."""
        if self._is_closed:
            return False
        model.in_flight += 1
        return True

    def finished(self, model: LoadedModel) -> None:
        """Take note that a request was answered."""
        model.in_flight -= 1
        self._close_if_drained(model)

    def retire(self, model: LoadedModel) -> None:
        """Let the model finish what it has, then close it."""
        model.is_retired = True
        self._close_if_drained(model)

    def _close_if_drained(self, model: LoadedModel) -> None:
        if model.is_retired and not model.in_flight and not self.running:
            self.stop()

    def stop(self) -> None:
        """Let the thread end after the step that runs, and close the decoder; it does not wait."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._commands.put(None)
        if self._pool is None:  # it never started
            self._close_decoder()

    def close(self, timeout_s: float) -> None:
        """Stop, and wait for the thread so long."""
        self.stop()
        if self._pool is not None:
            self._pool.close(timeout_s)

    # -- requests --

    def outage(self, model: LoadedModel) -> EdgeInferError | None:
        """Return why the model runs nothing now; None where it does."""
        if not self._hangs:
            return None
        return ModelHangs(
            f"A step of model `{model.name}` hangs, it takes requests again when that comes back",
            hint="restart the server",
            model=model.name,
        )

    def refusal(self, model: LoadedModel, priority: int = 0, tenant: Tenant = ANYONE) -> EdgeInferError | None:
        """Return the error for a request that would not be taken now, before anything of it is read; else None."""
        return self.outage(model) or model.batcher.refusal(self.workers, priority, tenant)

    def is_crowded(self, model: LoadedModel, tenant: Tenant = ANYONE) -> bool:
        """Tell whether half of the queue is taken, so that a stream with requests under way should wait."""
        return model.batcher.is_crowded(self.workers, tenant)

    def submit(self, model: LoadedModel, request: Request) -> None:
        """Add a request; it gets its answer on the event loop.

        Raises:
            InputError: It has tensors.
            QueueFull: The queue is full.
            ModelHangs: The model hangs.
        """
        if not isinstance(request, TextRequest):
            raise no_tensors(model.name)
        if (outage := self.outage(model)) is not None:
            raise outage
        model.batcher.submit(request)
        self._pump()

    def drop(self, model: LoadedModel, request: Request) -> None:
        """Let a request that has its answer wait or run no more."""
        if not model.batcher.queue.remove(request) and request in self.running:
            assert isinstance(request, TextRequest)
            self._commands.put((request, True))

    def _pump(self) -> None:
        """Give free slots to requests that wait."""
        model = self._model
        assert model is not None
        while len(self.running) < self.workers and not self._hangs and not self._is_closed:
            now = perf_counter()
            batch = model.batcher.take(now, is_idle=True)
            if batch is None:
                return
            for request in batch.requests:
                assert isinstance(request, TextRequest)
                request.begun = now
                self.running.add(request)
                model.running += 1
                self._commands.put((request, False))
            self._look_later()

    def _look_later(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(min(_LOOK_EVERY_S, self._hang_s), self._look)

    def _look(self) -> None:
        """Give up what runs and waits where a step hangs."""
        self._timer = None
        if not self.running or self._is_closed:
            return
        self._look_later()
        if self._hangs or perf_counter() - self._step_began < self._hang_s:
            return
        model = self._model
        assert model is not None
        self._hangs = True
        error = DeadlineExceeded(
            f"A step of model `{model.name}` ran for more than {self._hang_s:g} s and was given up",
            hint="see the server's log",
        )
        with suppress(Exception):
            log.error("%s", error.message)
        for request in tuple(self.running):
            request.answer(error)
            self._commands.put((request, True))
        while (batch := model.batcher.take(perf_counter(), is_idle=True)) is not None:
            for waiting in batch.requests:
                waiting.answer(self.outage(model) or error)

    def _hear(self, told: list[_Told]) -> None:
        """Take what the thread tells, on the event loop."""
        self._hangs = False
        model, now = self._model, perf_counter()
        assert model is not None
        for one in told:
            request = one.request
            if one.piece is not None and not request.is_answered:
                self._heard(request, one, now)
            if one.end is not None:
                self._ended(model, request, one.end, now)
        self._pump()
        if model.is_retired:
            self._close_if_drained(model)

    def _heard(self, request: TextRequest, one: _Told, now: float) -> None:
        assert one.piece is not None and self._model is not None
        if one.piece.choice is not None:
            self.statistics.add_token(now)
            request.completion_tokens += 1
            if not request.first:
                request.first = now
                self.statistics.first_token.observe(now - request.arrived)
                self.statistics.prompt_tokens += len(request.prompt)
                self.statistics.cached_tokens += one.cached_tokens
            else:
                self.statistics.token.observe(now - request.latest)
            request.latest = now
        request.cached_tokens = one.cached_tokens
        try:
            request.hear(one.piece)
        except EdgeInferError as error:  # there is no memory for what its client does not read
            request.answer(error)
            self._commands.put((request, True))

    def _ended(self, model: LoadedModel, request: TextRequest, end: str | EdgeInferError, now: float) -> None:
        self.running.discard(request)
        model.running -= 1
        compute_s = now - request.begun
        # How long a slot is in use tells how long others wait for it, whatever the end was.
        model.batcher.finished(Batch((request,), 1, request.begun), compute_s)
        model.statistics.ran(1, compute_s)
        if isinstance(end, EdgeInferError):
            request.answer(end)
            return
        request.finish_reason = end
        request.answer(Answer({}, Timings(request.begun - request.arrived, 0.0, compute_s, 1)))

    # -- the thread --

    def _work(self) -> None:
        try:
            while self._obey():
                told = [] if self._slots.is_idle else self._step()
                if told:
                    self._tell(told)
        finally:
            self._close_decoder()

    def _tell(self, told: list[_Told]) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the event loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self._hear, told)

    def _obey(self) -> bool:
        """Begin and cancel what the event loop asks for, and wait where there is nothing to do; False to end."""
        told: list[_Told] = []
        try:
            while True:
                command = self._commands.get(block=self._slots.is_idle and not told)
                if command is None:
                    return False
                told += self._cancel(command[0]) if command[1] else self._begin(command[0])
        except Empty:
            pass
        if told:
            self._tell(told)
        return True

    def _begin(self, request: TextRequest) -> list[_Told]:
        try:
            text = Text(self._vocabulary, request.options.stop, is_chat=request.is_chat)
            job = self._slots.submit(request.prompt, request.options, request.grammar)
        except Exception as error:
            return [_Told(request, None, _as_error(error))]
        self._jobs[job] = request, text
        return []

    def _cancel(self, request: TextRequest) -> list[_Told]:
        job = next((job for job, (one, _) in self._jobs.items() if one is request), None)
        if job is None:  # it ended meanwhile
            return []
        del self._jobs[job]
        self._slots.cancel(job)
        return [_Told(request, None, "cancelled")]

    def _step(self) -> list[_Told]:
        self._step_began = perf_counter()
        try:
            events = self._slots.step()
        except Exception as error:  # the decoder is at fault: nobody's cache is right any more
            failure = _as_error(error)
            jobs, self._jobs = self._jobs, {}
            for job in jobs:
                self._slots.cancel(job)
            return [_Told(request, None, failure) for request, _ in jobs.values()]
        finally:
            self._step_began = inf
        return [self._told(event) for event in events if event.job in self._jobs]

    def _told(self, event: Event) -> _Told:
        job = event.job
        request, text = self._jobs[job]
        end: str | EdgeInferError | None = event.error or event.finish_reason
        piece: Piece | None = None
        try:
            if event.error is None:
                found = text.add(event.choice.token) if event.choice is not None else None
                is_stopped = found is not None and found.is_stopped
                written = found.text if found is not None else ""
                if is_stopped:
                    self._slots.cancel(job)
                elif end is not None:
                    rest = text.end()
                    is_stopped, written = rest.is_stopped, written + rest.text
                if is_stopped:
                    end = "stop"
                piece = Piece(written, event.choice)
        except Exception as error:
            self._slots.cancel(job)
            end = _as_error(error)
        if end is not None:
            del self._jobs[job]
        return _Told(request, piece, end, job.cached_tokens)


def _as_error(error: Exception) -> EdgeInferError:
    if isinstance(error, EdgeInferError):
        return error
    log.error("The generation of text failed in an unknown way", exc_info=error)
    return ExecutionError(f"The model failed in an unknown way: {type(error).__name__}", hint="see the log")
