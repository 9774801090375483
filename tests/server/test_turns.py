"""`Turns`: tenants that ask at the same time have the event loop in turn."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from math import inf
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import EdgeInferError, OverShare, QueueFull
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings
from edge_infer.server.errors import ModelHangs
from edge_infer.server.http import turns as turns_file
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.turns import Turns
from edge_infer.server.ingestion import tenant_bounds
from edge_infer.server.ingestion.admission import Call
from edge_infer.server.ingestion.api_keys import ApiKeys
from edge_infer.server.ingestion.tenant_bounds import TenantBounds
from edge_infer.server.scheduling.batcher import BatchLimits, DynamicBatcher
from edge_infer.server.scheduling.shares import Tenant
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import OCTETS, Client, row

if TYPE_CHECKING:
    from pathlib import Path

TENANTS = {Tenant("a"): b"a", Tenant("b"): b"b", Tenant("heavy", weight=4.0): b"heavy"}


def of(key: bytes, start: float = 0.0, url: bytes = b"/v2/models/a/infer") -> Any:
    """A request, as far as `Turns` knows it."""
    return SimpleNamespace(headers=[(b"x-api-key", key)] if key else [], start=start, tenant=None, url=url)


class Asked:
    """Requests that are asked at once, and the order in which they begin."""

    def __init__(self) -> None:
        self.bounds = TenantBounds(perf_counter)
        self.turns = Turns(ApiKeys({tenant: [sha256(key).digest()] for tenant, key in TENANTS.items()}), self.bounds)
        self.begun: list[bytes] = []

    def ask(self, key: bytes, count: int, start: float = 0.0, *, is_left: bool = False) -> None:
        def begin() -> bool:
            self.begun += [] if is_left else [key]
            return not is_left

        for _ in range(count):
            if not self.turns.defer_request(of(key, start), begin):
                begin()

    async def passes(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)


def test_who_asks_alone_waits_for_nobody() -> None:
    asked = Asked()
    asked.ask(b"a", 100)
    assert asked.begun == [b"a"] * 100


def test_tenants_begin_in_turn_whatever_the_number_of_their_requests() -> None:
    async def run() -> Asked:
        asked = Asked()
        asked.ask(b"b", 1)
        asked.ask(b"a", 40)
        asked.ask(b"b", 7)
        await asked.passes(4)
        assert asked.begun.count(b"b") == 8
        assert abs(asked.begun.count(b"a") - 8) <= 2
        await asked.passes(40)
        return asked

    assert asyncio.run(run()).begun.count(b"a") == 40


def test_weights_count() -> None:
    async def run() -> list[bytes]:
        asked = Asked()
        asked.ask(b"heavy", 1)
        asked.ask(b"a", 100)
        asked.ask(b"heavy", 99)
        await asked.passes(40)
        return list(asked.begun)

    begun = asyncio.run(run())
    assert begun.count(b"heavy") == pytest.approx(4 * begun.count(b"a"), rel=0.2)


def test_requests_without_a_known_key_have_one_line() -> None:
    async def run() -> list[bytes]:
        asked = Asked()
        asked.ask(b"a", 1)
        for number in range(40):
            asked.ask(b"unknown %d" % number, 1)
        asked.ask(b"a", 7)
        await asked.passes(4)
        return list(asked.begun)

    begun = asyncio.run(run())
    assert begun.count(b"a") == 8
    assert len(begun) <= 8 + 10


def test_health_does_not_wait_behind_requests_without_a_key() -> None:
    async def run() -> list[bytes]:
        asked = Asked()
        asked.ask(b"a", 1)
        asked.ask(b"", 100)
        assert not asked.turns.defer_request(of(b"", url=b"/health?a=1"), lambda: True)
        assert asked.turns.defer_request(of(b"", url=b"/healthy"), lambda: True)
        return list(asked.begun)

    assert asyncio.run(run()).count(b"") < 100


def test_requests_that_were_answered_meanwhile_cost_no_turn() -> None:
    async def run() -> list[bytes]:
        asked = Asked()
        asked.ask(b"b", 1)
        asked.ask(b"a", 5)
        asked.ask(b"a", 50, is_left=True)
        asked.ask(b"a", 1)
        await asked.passes(3)
        return list(asked.begun)

    assert asyncio.run(run()).count(b"a") == 6


def test_a_tenant_that_asks_no_more_leaves_the_loop_to_the_others() -> None:
    async def run() -> list[bytes]:
        asked = Asked()
        asked.ask(b"b", 1)
        asked.ask(b"a", 1, start=1.0)  # b asked a second ago
        asked.ask(b"a", 50, start=1.0)
        return list(asked.begun)

    assert asyncio.run(run()).count(b"a") == 51


def test_answers_go_before_requests() -> None:
    async def run() -> list[str]:
        asked, order = Asked(), []

        def do(what: str) -> bool:
            order.append(what)
            return True

        asked.ask(b"b", 1)
        asked.ask(b"a", 5)
        for what in ("request", "request"):
            assert asked.turns.defer_request(of(b"a"), partial(do, what))
        assert asked.turns.defer_answer(Tenant("a"), partial(do, "answer"))
        await asked.passes(6)
        return order

    assert asyncio.run(run()) == ["answer", "request", "request"]


def test_who_was_refused_pauses_while_others_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_bounds, "_PAUSE_S", 60.0)

    async def run() -> tuple[list[bytes], list[bytes]]:
        asked, now = Asked(), perf_counter()
        asked.bounds.refused(Tenant("a"))
        asked.ask(b"a", 5, start=now)
        alone = list(asked.begun)
        asked.ask(b"b", 1, start=now)
        asked.ask(b"a", 5, start=now)
        await asked.passes(20)
        asked.ask(b"b", 1, start=now)
        return alone, asked.begun

    alone, begun = asyncio.run(run())
    assert alone == [b"a"] * 5
    assert begun == [*alone, b"b", b"b"]


def test_a_pause_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_bounds, "_PAUSE_S", 0.05)

    async def run() -> float:
        asked, now, begun = Asked(), perf_counter(), asyncio.Event()
        asked.ask(b"b", 1, start=now)
        asked.bounds.refused(Tenant("a"))

        def begin() -> bool:
            begun.set()
            return True

        assert asked.turns.defer_request(of(b"a", now), begin)
        await begun.wait()
        return perf_counter() - now

    assert asyncio.run(run()) >= 0.05


def test_a_request_waits_a_second_for_the_pauses_of_its_tenant_and_so_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_bounds, "_PAUSE_S", 60.0)
    monkeypatch.setattr(turns_file, "_MOST_PAUSED", 10)

    async def run() -> tuple[int, int]:
        asked, now = Asked(), perf_counter()
        asked.ask(b"b", 1, start=now)
        asked.bounds.refused(Tenant("a"))
        asked.ask(b"a", 30, start=now)
        await asked.passes(40)
        at_once = asked.begun.count(b"a")
        asked.ask(b"a", 3, start=now - 1.0)  # behind those that came later, as those of other connections may be
        monkeypatch.setattr(turns_file, "_LONGEST_PAUSE_S", 0.0)
        await asked.passes(40)
        return at_once, asked.begun.count(b"a")

    assert asyncio.run(run()) == (20, 33)


class Served(Asked):
    """Requests of a model for which so many under way are enough; each is under way until `end`."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self.enough = enough
        self.parts: list[tuple[Tenant, int]] = []

    def serve(self, key: bytes, count: int) -> None:
        tenant = next(one for one, of_it in TENANTS.items() if of_it == key)

        def begin() -> bool:
            self.begun.append(key)
            self.parts.append((tenant, self.bounds.begin(tenant, self.enough)))
            return True

        for _ in range(count):
            if not self.turns.defer_request(of(key, perf_counter()), begin):
                begin()

    def end(self, name: str) -> None:
        found = next(one for one in self.parts if one[0].name == name)
        self.parts.remove(found)
        self.bounds.end(*found)


def test_a_flood_has_no_more_under_way_than_another_asks_for() -> None:
    async def run() -> Served:
        asked = Served(enough=4)
        asked.serve(b"b", 1)
        asked.serve(b"a", 40)
        await asked.passes(40)
        assert asked.bounds.under_way == {"a": 4, "b": 1}
        asked.serve(b"b", 5)
        asked.serve(b"heavy", 1)
        await asked.passes(40)
        assert asked.bounds.under_way == {"a": 6, "b": 6, "heavy": 1}
        for _ in range(8):
            asked.end("a")
            await asked.passes(3)
        assert asked.bounds.under_way == {"a": 6, "b": 6, "heavy": 1}
        return asked

    assert asyncio.run(run()).begun.count(b"a") == 6 + 8


def test_a_greater_weight_may_have_more_under_way() -> None:
    async def run() -> dict[str, int]:
        asked = Served(enough=4)
        asked.serve(b"b", 3)
        asked.serve(b"heavy", 40)
        await asked.passes(40)
        return dict(asked.bounds.under_way)

    assert asyncio.run(run()) == {"b": 3, "heavy": 12}


def test_who_is_alone_has_everything_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_file, "_ASKS_S", 0.0)

    async def run() -> dict[str, int]:
        asked = Served(enough=4)
        asked.serve(b"b", 1)
        asked.end("b")
        asked.serve(b"a", 40)
        await asked.passes(40)
        return dict(asked.bounds.under_way)

    assert asyncio.run(run()) == {"a": 40}


def test_what_nothing_is_known_of_is_not_bounded() -> None:
    bounds = TenantBounds(perf_counter)
    assert bounds.begin(Tenant("a"), inf) == 0
    assert not bounds.under_way
    assert DynamicBatcher().enough(workers=2) == inf


@pytest.mark.parametrize(
    ("batch_s", "rows", "enough"),
    [(0.0001, 32, 4), (0.003, 32, 40), (0.02, 32, 128), (0.02, 1, 4), (0.02, 4, 16)],
    ids=["quicker than the loop", "as the loop", "slow", "one by one", "small batches"],
)
def test_enough_fills_the_batches_that_run_and_those_that_are_next(batch_s: float, rows: int, enough: float) -> None:
    batcher = DynamicBatcher(BatchLimits(max_batch_size=rows))
    batcher.expect(batch_s)
    assert batcher.enough(workers=2) == pytest.approx(enough)


def test_a_request_waits_a_second_for_those_that_its_tenant_has_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_file, "_LONGEST_PAUSE_S", 0.05)

    async def run() -> None:
        asked = Served(enough=1)
        asked.serve(b"b", 1)
        asked.serve(b"a", 2)
        assert asked.bounds.under_way["a"] == 1
        while asked.bounds.under_way["a"] == 1:  # nothing ends: the timer alone lets it begin
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize(
    ("error", "pauses"), [(QueueFull("full"), True), (OverShare("often"), True), (ModelHangs("hangs"), False)]
)
def test_a_model_that_is_out_of_order_pauses_nobody(error: EdgeInferError, pauses: bool) -> None:
    bounds = TenantBounds(perf_counter)
    context: Any = SimpleNamespace(bounds=bounds, ledger=SimpleNamespace(rejected=lambda *_: None))
    Call(context, "/v2/models/a/infer", tenant=Tenant("a")).rejected(error)
    assert (bounds.paused_until("a") > 0) is pauses


def test_frames_of_websockets_begin_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_file, "_ASKS_S", 60.0)

    async def run() -> list[str]:
        asked, order = Asked(), []

        async def frames(tenant: Tenant, count: int) -> None:
            for _ in range(count):
                await asked.turns.wait(tenant)
                order.append(tenant.name)

        asked.ask(b"b", 1, start=perf_counter())
        streams = [asyncio.create_task(frames(Tenant("a"), 10)) for _ in range(20)]
        cancelled = asyncio.create_task(frames(Tenant("a"), 10))
        await asyncio.sleep(0)
        cancelled.cancel()
        other = asyncio.create_task(frames(Tenant("b"), 10))
        await other
        assert len(order) < 60
        await asyncio.gather(*streams)
        return order

    assert asyncio.run(run()).count("a") == 200


def test_a_request_that_fails_in_its_turn_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[bytes]:
        asked = Asked()

        def failing() -> bool:
            raise ValueError("broken")

        asked.ask(b"b", 1)
        asked.ask(b"a", 4)
        assert asked.turns.defer_request(of(b"a"), failing)
        asked.ask(b"a", 4)
        await asked.passes(10)
        return list(asked.begun)

    assert asyncio.run(run()).count(b"a") == 8
    assert "A request failed in its turn" in caplog.text


def test_requests_that_wait_for_their_turn_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_file, "_A_PASS", 0.2)
    monkeypatch.setattr(turns_file, "_ASKS_S", 60.0)
    settings = Settings(tenants={tenant: [sha256(key).digest()] for tenant, key in TENANTS.items()})
    path = write_bundle(tmp_path / "tiny", bundle_files())
    app = create_app({"tiny": path}, settings=settings, limits=Limits(batch=BatchLimits(max_wait_ms=1e6, max_rows=0)))
    with ServerThread(app) as server:
        send = Client(server.url)

        def ask(number: int) -> bool:
            key = ("a", "b", "unknown")[number % 3]
            rows = 30_000 if number % 5 == 0 else 3  # 360 kB arrive in pieces
            path = f"/v2/models/tiny/infer{'?a=b' if number % 2 else ''}"
            answer = send(path, "POST", row(float(number), rows), content_type=OCTETS, X_Api_Key=key)
            assert answer.status == (401 if key == "unknown" else 200), answer.body
            return key == "unknown" or answer.body == row(float(number), rows)

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(ask, range(60)))
            assert not app.direct.context.bounds.under_way
