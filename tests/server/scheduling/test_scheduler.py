"""When batches start, on a fake clock and with workers that are told when to finish."""

from __future__ import annotations

from math import inf, isinf
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import DeadlineExceeded, QueueFull
from edge_infer.server.scheduling.batcher import BatchLimits, DynamicBatcher
from edge_infer.server.scheduling.scheduler import Scheduler
from tests.support.server.waiting import Waiting

if TYPE_CHECKING:
    from edge_infer.server.scheduling.request import Batch


class Machine:
    """A scheduler whose clock and workers the test moves."""

    def __init__(self, workers: int = 1, spare: int = 0, **limits: float) -> None:
        self.now = 0.0
        self.started: list[tuple[DynamicBatcher, Batch]] = []
        self.offered: list[tuple[DynamicBatcher, Batch]] = []
        self.scheduler = Scheduler(workers, self, lambda: self.now, spare)
        self.batcher = self.model(**limits)

    def start(self, batcher: DynamicBatcher, batch: Batch) -> None:
        self.started.append((batcher, batch))

    def offer(self, batcher: DynamicBatcher, batch: Batch) -> None:
        self.offered.append((batcher, batch))

    def offers(self) -> int:
        return len(self.offered)

    def withdraw(self) -> bool:
        if self.offered:
            self.offered.pop()
            return True
        return False

    def go_on(self) -> None:
        """Let a worker that ended a batch take what is offered, before the scheduler hears of it."""
        self.started.append(self.offered.pop(0))

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
        self.scheduler.finished(*self.started[index], compute_s)
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
    timings = batch.timings(request, machine.now, 0.02)
    assert timings == (0.0, 0.005, 0.02, 1)

    (later,) = machine.submit()
    machine.now = 0.015
    machine.finish(0)
    machine.now = 0.017
    machine.scheduler.pump()
    timings = machine.started[2][1].timings(later, 0.015, 0.02)
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


def test_a_request_of_many_rows_does_not_make_those_of_one_look_slow() -> None:
    machine = Machine(max_batch_size=4)
    machine.batcher.expect(0.01)
    machine.submit(rows=400)
    machine.scheduler.pump()
    machine.submit(4)
    machine.finish(0, compute_s=1.0)
    machine.submit(4)
    assert machine.batcher.estimated_wait_s(1) == pytest.approx(0.01)


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


def test_the_next_full_batch_is_offered_and_a_worker_goes_on_with_it() -> None:
    machine = Machine(workers=2, max_batch_size=2)
    machine.submit(4)
    machine.scheduler.pump()
    following = machine.submit(3)
    machine.scheduler.pump()
    assert machine.sizes() == [2, 2]
    assert machine.offered[0][1].requests == following[:2]
    machine.go_on()
    machine.finish(0)
    assert machine.sizes() == [2, 2, 2]  # none is started beside it
    assert machine.scheduler.running == 2
    assert not machine.offered  # one row is no full batch
    machine.finish(2)
    machine.finish(1)
    machine.finish(3)
    assert machine.sizes() == [2, 2, 2, 1]
    assert machine.scheduler.running == 0


def test_as_many_batches_are_offered_as_there_are_workers_the_oldest_first() -> None:
    machine = Machine(workers=2, max_batch_size=2)
    requests = machine.submit(12)
    machine.scheduler.pump()
    assert [batch.requests for _, batch in machine.offered] == [requests[4:6], requests[6:8]]
    assert len(machine.batcher) == 8
    assert machine.batcher.queue.rows == 8
    machine.go_on()
    machine.finish(0)
    assert [batch.requests for _, batch in machine.offered] == [requests[6:8], requests[8:10]]
    machine.go_on()
    machine.go_on()
    machine.finish(1)
    machine.finish(2)
    assert machine.scheduler.running == 2
    machine.finish(3)
    machine.finish(4)
    machine.finish(5)
    assert [request for _, batch in machine.started for request in batch.requests] == requests
    assert machine.scheduler.running == 0
    assert machine.batcher.queue.rows == 0


def test_models_are_offered_in_turn() -> None:
    machine = Machine(workers=2, max_batch_size=1)
    other = machine.model(max_batch_size=1)
    machine.batcher.expect(0.01)
    other.expect(0.01)
    machine.submit(8)
    machine.submit(8, other)
    machine.scheduler.pump()
    assert {id(batcher) for batcher, _ in machine.started} == {id(machine.batcher), id(other)}
    assert {id(batcher) for batcher, _ in machine.offered} == {id(machine.batcher), id(other)}


def test_an_offer_that_no_worker_took_in_time_is_started() -> None:
    machine = Machine(max_batch_size=1)
    requests = machine.submit(3)
    machine.scheduler.pump()
    machine.finish(0)
    assert [batch.requests[0] for _, batch in machine.started] == requests[:2]
    assert machine.offered[0][1].requests == requests[2:]


def test_what_was_offered_may_end_before_the_batch_that_it_followed_is_heard_of() -> None:
    machine = Machine(workers=2, max_batch_size=1)
    machine.submit(3)
    machine.scheduler.pump()
    machine.go_on()
    machine.finish(2)
    assert machine.scheduler.running == 2
    machine.finish(0)
    machine.finish(1)
    assert machine.scheduler.running == 0


def test_who_is_more_urgent_comes_before_what_was_offered() -> None:
    machine = Machine(max_batch_size=1)
    machine.submit(3, priority=200)
    machine.scheduler.pump()
    (urgent,) = machine.submit(priority=3)
    machine.scheduler.pump()
    assert machine.offered[0][1].requests == [urgent]
    assert len(machine.batcher) == 3  # the one that was offered waits again, and who is offered waits too
    machine.go_on()
    machine.submit(priority=2)
    machine.scheduler.pump()  # an offer that is gone cannot be changed
    assert not machine.offered
    assert machine.scheduler.running == 2
    machine.finish(0)
    assert [request.priority for request in machine.offered[0][1].requests] == [2]


def test_an_urgent_request_on_a_spare_worker_takes_back_the_offer() -> None:
    machine = Machine(workers=1, spare=1, max_batch_size=1)
    machine.submit(2)
    machine.scheduler.pump()
    assert machine.offered
    machine.submit(priority=1)
    machine.scheduler.pump()
    assert not machine.offered
    assert machine.scheduler.running == 2
    machine.finish(0)
    assert machine.offered  # the next worker that is free after the urgent one goes on with it
    assert machine.sizes() == [1, 1]


def test_who_timed_out_waits_no_more_in_a_line_nor_in_an_offer() -> None:
    machine = Machine(max_batch_size=2)
    running, late, first, second, later = machine.submit(5)
    machine.scheduler.pump()
    assert machine.started[0][1].requests == [running, late]
    machine.scheduler.drop(machine.batcher, late)  # it runs: nothing can be done
    assert machine.offered[0][1].requests == [first, second]
    for request in (first, later):
        request.answer(DeadlineExceeded("late"))
        machine.scheduler.drop(machine.batcher, request)
    machine.scheduler.pump()
    assert not machine.offered
    assert len(machine.batcher) == machine.batcher.queue.rows == 1
    machine.finish(0)
    assert machine.started[1][1].requests == [second]


def test_nothing_is_learned_from_a_batch_that_was_given_up() -> None:
    machine = Machine(max_wait_ms=100, max_batch_size=1)
    machine.batcher.expect(0.001)
    machine.submit(3)
    machine.scheduler.pump()
    machine.scheduler.given_up()
    assert machine.scheduler.running == 0
    assert machine.batcher.estimated_wait_s(1) == pytest.approx(0.002)
    assert machine.batcher.refusal(1) is None


def test_a_model_that_used_less_is_not_overtaken_by_the_full_batch_of_another() -> None:
    machine = Machine(max_batch_size=2)
    other = machine.model(max_batch_size=2)
    machine.batcher.expect(0.01)
    machine.submit(2)
    machine.scheduler.pump()
    machine.submit(2)
    machine.submit(1, other)
    machine.scheduler.pump()
    assert not machine.offered
    machine.finish(0)
    assert machine.started[1][0] is other
