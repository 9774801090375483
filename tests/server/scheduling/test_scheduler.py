"""When batches start, on a fake clock and with workers that are told when to finish."""

from __future__ import annotations

from math import inf, isinf
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import QueueFull
from edge_infer.server.scheduling.batcher import BatchLimits, DynamicBatcher
from edge_infer.server.scheduling.scheduler import Scheduler
from tests.server.scheduling.test_queue import Waiting

if TYPE_CHECKING:
    from edge_infer.server.scheduling.request import Batch


class Machine:
    """A scheduler whose clock and workers the test moves."""

    def __init__(self, workers: int = 1, spare: int = 0, **limits: float) -> None:
        self.now = 0.0
        self.started: list[tuple[DynamicBatcher, Batch]] = []
        self.scheduler = Scheduler(
            workers, lambda batcher, batch: self.started.append((batcher, batch)), lambda: self.now, spare
        )
        self.batcher = self.model(**limits)

    def model(self, **limits: float) -> DynamicBatcher:
        defaults = BatchLimits()
        batcher = DynamicBatcher(
            BatchLimits(
                int(limits.get("max_batch_size", defaults.max_batch_size)),
                limits.get("max_delay_ms", defaults.max_delay_ms),
                int(limits.get("max_queue_size", defaults.max_queue_size)),
                limits.get("max_wait_ms", defaults.max_wait_ms),
            )
        )
        self.scheduler.add(batcher)
        return batcher

    def submit(
        self, count: int = 1, batcher: DynamicBatcher | None = None, rows: int = 1, priority: int = 0
    ) -> list[Waiting]:
        requests = [Waiting(arrived=self.now, rows=rows, priority=priority) for _ in range(count)]
        for request in requests:
            (self.batcher if batcher is None else batcher).submit(request)
        return requests

    def finish(self, index: int, compute_s: float = 0.01) -> float:
        self.scheduler.finished(self.started[index][0], compute_s)
        return self.scheduler.pump()

    def sizes(self) -> list[int]:
        return [len(batch.requests) for _, batch in self.started]


def test_an_idle_server_starts_at_once() -> None:
    machine = Machine()
    machine.submit()
    assert isinf(machine.scheduler.pump())
    assert machine.sizes() == [1]


def test_what_comes_while_the_worker_is_busy_runs_together() -> None:
    machine = Machine()
    machine.submit()
    machine.scheduler.pump()
    machine.submit(20)
    machine.scheduler.pump()
    assert machine.sizes() == [1]
    machine.now = 0.01
    machine.finish(0)
    assert machine.sizes() == [1, 20]


def test_a_batch_is_no_larger_than_its_limit() -> None:
    machine = Machine(max_batch_size=8)
    machine.submit(20)
    machine.scheduler.pump()
    machine.finish(0)
    machine.finish(1)
    assert machine.sizes() == [8, 8, 4]


def test_a_free_worker_waits_for_more_while_another_is_busy() -> None:
    machine = Machine(workers=2, max_delay_ms=5)
    machine.submit()
    machine.scheduler.pump()
    machine.now = 0.001
    machine.submit()
    assert machine.scheduler.pump() == pytest.approx(0.006)
    assert machine.sizes() == [1]
    machine.now = 0.003
    machine.submit()
    machine.scheduler.pump()
    machine.now = 0.006
    machine.scheduler.pump()
    assert machine.sizes() == [1, 2]


def test_a_full_batch_waits_for_nothing() -> None:
    machine = Machine(workers=2, max_batch_size=4)
    machine.submit()
    machine.scheduler.pump()
    machine.submit(4)
    machine.scheduler.pump()
    assert machine.sizes() == [1, 4]


def test_rows_count_and_not_requests() -> None:
    machine = Machine(max_batch_size=8)
    machine.submit(4, rows=3)
    machine.scheduler.pump()
    assert machine.sizes() == [2]
    assert machine.started[0][1].rows == 6


def test_turns_are_by_time_so_that_a_slow_model_does_not_hold_up_a_fast_one() -> None:
    machine = Machine(max_batch_size=1)
    slow = machine.model(max_batch_size=1)
    slow.expect(0.1)
    machine.batcher.expect(0.001)
    machine.submit(60)
    machine.submit(4, slow)
    machine.scheduler.pump()
    for i in range(50):
        machine.finish(i, 0.1 if machine.started[i][0] is slow else 0.001)
    first = [batcher is slow for batcher, _ in machine.started[:50]]
    assert sum(first) <= 2
    # A share of the workers, not all of them, is what a newcomer may count on.
    assert machine.scheduler.workers_for(slow) == 0.5


def test_who_was_idle_has_saved_nothing() -> None:
    machine = Machine(max_batch_size=1)
    late = machine.model(max_batch_size=1)
    for batcher in (machine.batcher, late):
        batcher.expect(0.01)
    machine.submit(120)
    machine.scheduler.pump()
    for i in range(100):
        machine.finish(i, 0.01)
    machine.submit(20, late)
    for i in range(100, 110):
        machine.finish(i, 0.01)
    assert 4 <= sum(batcher is late for batcher, _ in machine.started[101:111]) <= 6


def test_models_take_turns() -> None:
    machine = Machine(max_batch_size=1)
    other = machine.model(max_batch_size=1)
    machine.submit(4)
    machine.submit(4, other)
    for i in range(8):
        machine.scheduler.pump()
        assert len(machine.started) == i + 1
        machine.finish(i)
    names = ["one" if batcher is other else "two" for batcher, _ in machine.started]
    assert names in (["one", "two"] * 4, ["two", "one"] * 4)


def test_a_model_that_was_removed_starts_no_more() -> None:
    machine = Machine()
    machine.submit()
    machine.scheduler.remove(machine.batcher)
    assert machine.scheduler.pump() == inf
    assert machine.started == []


def test_the_time_of_a_request_is_divided() -> None:
    machine = Machine(workers=2, max_delay_ms=5)
    machine.submit()
    machine.scheduler.pump()
    (request,) = machine.submit()
    machine.now = 0.005
    machine.scheduler.pump()
    batch = machine.started[1][1]
    timings = batch.timings(request, 0.02)
    assert timings == (0.0, 0.005, 0.02, 1)

    (later,) = machine.submit()
    machine.now = 0.015
    machine.finish(0)
    machine.now = 0.017
    machine.scheduler.pump()
    timings = machine.started[2][1].timings(later, 0.02)
    assert timings.queue == pytest.approx(0.01)
    assert timings.batch_wait == 0.0


def test_a_wait_that_would_be_too_long_is_refused_before_the_queue_is_full() -> None:
    machine = Machine(max_wait_ms=100, max_batch_size=1)
    machine.submit()
    machine.scheduler.pump()
    machine.submit(5)
    machine.finish(0, compute_s=0.05)
    assert machine.batcher.estimated_wait_s(1) == pytest.approx(0.2)
    refusal = machine.batcher.refusal(1)
    assert isinstance(refusal, QueueFull)
    assert refusal.wait_ms == 200
    assert machine.batcher.refusal(4) is None
    assert machine.batcher.refusal(1, priority=1) is None


def test_without_a_limit_the_wait_may_be_some_batches_long() -> None:
    machine = Machine(max_batch_size=1)
    machine.batcher.expect(0.02)
    machine.submit(8)
    assert machine.batcher.refusal(1) is None
    machine.submit(1)
    assert machine.batcher.refusal(1) is not None


def test_a_full_queue_is_refused() -> None:
    machine = Machine(max_queue_size=2)
    machine.submit(2)
    assert isinstance(machine.batcher.refusal(1), QueueFull)


def test_an_urgent_request_does_not_wait_for_what_runs_and_its_worker_stands_back_later() -> None:
    machine = Machine(workers=2, spare=1, max_batch_size=2)
    for _ in range(2):
        machine.submit(2)
        machine.scheduler.pump()
    machine.submit(5)
    machine.scheduler.pump()
    assert machine.scheduler.running == 2
    machine.submit(priority=1)
    machine.submit(priority=2)
    machine.submit(priority=3)
    machine.scheduler.pump()
    # One batch, of urgent requests alone, and no second one beside it.
    assert machine.sizes() == [2, 2, 2]
    assert [request.priority for request in machine.started[2][1].requests] == [1, 2]
    machine.finish(0)
    assert [request.priority for request in machine.started[3][1].requests] == [3]
    machine.finish(2)
    assert machine.scheduler.running == 2  # the next plain batch waits until one more has ended
    machine.finish(3)
    assert machine.sizes()[4:] == [2]
    assert machine.scheduler.running == 2


def test_without_a_spare_worker_an_urgent_request_is_only_first() -> None:
    machine = Machine(workers=1)
    machine.submit()
    machine.scheduler.pump()
    machine.submit(priority=1)
    machine.scheduler.pump()
    assert machine.sizes() == [1]
