"""The queue's order, bounds and ageing, on a clock that stands still unless told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import DeadlineExceeded, QueueFull
from edge_infer.server.errors import ClientLeft
from edge_infer.server.scheduling.queue import RequestQueue
from edge_infer.server.scheduling.request import Request, too_late
from tests.support.server.waiting import Waiting


def drained(queue: RequestQueue, now: float = 0.0) -> list[Request]:
    found = []
    while head := queue.first(now):
        found += queue.take(head[0], 1, now)
    return found


def test_equal_requests_leave_in_the_order_of_their_arrival() -> None:
    queue = RequestQueue()
    requests = [Waiting(arrived=i / 1000) for i in range(5)]
    for request in requests:
        queue.push(request)
    assert drained(queue) == requests


def test_the_most_urgent_leaves_first() -> None:
    queue = RequestQueue()
    low, default, high = Waiting(priority=255), Waiting(), Waiting(priority=1)
    for request in (low, default, high):
        queue.push(request)
    assert drained(queue) == [high, default, low]


def test_nobody_waits_for_ever() -> None:
    """Under a flood of the most urgent, the least urgent leaves once it is 2.54 s older than the newest."""
    queue = RequestQueue(step_s=0.01)
    low = Waiting(priority=255)
    queue.push(low)
    for i in range(300):
        now = i / 100
        queue.push(Waiting(priority=1, arrived=now))
        head = queue.first(now)
        assert head is not None
        if queue.take(head[0], 1, now) == [low]:
            assert 2.5 < now < 2.6
            return
    pytest.fail("the least urgent request starved")


def test_a_full_queue_refuses() -> None:
    queue = RequestQueue(max_size=2)
    queue.push(Waiting())
    assert queue.has_room()
    queue.push(Waiting())
    assert not queue.has_room()
    with pytest.raises(QueueFull, match="2 requests wait already"):
        queue.push(Waiting())
    with pytest.raises(QueueFull):
        queue.push(Waiting(priority=200))


def test_an_urgent_request_takes_the_place_of_the_least_urgent() -> None:
    queue = RequestQueue(max_size=3)
    waiting = [Waiting(priority=200), Waiting(priority=250), Waiting(arrived=1)]
    for request in waiting:
        queue.push(request)
    urgent = Waiting(priority=1)
    assert queue.has_room(1)
    queue.push(urgent)
    assert [isinstance(request.result, QueueFull) for request in waiting] == [False, True, False]
    assert len(queue) == 3
    assert queue.rows == 3
    assert drained(queue, 1)[0] is urgent


def test_urgent_requests_do_not_displace_one_another() -> None:
    queue = RequestQueue(max_size=1)
    queue.push(Waiting(priority=1))
    with pytest.raises(QueueFull):
        queue.push(Waiting(priority=1))


def test_what_comes_too_late_is_dropped() -> None:
    queue = RequestQueue()
    late, in_time = Waiting(deadline=1.0), Waiting(deadline=3.0)
    queue.push(late)
    queue.push(in_time)
    assert drained(queue, now=2.0) == [in_time]
    assert isinstance(late.result, DeadlineExceeded)
    assert late.result.timeout_ms == 1000


def test_requests_whose_client_left_are_dropped() -> None:
    queue = RequestQueue()
    gone, behind = Waiting(is_gone=lambda: True), Waiting(is_gone=lambda: False)
    queue.push(gone)
    queue.push(behind)
    assert drained(queue) == [behind]
    assert queue.rows == len(queue) == 0
    assert isinstance(gone.result, ClientLeft)


def test_who_is_removed_waits_no_more_and_the_others_keep_their_order() -> None:
    queue = RequestQueue(max_size=8)
    requests = [Waiting(arrived=i / 1000, rows=2, key="a" if i % 3 else None) for i in range(8)]
    for request in requests:
        queue.push(request)
    for i in (1, 3, 4):
        assert queue.remove(requests[i])
        assert not queue.remove(requests[i])
    assert (len(queue), queue.rows) == (5, 10)
    assert queue.has_room()
    assert drained(queue) == [requests[i] for i in (0, 2, 5, 6, 7)]


def test_who_got_its_answer_meanwhile_is_not_put_back() -> None:
    queue = RequestQueue()
    late, other = Waiting(), Waiting(arrived=0.1)
    for request in (late, other):
        queue.push(request)
    taken = queue.set_aside("same", 8, 1)
    assert (taken, len(queue), queue.rows) == ([late, other], 2, 2)
    late.answer(DeadlineExceeded("late"))
    queue.count_out(taken)
    queue.put_back(taken)
    assert (len(queue), queue.rows) == (1, 1)
    assert drained(queue, 1) == [other]


def test_only_the_first_answer_counts_and_one_that_is_not_taken_raises_nothing() -> None:
    def fail(_: object) -> None:
        raise OSError("No space left on device")

    request = Waiting()
    request.answer(QueueFull("full"))
    request.answer(DeadlineExceeded("late"))
    assert isinstance(request.result, QueueFull)
    request = Waiting()
    request.finish = fail
    request.answer(DeadlineExceeded("late"))


def test_only_equal_keys_leave_together() -> None:
    queue = RequestQueue()
    a, b, c = Waiting(key="a"), Waiting(key="b", arrived=0.1), Waiting(key="a", arrived=0.2)
    for request in (a, b, c):
        queue.push(request)
    head = queue.first(1)
    assert head is not None
    assert queue.take(head[0], 8, 1) == [a, c]
    assert drained(queue, 1) == [b]


def test_a_request_without_a_key_leaves_alone() -> None:
    queue = RequestQueue()
    queue.push(Waiting(key=None))
    queue.push(Waiting(key=None))
    head = queue.first(0)
    assert head is not None
    assert len(queue.take(head[0], 8, 0)) == 1


def test_a_request_larger_than_a_batch_leaves_alone_too() -> None:
    queue = RequestQueue()
    large, small = Waiting(rows=100), Waiting(arrived=0.1)
    queue.push(large)
    queue.push(small)
    assert queue.take("same", 8, 1) == [large]
    assert queue.take("same", 8, 1) == [small]


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.integers(0, 255), st.integers(1, 9), st.sampled_from(["a", "b", None])),
        max_size=40,
    ),
    st.integers(1, 16),
)
def test_every_request_leaves_once_and_no_batch_is_too_large(
    requests: list[tuple[float, int, int, str | None]], max_rows: int
) -> None:
    queue = RequestQueue()
    pushed = [Waiting(arrived=at, priority=level, rows=rows, key=key) for at, level, rows, key in requests]
    for request in pushed:
        queue.push(request)
    left: list[Request] = []
    while head := queue.first(20):
        batch = queue.take(head[0], max_rows, 20)
        assert len({request.key for request in batch}) == 1
        assert len(batch) == 1 or sum(request.rows for request in batch) <= max_rows
        left += batch
    assert sorted(map(id, left)) == sorted(map(id, pushed))
    assert len(queue) == queue.rows == 0


@pytest.mark.parametrize(("timeout_s", "text"), [(1e-6, "0.001"), (0.02, "20"), (1.5, "1500"), (3600.0, "3600000")])
def test_a_timeout_is_told_as_it_was_given(timeout_s: float, text: str) -> None:
    assert too_late(timeout_s).message == f"No answer within {text} ms, the timeout of the request"
