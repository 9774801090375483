"""DynamicBatcher: when to run, and how many together.

An idle server never waits: the first request runs at once, and those that come meanwhile gather behind it. While some
workers are busy, a free one waits up to `max_delay_ms` for a batch to fill. (Measured: waiting always, as other servers
do, made a single request 8.0 ms instead of 2.9 ms, and nothing faster.)
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import QueueFull
from edge_infer.server.scheduling.queue import RequestQueue
from edge_infer.server.scheduling.request import DEFAULT_PRIORITY, LOWEST_PRIORITY, Batch
from edge_infer.server.scheduling.shares import ANYONE, Tenant

if TYPE_CHECKING:
    from collections.abc import Hashable

    from edge_infer.errors import ServingError
    from edge_infer.server.scheduling.request import Request

#: How long a queue may be, in time, before newcomers are refused: that of 8 batches of one row, of at least 4 batches,
#: at least so long. So 16 clients in a closed loop are all served, and the wait under overload stays near twice that of
#: a busy server.
_MAX_WAIT_ROWS = 8
_MAX_WAIT_BATCHES = 4
_MIN_WAIT_S = 0.03
#: The weight of the newest batch in the running mean of the time that a batch takes.
_SMOOTHING = 0.2
#: What the event loop spends on a request at least (measured on a core of 2023), and how few requests under way are
#: never too many.
_REQUEST_S = 0.00015
_LEAST_UNDER_WAY = 4


class BatchLimits(NamedTuple):
    """How a model's requests are batched and bounded.

    Attributes:
        max_batch_size: The most rows of a batch.
        max_delay_ms: How long a free worker waits for a batch to fill while others are busy.
        max_queue_size: How many requests may wait.
        max_wait_ms: How long the wait may be, by estimate, for a request to be taken; 0 to work it out from the time
            that a batch takes.
        refuses_nan: Whether an answer with a NaN in it is a failure of the model.
        max_rows: The most rows of one request; 0 for any number. It runs alone, and others wait for all of it: 16384
            are 512 of the largest batches.
        max_answer_bytes: The most bytes of one answer's tensors, and of its JSON; 0 for any number.
        counts_drift: Whether what a model is given and answers is counted, where its bundle has a reference.
    """

    max_batch_size: int = 32
    max_delay_ms: float = 5.0
    max_queue_size: int = 256
    max_wait_ms: float = 0.0
    refuses_nan: bool = False
    max_rows: int = 16384
    max_answer_bytes: int = 64 * 2**20
    counts_drift: bool = False


class DynamicBatcher:
    """The requests of one model version, and how they become batches.

    Args:
        limits: Sizes and times.

    Attributes:
        max_batch_size: The most rows of a batch: the limit, or less once the model was measured.
        free_rows: How many rows of such a batch take no time of their own. So many rows may run ahead of a tenant
            whose clients are about to ask again: it would gain little if they did not.
    """

    def __init__(self, limits: BatchLimits | None = None) -> None:
        self.limits = limits or BatchLimits()
        self.queue = RequestQueue(self.limits.max_queue_size)
        self.max_batch_size = self.limits.max_batch_size
        self.free_rows = 0.0
        self._batch_s = 0.0

    def __len__(self) -> int:
        return len(self.queue)

    def expected_s(self, batch: Batch) -> float:
        """Estimate how long a batch will run."""
        return self._batch_s * max(1.0, batch.rows / self.max_batch_size)

    def estimated_wait_s(self, workers: float) -> float:
        """Estimate how long a request that comes now would wait for its turn."""
        return ceil(self.queue.rows / self.max_batch_size) * self._batch_s / workers

    def refusal(self, workers: float, priority: int = 0, tenant: Tenant = ANYONE) -> ServingError | None:
        """Return the error for a request that would not be taken now, before anything of it is read; else None."""
        queue = self.queue
        if not len(queue):
            return None
        if not tenant.name and not queue.has_room(priority):
            return queue.full()
        wait_s, most_s = self.estimated_wait_s(workers), self._max_wait_s()
        if tenant.name:
            # Who is below its share waits for its own alone; who is above it is told so once it crowds out others.
            is_crowded = wait_s > most_s / 2 or len(queue) > queue.max_size / 2
            if is_crowded and queue.shares.is_over(tenant):
                return queue.shares.refusal(tenant)
            wait_s *= min(1.0, queue.shares.waiting(tenant) / len(queue) / queue.shares.part(tenant))
            if not queue.has_room(priority, tenant):
                return queue.full()
        is_urgent = not tenant.name and (priority or DEFAULT_PRIORITY) < DEFAULT_PRIORITY
        if not is_urgent and wait_s > most_s:
            return QueueFull(
                f"The wait would be {wait_s * 1000:.0f} ms, more than {most_s * 1000:.0f} ms",
                hint="come back after `Retry-After`, or send fewer at once",
                wait_ms=round(wait_s * 1000),
            )
        return None

    def is_crowded(self, workers: float, tenant: Tenant = ANYONE) -> bool:
        """Tell whether half of the queue is taken, so that a stream with requests under way should wait.

        Half of its requests or of its longest wait, and enough for the next batches. A tenant waits for its own
        requests alone, unless nobody else has any.
        """
        queue = self.queue
        most = min(queue.max_size, max(queue.max_size // 2, 2 * self.max_batch_size))
        if len(queue) < most and self.estimated_wait_s(workers) <= self._max_wait_s() / 2:
            return False
        return queue.shares.part(tenant) == 1 or queue.shares.is_over(tenant)

    def _max_wait_s(self) -> float:
        batches = max(_MAX_WAIT_BATCHES, _MAX_WAIT_ROWS / self.max_batch_size)
        return self.limits.max_wait_ms / 1000 or max(_MIN_WAIT_S, batches * self._batch_s)

    def submit(self, request: Request) -> None:
        """Add a request.

        Raises:
            QueueFull: There is no room.
        """
        if request.tenant.name:
            request.turn = self.queue.shares.turn(
                request.tenant, request.rows, request.arrived, catch_up=self.max_batch_size
            )
        self.queue.push(request)

    def take(self, now: float, *, is_idle: bool, free_since: float = 0.0) -> Batch | None:
        """Form the next batch, if it should run now; call it where a worker is free.

        Args:
            now: The time.
            is_idle: Whether all workers are free.
            free_since: Since when one is.
        """
        found = self.queue.first(now)
        if found is None:
            return None
        key, first = found
        if not (is_idle or now >= self._flush_at(first) or self.queue.fills(key, self.max_batch_size)):
            return None
        return self._batch(key, now, free_since)

    def take_urgent(self, now: float) -> Batch | None:
        """Form a batch of urgent requests, if one of them is next; call it where no worker is free.

        Those of tenants are not: their priority is worth something among their own requests only.
        """
        found = self.queue.first(now)
        if found is None or found[1].priority >= DEFAULT_PRIORITY or found[1].tenant.name:
            return None
        return self._batch(found[0], now, now, below=DEFAULT_PRIORITY)

    def set_aside(self, now: float) -> Batch | None:
        """Form the next batch if waiting would not make it larger; call it where no worker is free.

        Its requests count as waiting until `queue.count_out`.
        """
        found = self.queue.first(now)
        if found is None or (found[1].key is not None and not self.queue.fills(found[0], self.max_batch_size)):
            return None
        requests = self.queue.set_aside(found[0], self.max_batch_size, now, ahead=self.free_rows)
        return self._of(requests, inf) if requests else None

    def _batch(self, key: Hashable, now: float, free_since: float, below: int = LOWEST_PRIORITY + 1) -> Batch | None:
        requests = self.queue.take(key, self.max_batch_size, now, below, self.free_rows)
        return self._of(requests, free_since) if requests else None

    def _of(self, requests: list[Request], free_since: float) -> Batch:
        return Batch(requests, sum(request.rows for request in requests), free_since, self.limits.refuses_nan)

    def began(self, batch: Batch) -> None:
        """Take note that a batch began to run."""
        if batch.requests[0].tenant.name:
            for request in batch.requests:
                self.queue.shares.began(request.tenant, request.turn, request.rows)

    def has_next(self, now: float) -> bool:
        """Tell whether a request waits that is in no batch yet."""
        return self.queue.first(now) is not None

    def is_overtaken(self, batch: Batch, now: float) -> bool:
        """Tell whether a request waits whose turn comes before that of a batch which was formed already."""
        found = self.queue.first(now)
        return found is not None and self.queue.rank(found[1]) < self.queue.rank(batch.requests[0])

    def wake_at(self, now: float) -> float:
        """Tell when `take` should be called again though nothing happened; infinity for never."""
        found = self.queue.first(now)
        return inf if found is None else self._flush_at(found[1])

    def _flush_at(self, first: Request) -> float:
        return first.arrived + self.limits.max_delay_ms / 1000

    def finished(self, batch: Batch, compute_s: float) -> None:
        """Learn how long a batch takes; a request with more rows than one has counts as several."""
        weight = _SMOOTHING if self._batch_s else 1.0
        batch_s = compute_s / max(1.0, batch.rows / self.max_batch_size)
        self._batch_s += weight * (batch_s - self._batch_s)
        self.queue.shares.batch_s = self._batch_s

    def enough(self, workers: int) -> float:
        """Return how many requests under way keep workers busy: they fill the batches that run and those that are next.

        They are not more than the event loop can begin while batches run: of a model that takes less than that, more
        of them only wait for the loop. Infinity where it is not known how long a batch takes.

        Args:
            workers: How many batches run at once.
        """
        if not self._batch_s:
            return inf
        return max(_LEAST_UNDER_WAY, 2 * min(workers * self.max_batch_size, self._batch_s / _REQUEST_S))

    def expect(self, batch_s: float) -> None:
        """Start from a measurement instead of from nothing."""
        self._batch_s = batch_s
