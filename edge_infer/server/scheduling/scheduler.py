"""Scheduler: a fixed number of workers shared by the batchers of all models, each with as much of their time.

An urgent request does not wait for what runs: where all workers are busy it starts on one more, and the next worker
that is free stands back instead. So it shares the cores for as long as it takes, and none is kept idle for it.

Turns are by time, not by batches: a model whose batch takes a millisecond is not held up by one whose batch takes a
hundred for longer than one of these. (Start-time fair queueing, Goyal, Vin and Cheng 1996.)
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.scheduling.batcher import DynamicBatcher
    from edge_infer.server.scheduling.request import Batch


class Scheduler:
    """Gives batches to workers. It is driven from outside: `pump` after anything happened, and at `wake_at`.

    Args:
        workers: How many batches may run at once.
        start: Starts a batch on a worker; it returns at once. Whoever runs it calls `finished` in the end.
        clock: Returns the time in seconds.
        spare: How many batches more may run for urgent requests.
    """

    def __init__(
        self,
        workers: int,
        start: Callable[[DynamicBatcher, Batch], None],
        clock: Callable[[], float],
        spare: int = 0,
    ) -> None:
        self.workers = workers
        self._spare = spare
        self.running = 0
        self._start = start
        self._clock = clock
        #: Each model's part of the workers' time so far, in seconds.
        self._spent: dict[DynamicBatcher, float] = {}
        self._time = 0.0
        self._free_since = 0.0

    def add(self, batcher: DynamicBatcher) -> None:
        """Let a model take part."""
        self._spent[batcher] = self._time

    def remove(self, batcher: DynamicBatcher) -> None:
        """Let a model take part no more; what it has running finishes."""
        del self._spent[batcher]

    def workers_for(self, batcher: DynamicBatcher) -> float:
        """Return a model's part of the workers, beside those that have requests waiting now."""
        if len(self._spent) == 1:
            return self.workers
        return self.workers / (1 + sum(1 for other in self._spent if other is not batcher and len(other)))

    def pump(self) -> float:
        """Start every batch that should run now.

        Returns:
            When to call again though nothing happened; infinity for never.
        """
        now = self._clock()
        spent = self._spent
        while self.running < self.workers:
            is_idle = self.running == 0
            for batcher in list(spent) if len(spent) == 1 else sorted(filter(len, spent), key=spent.__getitem__):
                batch = batcher.take(now, is_idle=is_idle, free_since=self._free_since)
                if batch is not None:
                    break
            else:
                break
            self._begin(batcher, batch)
        while self.workers <= self.running < self.workers + self._spare:
            for batcher in list(spent):
                batch = batcher.take_urgent(now)
                if batch is not None:
                    break
            else:
                break
            self._begin(batcher, batch)
        if self.running >= self.workers:
            return inf  # the next end of a batch pumps
        return min((batcher.wake_at(now) for batcher in spent), default=inf)

    def _begin(self, batcher: DynamicBatcher, batch: Batch) -> None:
        # Who had nothing to do has saved nothing: its time begins where that of the others is.
        self._time = max(self._time, self._spent.pop(batcher))  # put back behind those that spent as much
        self._spent[batcher] = self._time + batcher.expected_s(batch)
        self.running += 1
        self._start(batcher, batch)

    def finished(self, batcher: DynamicBatcher, compute_s: float) -> None:
        """Take note that a batch ended, well or not; `pump` comes next."""
        if self.running == self.workers:
            self._free_since = self._clock()
        self.running -= 1
        batcher.finished(compute_s)
