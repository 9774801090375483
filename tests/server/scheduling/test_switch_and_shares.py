"""When the fast variant takes over, and what is fair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import OverShare, QueueFull
from edge_infer.server.scheduling.batcher import BatchLimits, DynamicBatcher
from edge_infer.server.scheduling.request import Request
from edge_infer.server.scheduling.shares import Shares, Tenant
from edge_infer.server.scheduling.switch import VariantSwitch

BIG, SMALL = Tenant("big", 3.0), Tenant("small", 1.0)


def test_the_fast_variant_comes_at_once_and_goes_after_a_calm_time() -> None:
    switch = VariantSwitch(up_batches=2.0, down_batches=0.5, calm_s=2.0)
    assert not switch.update(1.9, 0.0)
    assert switch.update(2.0, 0.1)
    assert switch.update(0.0, 2.0)
    assert switch.update(0.6, 2.05)  # not calm: the time begins anew
    assert switch.update(0.0, 4.0)
    assert not switch.update(0.0, 4.1)
    assert switch.switches == 2


@given(st.lists(st.floats(0.51, 1.99), max_size=50))
def test_a_load_between_the_two_marks_changes_nothing(loads: list[float]) -> None:
    good, fast = VariantSwitch(), VariantSwitch()
    fast.update(5.0, 0.0)
    for i, load in enumerate(loads):
        assert not good.update(load, float(i))
        assert fast.update(load, float(i))


class Asked:
    """A request of a tenant, and what became of it."""

    def __init__(self, tenant: Tenant, arrived: float = 0.0, priority: int = 0) -> None:
        self.results: list[object] = []
        self.request = Request(
            {}, None, key="k", arrived=arrived, finish=self.results.append, tenant=tenant, priority=priority
        )


def batcher(size: int = 8, batch_s: float = 0.01) -> DynamicBatcher:
    made = DynamicBatcher(BatchLimits(max_batch_size=1, max_queue_size=size, max_wait_ms=1e6))
    made.expect(batch_s)
    return made


def order(made: DynamicBatcher) -> list[str]:
    names = []
    while (batch := made.take(1e3, is_idle=True)) is not None:
        names.append(batch.requests[0].tenant.name)
    return names


def test_tenants_take_turns_by_their_weights() -> None:
    made = batcher(size=100)
    for _ in range(12):
        made.submit(Asked(BIG).request)
        made.submit(Asked(SMALL).request)
    names = order(made)
    assert 8 <= names[:12].count("big") <= 10
    assert names.count("small") == 12


def test_who_comes_late_need_not_wait_behind_a_flood() -> None:
    made = batcher(size=100)
    for _ in range(50):
        made.submit(Asked(BIG).request)
    made.submit(Asked(SMALL, arrived=0.001).request)
    assert order(made).index("small") <= 5


def test_a_flood_of_urgent_requests_takes_nothing_of_another_tenants_share() -> None:
    made = batcher(size=200)
    even = Tenant("even")
    for step in range(50):
        made.submit(Asked(even, arrived=step / 1000).request)
        made.submit(Asked(SMALL, arrived=step / 1000, priority=1).request)
    names = order(made)
    assert 9 <= names[:20].count("even") <= 11


def test_an_urgent_request_goes_before_the_others_of_its_tenant() -> None:
    made = batcher(size=100)
    for step in range(5):
        made.submit(Asked(BIG, arrived=step / 1000).request)
        made.submit(Asked(SMALL, arrived=step / 1000).request)
    urgent, less = Asked(SMALL, arrived=0.006, priority=1), Asked(SMALL, arrived=0.007, priority=20)
    made.submit(urgent.request)
    made.submit(less.request)

    taken: list[Request] = []
    while (batch := made.take(1e3, is_idle=True)) is not None:
        taken += batch.requests
    small = [request for request in taken if request.tenant.name == "small"]
    assert small[:2] == [urgent.request, less.request]
    assert [request.arrived for request in small[2:]] == [step / 1000 for step in range(5)]
    assert taken[0].tenant.name == "big"


def test_an_urgent_request_pushes_out_its_own_tenants_only() -> None:
    made = batcher(size=4)
    others = [Asked(BIG) for _ in range(2)]
    own = [Asked(SMALL), Asked(SMALL, priority=200)]
    for one in (*others, *own):
        made.submit(one.request)

    assert made.queue.has_room(1, SMALL)
    made.submit(Asked(SMALL, priority=1).request)

    assert [len(one.results) for one in (*others, *own)] == [0, 0, 0, 1]


def test_no_urgent_request_of_a_tenant_takes_a_worker_more() -> None:
    made = batcher()
    made.submit(Asked(SMALL, priority=1).request)
    assert made.take_urgent(1e3) is None
    assert made.take(1e3, is_idle=True) is not None


@given(
    asked=st.lists(
        st.tuples(st.sampled_from([BIG, SMALL, Tenant("even")]), st.sampled_from([0, 1, 64, 200])), max_size=40
    )
)
def test_priorities_move_no_turn_from_one_tenant_to_another(asked: list[tuple[Tenant, int]]) -> None:
    plain, urgent = batcher(size=100), batcher(size=100)
    for step, (tenant, priority) in enumerate(asked):
        plain.submit(Asked(tenant, arrived=step / 1000).request)
        urgent.submit(Asked(tenant, arrived=step / 1000, priority=priority).request)
    assert order(urgent) == order(plain)


def test_who_is_alone_may_have_everything() -> None:
    made = batcher(size=8)
    for _ in range(7):
        assert made.refusal(1, tenant=SMALL) is None
        made.submit(Asked(SMALL).request)
    assert made.refusal(1, tenant=SMALL) is None


def test_over_its_share_a_tenant_is_refused_while_others_wait() -> None:
    made = batcher(size=8)
    for _ in range(5):
        made.submit(Asked(BIG).request)
    for _ in range(2):
        made.submit(Asked(SMALL).request)
    refusal = made.refusal(1, tenant=SMALL)
    assert isinstance(refusal, OverShare)
    assert (refusal.expected, refusal.got) == (2, 2)
    assert made.refusal(1, tenant=BIG) is None


def test_what_waits_in_a_batch_that_was_formed_ahead_counts_for_its_tenant() -> None:
    made = batcher(size=4)
    big = Tenant("big", 1.0)
    for tenant in (big, big, SMALL, SMALL):
        made.submit(Asked(tenant).request)
    ahead = [made.set_aside(1e3), made.set_aside(1e3)]
    assert {one.requests[0].tenant.name for one in ahead if one is not None} == {"big", "small"}
    assert isinstance(made.refusal(1, tenant=SMALL), OverShare)
    assert isinstance(made.refusal(1, tenant=big), OverShare)
    for one in ahead:
        assert one is not None
        made.queue.count_out(one.requests)
    assert made.refusal(1, tenant=SMALL) is None


def test_who_waits_in_such_batches_alone_cannot_give_way() -> None:
    made = batcher(size=2)
    for _ in range(2):
        made.submit(Asked(BIG).request)
        made.set_aside(1e3)
    assert isinstance(made.refusal(1, tenant=SMALL), QueueFull)
    with pytest.raises(QueueFull):
        made.submit(Asked(SMALL).request)


def test_a_flood_that_filled_the_queue_gives_way_to_who_has_less_than_its_share() -> None:
    made = batcher(size=8)
    flood = [Asked(BIG) for _ in range(8)]
    for one in flood:
        made.submit(one.request)
    assert made.refusal(1, tenant=SMALL) is None
    made.submit(Asked(SMALL).request)
    refused = [one for one in flood if one.results]
    assert len(refused) == 1
    assert refused[0] is flood[-1]
    assert isinstance(refused[0].results[0], OverShare)
    assert len(made) == 8


@given(st.lists(st.tuples(st.sampled_from([BIG, SMALL]), st.booleans()), max_size=60))
def test_counts_of_who_waits_never_drift(steps: list[tuple[Tenant, bool]]) -> None:
    shares, waiting = Shares(10), {"big": 0, "small": 0}
    for tenant, comes in steps:
        if comes:
            shares.added(tenant)
            waiting[tenant.name] += 1
        elif waiting[tenant.name]:
            shares.removed(tenant)
            waiting[tenant.name] -= 1
    assert shares._waiting == {name: count for name, count in waiting.items() if count}
    both = shares.part(BIG) + shares.part(SMALL)
    assert both >= 1.0
