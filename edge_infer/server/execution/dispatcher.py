"""Dispatcher: the scheduler on an event loop, with worker threads under it."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import DeadlineExceeded, DeviceLost, EdgeInferError, ExecutionError
from edge_infer.server.execution.running import run_batch
from edge_infer.server.execution.workers import WorkerPool
from edge_infer.server.scheduling.request import Answer
from edge_infer.server.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded import LoadedModel
    from edge_infer.server.execution.running import Result
    from edge_infer.server.scheduling.batcher import DynamicBatcher
    from edge_infer.server.scheduling.request import Batch, Request


log = logging.getLogger(__name__)

#: How many turns of the event loop, some 0.1 ms each under load, a batch may gather.
_MAX_TURNS = 8


class Dispatcher:
    """Runs requests; all its methods belong to the event loop's thread.

    Args:
        workers: How many batches run at once.
        hang_s: After how long a batch is given up and its thread replaced.
        spare: How many batches more run at once for urgent requests.

    Attributes:
        workers: As given.
        lost: Why the pool's device runs nothing any more; None while it works.
    """

    def __init__(self, workers: int, hang_s: float = 60.0, spare: int = 0) -> None:
        self.workers = workers
        self.lost: DeviceLost | None = None
        self.scheduler = Scheduler(workers, self._start, perf_counter, spare)
        self._hang_s = hang_s
        self._pool = WorkerPool(workers + spare)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._models: dict[DynamicBatcher, LoadedModel] = {}
        self._is_pumping = False
        self._submitted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        #: Batches that run, each with the timer that gives it up.
        self._running: dict[int, asyncio.TimerHandle] = {}

    def add(self, model: LoadedModel) -> None:
        """Let a model take requests."""
        self._models[model.batcher] = model
        self.scheduler.add(model.batcher)

    def workers_for(self, model: LoadedModel) -> float:
        """Return a model's part of the workers now."""
        return self.scheduler.workers_for(model.batcher)

    def retire(self, model: LoadedModel) -> None:
        """Let a model finish what it has, then close it."""
        model.is_retired = True
        self._close_if_drained(model)

    def hold(self, model: LoadedModel) -> bool:
        """Keep a model open for a request that is being read, until `finished`; False where it is closed already."""
        if model.batcher not in self._models:
            return False
        model.in_flight += 1
        return True

    def submit(self, model: LoadedModel, request: Request) -> None:
        """Add a request; its `finish` is called on the event loop.

        Raises:
            QueueFull: The model's queue is full.
            DeviceLost: The device has failed.
        """
        if self.lost is not None:
            raise self.lost
        model.batcher.submit(request)
        self._submitted += 1
        self.pump_soon()

    def pump_soon(self) -> None:
        """Form batches once what has already arrived on the sockets is queued."""
        if not self._is_pumping:
            self._is_pumping = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._gather, self._submitted, _MAX_TURNS)

    def _gather(self, submitted: int, turns: int) -> None:
        """Let another turn of the event loop pass as long as each brings requests."""
        assert self._loop is not None
        if submitted == self._submitted or not turns:
            self._is_pumping = False
            self._pump()
        else:
            self._loop.call_soon(self._gather, self._submitted, turns - 1)

    def _pump(self) -> None:
        at = self.scheduler.pump()
        if at != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at, self._timer = at, None
            if at < inf and self._loop is not None:
                self._timer = self._loop.call_later(max(0.0, at - perf_counter()), self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, inf
        self._pump()

    def _start(self, batcher: DynamicBatcher, batch: Batch) -> None:
        assert self._loop is not None
        model, loop = self._models[batcher], self._loop
        session, variant = model.choose(self.workers, batch.formed)
        model.running += 1
        self._running[id(batch)] = loop.call_later(self._hang_s, self._give_up, model, batch)

        def work() -> None:
            start = perf_counter()
            try:
                results: list[Result] = (
                    run_batch(session, batch) if self.lost is None else [self.lost] * len(batch.requests)
                )
            except BaseException as error:
                failure = ExecutionError(f"The engine failed: {type(error).__name__}", hint="see the log")
                results = [failure] * len(batch.requests)
            loop.call_soon_threadsafe(self._done, model, batch, results, perf_counter() - start, variant)

        self._pool.submit(work)

    def _done(self, model: LoadedModel, batch: Batch, results: list[Result], compute_s: float, variant: str) -> None:
        watchdog = self._running.pop(id(batch), None)
        if watchdog is None:
            # It was given up: its requests are answered, its thread was replaced: there is one too many.
            model.running -= 1
            self._pool.remove()
            if model.is_retired:
                self._close_if_drained(model)
            return
        watchdog.cancel()
        model.running -= 1
        self.scheduler.finished(model.batcher, compute_s)
        self._pump()  # the worker is busy again before the answers are written
        model.statistics.ran(batch.rows, compute_s, variant)
        failure = results[0]
        if isinstance(failure, DeviceLost) and self.lost is None:
            log.error("The device of %s is lost, its pool takes no more requests: %s", model.name, failure.message)
            self.lost = failure
        for request, result in zip(batch.requests, results, strict=True):
            if isinstance(result, EdgeInferError):
                request.finish(result)
            else:
                request.finish(Answer(result, batch.timings(request, compute_s), variant))
        if model.is_retired:
            self._close_if_drained(model)

    def _give_up(self, model: LoadedModel, batch: Batch) -> None:
        """Answer the requests of a batch that hangs, and start a thread in the place of the lost one.

        The model counts as running until the engine comes back: nothing may close a session that computes.
        """
        self._running.pop(id(batch))
        self._pool.add()
        self.scheduler.finished(model.batcher, self._hang_s)
        error = DeadlineExceeded(
            f"Model `{model.name}` ran for more than {self._hang_s:g} s and was given up", hint="see the server's log"
        )
        for request in batch.requests:
            request.finish(error)
        self._pump()

    def finished(self, model: LoadedModel) -> None:
        """Take note that a request was answered."""
        model.in_flight -= 1
        if model.is_retired:
            self._close_if_drained(model)

    def _close_if_drained(self, model: LoadedModel) -> None:
        if model.in_flight == 0 and model.running == 0 and model.batcher in self._models:
            del self._models[model.batcher]
            self.scheduler.remove(model.batcher)
            model.close()

    @property
    def in_flight(self) -> int:
        """How many requests are read, wait or run."""
        return sum(model.in_flight for model in self._models.values())

    def close(self) -> None:
        """Refuse what waits, let running batches end, close all models."""
        if self._timer is not None:
            self._timer.cancel()
        for watchdog in self._running.values():
            watchdog.cancel()
        self._pool.close()
        for model in self._models.values():
            model.close()
        self._models.clear()
