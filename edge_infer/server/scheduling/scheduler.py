"""Scheduler: a fixed number of workers shared by the batchers of all models, each with as much of their time.

An urgent request does not wait for what runs: where all workers are busy it starts on one more, and the next worker
that is free stands back instead. So it shares the cores for as long as it takes, and none is kept idle for it.

Turns are by time, not by batches: a model whose batch takes a millisecond is not held up by one whose batch takes a
hundred for longer than one of these. (Start-time fair queueing, Goyal, Vin and Cheng 1996.)

While all workers are busy the next full batches, one for each, are formed already and offered to them: who ends one
goes on with the next at once, and does not wait for the event loop, which reads other requests at that moment.
(Measured: two workers with batches of 4 ms had nothing to do for an eighth of their time.)
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edge_infer.server.scheduling.batcher import DynamicBatcher
    from edge_infer.server.scheduling.request import Batch, Request


class Workers(Protocol):
    """The runner of batches. All methods return at once; whoever runs a batch calls `Scheduler.finished` in the end."""

    def start(self, batcher: DynamicBatcher, batch: Batch) -> None:
        """Run a batch now."""

    def offer(self, batcher: DynamicBatcher, batch: Batch) -> None:
        """Let a worker that ends a batch go on with this one, after those that were offered before."""

    def offers(self) -> int:
        """Count the offers that no worker has begun yet."""

    def withdraw(self) -> bool:
        """Take back the newest offer; False where all have begun."""


class _Offer(NamedTuple):
    """A batch that waits for a worker, and the seconds that its model is charged for it meanwhile."""

    batcher: DynamicBatcher
    batch: Batch
    cost_s: float


class Scheduler:
    """Gives batches to workers. It is driven from outside: `pump` after anything happened, and at `wake_at`.

    Args:
        count: How many batches may run at once.
        workers: What runs them.
        clock: Returns the time in seconds.
        spare: How many batches more may run for urgent requests.

    Attributes:
        running: How many batches run, as far as is known here.
    """

    def __init__(self, count: int, workers: Workers, clock: Callable[[], float], spare: int = 0) -> None:
        self.count = count
        self.running = 0
        self._spare = spare
        self._workers = workers
        self._clock = clock
        self._offered: deque[_Offer] = deque()
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
            return self.count
        return self.count / (1 + sum(1 for other in self._spent if other is not batcher and len(other)))

    def pump(self) -> float:
        """Start every batch that should run now.

        Returns:
            When to call again though nothing happened; infinity for never.
        """
        now = self._clock()
        if self.running < self.count:
            self.take_back()
        while self.running < self.count:
            is_idle = self.running == 0
            for batcher in self._turns():
                batch = batcher.take(now, is_idle=is_idle, free_since=self._free_since)
                if batch is not None:
                    break
            else:
                break
            self._begin(batcher, batch)
        while self.count <= self.running < self.count + self._spare:
            for batcher in self._turns():
                batch = batcher.take_urgent(now)
                if batch is not None:
                    break
            else:
                break
            self.take_back()  # the next worker that is free stands back
            self._begin(batcher, batch)
        if self.running < self.count:
            return min((batcher.wake_at(now) for batcher in self._spent), default=inf)
        if self.running == self.count:
            self._offer(now)
        return inf  # the next end of a batch pumps

    def _turns(self) -> Iterable[DynamicBatcher]:
        """Return the models with requests that wait, the one that used least first."""
        spent = self._spent
        return list(spent) if len(spent) == 1 else sorted(filter(len, spent), key=spent.__getitem__)

    def _begin(self, batcher: DynamicBatcher, batch: Batch) -> None:
        self._charge(batcher, batch)
        self._workers.start(batcher, batch)

    def _charge(self, batcher: DynamicBatcher, batch: Batch) -> None:
        # Who had nothing to do has saved nothing: its time begins where that of the others is.
        self._time = max(self._time, self._spent.pop(batcher))  # put back behind those that spent as much
        self._spent[batcher] = self._time + batcher.expected_s(batch)
        batcher.began(batch)
        self.running += 1

    def _offer(self, now: float) -> None:
        """Form the batches that are next, where they are full, and offer them; anew where another's turn is before."""
        if self._offered:
            last = self._offered[-1]
            if last.batcher.is_overtaken(last.batch, now):
                self.take_back()
        while self.running == self.count and len(self._offered) < self.count:
            batcher = next((one for one in self._turns() if one.has_next(now)), None)
            batch = batcher.set_aside(now) if batcher is not None else None
            if batcher is None or batch is None:
                break
            offer = _Offer(batcher, batch, batcher.expected_s(batch))
            self._workers.offer(batcher, batch)
            self._offered.append(offer)
            self._spent[batcher] += offer.cost_s

    def take_back(self) -> None:
        """Let what was offered and has not begun wait again; `pump` comes next."""
        while self._offered and self._workers.withdraw():
            offer = self._offered.pop()
            self._uncount(offer)
            offer.batcher.queue.put_back(offer.batch.requests)
        self._note_begun()

    def _note_begun(self) -> None:
        """Take note of the offers with which workers went on."""
        while len(self._offered) > self._workers.offers():
            offer = self._offered.popleft()
            self._uncount(offer)
            self._charge(offer.batcher, offer.batch)

    def _uncount(self, offer: _Offer) -> None:
        offer.batcher.queue.count_out(offer.batch.requests)
        self._spent[offer.batcher] -= offer.cost_s

    def drop(self, batcher: DynamicBatcher, request: Request) -> None:
        """Let a request that has its answer wait no more; `pump` comes next."""
        if not batcher.queue.remove(request) and any(request in offer.batch.requests for offer in self._offered):
            self.take_back()

    def finished(self, batcher: DynamicBatcher, batch: Batch, compute_s: float) -> None:
        """Take note that a batch ended, well or not; `pump` comes next."""
        self.given_up()
        batcher.finished(batch, compute_s)

    def given_up(self) -> None:
        """Take note that a batch counts no more though it runs; that says nothing of how long others take."""
        self._note_begun()  # and that may even be what ended
        if self.running == self.count:
            self._free_since = self._clock()
        self.running -= 1
