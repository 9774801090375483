"""What a tenant of few clients gets beside another's flood, by a simulation of both and of the machine."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import pytest

from edge_infer.server.scheduling.batcher import BatchLimits, DynamicBatcher
from edge_infer.server.scheduling.request import Answer, Request
from edge_infer.server.scheduling.scheduler import Scheduler
from edge_infer.server.scheduling.shares import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.scheduling.request import Batch

_THINK_S = 0.002
_RETRY_S = 0.01


class Simulation:
    """Clients that each wait for an answer and ask again, and workers that take `fixed_s` a batch and `row_s` a row."""

    def __init__(self, workers: int, batch_size: int, row_s: float, fixed_s: float = 0.0) -> None:
        self.now = 0.0
        self.answers: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()
        self.gone: set[str] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._offers: list[Batch] = []
        self._row_s, self._fixed_s = row_s, fixed_s
        self.scheduler = Scheduler(workers, self, lambda: self.now)
        self.batcher = DynamicBatcher(BatchLimits(max_batch_size=batch_size))
        self.batcher.expect(fixed_s + row_s)
        self.batcher.free_rows = batch_size - (fixed_s + row_s * batch_size) / (fixed_s + row_s)
        self.scheduler.add(self.batcher)

    def start(self, batcher: DynamicBatcher, batch: Batch) -> None:  # noqa: ARG002
        self._run(batch)

    def offer(self, batcher: DynamicBatcher, batch: Batch) -> None:  # noqa: ARG002
        self._offers.append(batch)

    def offers(self) -> int:
        return len(self._offers)

    def withdraw(self) -> bool:
        return bool(self._offers and self._offers.pop())

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._numbers), event))

    def _run(self, batch: Batch) -> None:
        compute_s = self._fixed_s + self._row_s * batch.rows
        self.sizes[batch.rows] += 1
        self._at(self.now + compute_s, lambda: self._end(batch, compute_s))

    def _end(self, batch: Batch, compute_s: float) -> None:
        if self._offers:
            self._run(self._offers.pop(0))
        self.scheduler.finished(self.batcher, batch, compute_s)
        for request in batch.requests:
            request.answer(Answer({}, batch.timings(request, self.now, compute_s)))
        self.scheduler.pump()

    def _client(self, tenant: Tenant) -> Callable[[], None]:
        def finish(result: Answer | EdgeInferError) -> None:
            if tenant.name in self.gone:
                return
            is_answer = isinstance(result, Answer)
            self.answers[tenant.name] += is_answer
            self.refused[tenant.name] += not is_answer
            self._at(self.now + (_THINK_S if is_answer else _RETRY_S), ask)

        def ask() -> None:
            error = self.batcher.refusal(self.scheduler.workers_for(self.batcher), 0, tenant)
            if error is not None:
                finish(error)
                return
            self.batcher.submit(Request({}, None, key="x", arrived=self.now, finish=finish, tenant=tenant))
            self.scheduler.pump()

        return ask

    def run(self, seconds: float, **clients: int) -> Counter[str]:
        """Return the answers that each tenant got whose clients are that many."""
        for name, number in clients.items():
            for _ in range(number):
                self._at(0.0, self._client(Tenant(name)))
        while self._events[0][0] < seconds:
            self.now, _, event = heappop(self._events)
            event()
        return self.answers


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 8])
def test_a_tenant_keeps_its_share_beside_a_flood(workers: int, batch_size: int) -> None:
    """Without the bound of batches it has 4 rows of each batch of 8, and its clients ask again while the next runs."""
    alone = Simulation(workers, batch_size, 0.01).run(3, b=4)["b"]
    flood = Simulation(workers, batch_size, 0.01).run(3, a=40)["a"]

    both = Simulation(workers, batch_size, 0.01).run(3, a=40, b=4)

    assert both["b"] >= 0.45 * alone
    assert both.total() >= 0.98 * flood


def test_who_has_few_requests_is_not_refused_for_the_length_of_anothers_line() -> None:
    """Its wait is that of its own requests: the flood's forty are not before it."""
    simulation = Simulation(2, 1, 0.01)

    simulation.run(3, a=40, b=4)

    assert simulation.refused["a"] > 0
    assert simulation.refused["b"] == 0


def test_three_tenants_have_a_third_each() -> None:
    answers = Simulation(1, 8, 0.01).run(3, a=40, b=4, c=1)

    assert min(answers.values()) >= 0.95 * max(answers.values())


def test_rows_that_cost_nothing_fill_a_batch() -> None:
    """Where a batch takes as long as a row, smaller ones would help nobody."""
    simulation = Simulation(1, 8, 0.0005, fixed_s=0.008)
    flood = Simulation(1, 8, 0.0005, fixed_s=0.008).run(3, a=40)["a"]

    both = simulation.run(3, a=40, b=4)

    assert both.total() >= 0.9 * flood
    assert simulation.sizes[7] + simulation.sizes[8] >= 0.95 * simulation.sizes.total()


def test_who_went_is_not_waited_for() -> None:
    """The flood's batches are full again once the other tenant has not asked for a moment."""
    simulation = Simulation(1, 8, 0.01)
    simulation.run(1, a=40, b=4)
    simulation.gone.add("b")
    simulation.run(2)
    simulation.sizes.clear()

    simulation.run(4)

    assert set(simulation.sizes) == {8}


def _beside_another(batcher: DynamicBatcher, now: float) -> Counter[str]:
    """Return whose requests run in 20 batches while two tenants ask without end."""
    ran: Counter[str] = Counter()
    for _ in range(20):
        for name in ("a", "b"):
            for _ in range(8):
                batcher.submit(_request(name, now))
        batch = batcher.take(now, is_idle=True)
        assert batch is not None
        batcher.began(batch)
        ran.update(request.tenant.name for request in batch.requests)
        now += 0.08
    return ran


def _request(name: str, now: float, rows: int = 1, *, is_gone: bool = False) -> Request:
    return Request(
        {}, None, rows=rows, key="x", arrived=now, finish=lambda _: None, tenant=Tenant(name), is_gone=lambda: is_gone
    )


def _batcher() -> DynamicBatcher:
    batcher = DynamicBatcher(BatchLimits(max_batch_size=8, max_queue_size=1000))
    batcher.expect(0.08)
    return batcher


def test_requests_that_never_ran_cost_their_tenant_nothing() -> None:
    """Its clients left, or their timeouts were over: the other one would have had a row for each of theirs."""
    batcher = _batcher()
    batcher.submit(_request("b", 0.0))
    for _ in range(50):
        batcher.submit(_request("a", 0.0, rows=32, is_gone=True))
    while (batch := batcher.take(0.1, is_idle=True)) is not None:
        batcher.began(batch)

    ran = _beside_another(batcher, 0.1)

    assert ran["a"] >= 0.8 * ran["b"]


def test_who_was_alone_for_long_owes_nothing() -> None:
    batcher = _batcher()
    batcher.submit(_request("a", 0.0, rows=16384))
    batch = batcher.take(0.0, is_idle=True)
    assert batch is not None
    batcher.began(batch)

    ran = _beside_another(batcher, 3600.0)

    assert ran["a"] >= 0.8 * ran["b"]
