"""Scheduler: a fixed number of workers shared by the batchers of all models, in turn."""

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
    """

    def __init__(
        self, workers: int, start: Callable[[DynamicBatcher, Batch], None], clock: Callable[[], float]
    ) -> None:
        self.workers = workers
        self.running = 0
        self._start = start
        self._clock = clock
        self._batchers: list[DynamicBatcher] = []
        self._free_since = 0.0

    def add(self, batcher: DynamicBatcher) -> None:
        """Let a model take part."""
        self._batchers.append(batcher)

    def remove(self, batcher: DynamicBatcher) -> None:
        """Let a model take part no more; what it has running finishes."""
        self._batchers.remove(batcher)

    def pump(self) -> float:
        """Start every batch that should run now.

        Returns:
            When to call again though nothing happened; infinity for never.
        """
        now = self._clock()
        batchers = self._batchers
        tried = 0
        while self.running < self.workers and tried < len(batchers):
            batcher = batchers[tried]
            batch = batcher.take(now, is_idle=self.running == 0, free_since=self._free_since)
            if batch is None:
                tried += 1
                continue
            if len(batchers) > 1:  # the others' turn comes first
                batchers.append(batchers.pop(tried))
            self.running += 1
            self._start(batcher, batch)
        if self.running >= self.workers:
            return inf  # the next end of a batch pumps
        return min((batcher.wake_at(now) for batcher in batchers), default=inf)

    def finished(self, batcher: DynamicBatcher, compute_s: float) -> None:
        """Take note that a batch ended, well or not; `pump` comes next."""
        if self.running == self.workers:
            self._free_since = self._clock()
        self.running -= 1
        batcher.finished(compute_s)
