"""Dispatcher: the scheduler on an event loop, with worker threads under it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from copy import copy
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import DeadlineExceeded, DeviceLost, EdgeInferError
from edge_infer.server.errors import ModelHangs
from edge_infer.server.execution.job import Job
from edge_infer.server.execution.workers import WorkerPool
from edge_infer.server.scheduling.request import Answer
from edge_infer.server.scheduling.scheduler import Scheduler
from edge_infer.server.scheduling.shares import ANYONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.run_batch import Result
    from edge_infer.server.scheduling.batcher import DynamicBatcher
    from edge_infer.server.scheduling.request import Batch, Request
    from edge_infer.server.scheduling.shares import Tenant


log = logging.getLogger(__name__)

#: How many turns of the event loop, some 0.1 ms each under load, a batch may gather.
_MAX_TURNS = 8
#: How many batches of a model may hang, for each worker and at least in all, before it takes no more requests.
_MAX_HANGING = 4
_MIN_MAX_HANGING = 8


class Dispatcher:
    """Runs requests; all its methods belong to the event loop's thread.

    Args:
        workers: How many batches run at once.
        hang_s: After how long a batch is given up and its thread replaced.
        spare: How many batches more run at once for urgent requests.

    Attributes:
        workers: As given.
    """

    def __init__(self, workers: int, hang_s: float = 60.0, spare: int = 0) -> None:
        self.workers = workers
        self._lost: DeviceLost | None = None
        self.scheduler = Scheduler(workers, self, perf_counter, spare)
        self._hang_s = hang_s
        self._pool = WorkerPool(workers + spare)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._models: dict[DynamicBatcher, LoadedModel] = {}
        self._is_pumping = False
        self._submitted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._running: set[Job] = set()
        #: Those that were given up and have not come back.
        self._hanging: set[Job] = set()
        self._offered: deque[Job] = deque()

    @property
    def lost(self) -> DeviceLost | None:
        """Why the pool's device runs nothing any more, a new error each time; None while it works.

        Who raises an error leaves the frames in it, and with them the tensors of a request.
        """
        return copy(self._lost)

    @lost.setter
    def lost(self, error: DeviceLost | None) -> None:
        self._lost = copy(error)

    def add(self, model: LoadedModel) -> None:
        """Let a model take requests."""
        self._models[model.batcher] = model
        self.scheduler.add(model.batcher)

    def refusal(self, model: LoadedModel, priority: int = 0, tenant: Tenant = ANYONE) -> EdgeInferError | None:
        """Return the error for a request that would not be taken now, before anything of it is read; else None."""
        batcher = model.batcher
        return self.outage(model) or batcher.refusal(self.scheduler.workers_for(batcher), priority, tenant)

    def is_crowded(self, model: LoadedModel, tenant: Tenant = ANYONE) -> bool:
        """Tell whether half of the queue is taken, so that a stream with requests under way should wait."""
        return model.batcher.is_crowded(self.scheduler.workers_for(model.batcher), tenant)

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
        """Add a request; it gets its answer on the event loop.

        Raises:
            QueueFull: The model's queue is full.
            DeviceLost: The device has failed.
            ModelHangs: Too many of its batches hang.
        """
        if (outage := self.outage(model)) is not None:
            raise outage
        model.batcher.submit(request)
        self._submitted += 1
        self.pump_soon()

    def drop(self, model: LoadedModel, request: Request) -> None:
        """Let a request that has its answer wait no more."""
        self.scheduler.drop(model.batcher, request)
        self.pump_soon()

    def outage(self, model: LoadedModel) -> DeviceLost | ModelHangs | None:
        """Return why a model runs nothing now; None where it does."""
        if self._lost is not None:
            return self.lost
        if not self._hanging:
            return None
        hanging = sum(job.model is model for job in self._hanging)
        if hanging < max(_MIN_MAX_HANGING, self.workers * _MAX_HANGING):
            return None
        return ModelHangs(
            f"{hanging} batches of model `{model.name}` hang, it takes requests again when one comes back",
            hint="load another version, or restart the server",
            model=model.name,
        )

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
        for job in self._offered:
            self._choose(job)
        if at != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at, self._timer = at, None
            if at < inf and self._loop is not None:
                self._timer = self._loop.call_later(max(0.0, at - perf_counter()), self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, inf
        self._pump()

    def start(self, batcher: DynamicBatcher, batch: Batch) -> None:
        """Run a batch on a thread that is free; this and the next three are for the scheduler."""
        job = self._job(batcher, batch)
        self._choose(job)
        self._pool.submit(partial(self._work, job))

    def offer(self, batcher: DynamicBatcher, batch: Batch) -> None:
        """Let a thread that ends a batch go on with this one."""
        job = self._job(batcher, batch)
        self._offered.append(job)
        self._choose(job)
        self._pool.offer(partial(self._work, job))

    def offers(self) -> int:
        """Count the offers that no thread has begun yet."""
        while len(self._offered) > (held := self._pool.offers()):
            self._offered.popleft()
        return held

    def withdraw(self) -> bool:
        """Take back the newest offer; False where all have begun."""
        if not self._pool.withdraw():
            return False
        job = self._offered.pop()
        self._ended(job)
        if job.model.is_retired:  # its requests may have timed out meanwhile
            assert self._loop is not None
            self._loop.call_soon(self._close_if_drained, job.model)  # the scheduler still counts with it
        return True

    def _job(self, batcher: DynamicBatcher, batch: Batch) -> Job:
        assert self._loop is not None
        model = self._models[batcher]
        job = Job(model, batch)
        model.running += 1
        job.watchdog = self._loop.call_later(self._hang_s, self._give_up, job)
        self._running.add(job)
        return job

    def _choose(self, job: Job) -> None:
        """Choose a job's variant by the rows that wait behind it.

        What is offered counts as waiting: it may be this job itself, and those of its model that were offered before.
        """
        model = job.model
        if model.fast is None:
            return
        rows = model.batcher.queue.rows
        if job in self._offered:
            for other in self._offered:
                rows -= other.batch.rows if other.model is model else 0
                if other is job:
                    break
        job.choose(rows / model.batcher.max_batch_size / self.workers, perf_counter())

    def _ended(self, job: Job) -> bool:
        """Take note that a job runs no more; False where it was given up before."""
        job.model.running -= 1
        if job not in self._running:
            return False
        self._running.remove(job)
        assert job.watchdog is not None
        job.watchdog.cancel()
        return True

    def _work(self, job: Job) -> None:
        assert self._loop is not None
        results = job.run(self.lost)
        with suppress(RuntimeError):  # the event loop is closed: the server has ended without this batch
            self._loop.call_soon_threadsafe(self._done, job, results)

    def _done(self, job: Job, results: list[Result]) -> None:
        model, batch, compute_s = job.model, job.batch, job.compute_s
        if not self._ended(job):
            self._hanging.remove(job)
            # Its requests are answered, its thread was replaced: there is one too many.
            self._pool.remove()
            if model.is_retired:
                self._close_if_drained(model)
            return
        self.scheduler.finished(model.batcher, batch, compute_s)
        self._pump()  # the worker is busy again before the answers are written
        model.statistics.ran(batch.rows, compute_s, job.variant)
        if model.fast is not None and job.variant == model.variant:
            model.fast.better_took(batch.rows, compute_s)
        for request, result in zip(batch.requests, results, strict=True):
            if isinstance(result, EdgeInferError):
                if isinstance(result, DeviceLost) and self._lost is None:
                    self.lost = result
                    _report(f"The device of {model.name} is lost, its pool takes no more requests: {result.message}")
                request.answer(result)
            else:
                request.answer(Answer(result, batch.timings(request, job.begun, compute_s), job.variant))
        if model.is_retired:
            self._close_if_drained(model)

    def _give_up(self, job: Job) -> None:
        """Answer the requests of a batch that hangs, and start a thread in the place of the lost one.

        The model counts as running until the engine comes back: nothing may close a session that computes.
        """
        assert self._loop is not None
        left = self._hang_s - max(0.0, perf_counter() - job.begun)
        if left > 0:  # it waited for a thread first
            job.watchdog = self._loop.call_later(left, self._give_up, job)
            return
        self._running.remove(job)
        self._hanging.add(job)
        self._pool.add()
        self.scheduler.given_up()
        error = DeadlineExceeded(
            f"Model `{job.model.name}` ran for more than {self._hang_s:g} s and was given up",
            hint="see the server's log",
        )
        _report(error.message)
        for request in job.batch.requests:
            request.answer(error)
        outage = self.outage(job.model)
        if outage is not None:  # those that wait would hang as well
            _report(outage.message)
            self.scheduler.take_back()
            while (batch := job.model.batcher.take(perf_counter(), is_idle=True)) is not None:
                for request in batch.requests:
                    request.answer(outage)
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

    def each_worker(self, function: Callable[[], None]) -> None:
        """Let each of its threads that is free call a function."""
        self._pool.each(function)

    def close(self, timeout_s: float = 5.0) -> None:
        """Let running batches end, close all models; one with a batch that takes longer than this stays open."""
        if self._timer is not None:
            self._timer.cancel()
        for job in self._running:
            assert job.watchdog is not None
            job.watchdog.cancel()
        self._pool.close(timeout_s)
        for job in (*self._running, *self._hanging):
            job.model.is_abandoned |= not job.has_ended
        for model in self._models.values():
            model.close()
        self._models.clear()


def _report(text: str) -> None:
    """Log what went wrong; who waits for an answer has it though the log fails."""
    with suppress(Exception):
        log.error("%s", text)
