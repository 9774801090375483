"""The cache of answers, by itself and in a running server."""

from __future__ import annotations

import gc
import json
import re
import socket
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import ExecutionError
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution import job
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.ingestion import infer
from edge_infer.server.response.cache import ENTRY_BYTES, ResultCache
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import OCTETS, Client, ask, row
from tests.support.server.gate import Gate, limits, wait_until_queued
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "tiny", bundle_files())


def test_the_cache_forgets_by_age_and_by_use() -> None:
    now = [0.0]
    cache: ResultCache[None] = ResultCache(2 * ENTRY_BYTES + 10, 5.0, lambda: now[0])
    a, b, c = (cache.key(text, "form") for text in (b"a", b"b", b"c"))
    assert len({a, b, c, cache.key(b"a", "other")}) == 4
    cache.put(a, (b"1234",), ())
    cache.put(b, (b"1234",), ())
    assert cache.get(a) is not None
    cache.put(c, (b"1234",), ())
    assert cache.get(b) is None
    assert cache.get(a) is not None
    cache.put(b, (b"x" * (ENTRY_BYTES + 11),), ())
    assert cache.get(b) is None
    now[0] = 5.0
    assert cache.get(a) is None
    assert cache.get(c) is None
    assert len(cache) == 0


def test_what_many_small_answers_take_is_near_what_they_are_counted_as() -> None:
    cache: ResultCache[None] = ResultCache(2**20, 60.0, lambda: 0.0)
    tracemalloc.start()
    for i in range(10_000):
        headers = ((b"content-type", b"%d" % i), (b"tensor-shape", b"%d" % i))
        cache.put(cache.key(b"%d" % i), (b"%d" % i,), headers)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 100 < len(cache) < 10_000
    assert 0.5 * 2**20 < taken < 1.2 * 2**20


def test_a_model_that_is_unloaded_leaves_nothing_behind(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, limits=Limits(cache_bytes=10_000))
    with ServerThread(app) as server:
        assert ask(server).status == 200
        model = weakref.ref(app.engine.active()[0])
        assert Client(server.url)("/v2/repository/models/tiny/unload", "POST", b"{}").status == 200
        end = perf_counter() + 30
        while model() is not None and perf_counter() < end:  # a worker may not have left its last batch yet
            gc.collect()
        assert model() is None


def test_identical_requests_run_once_where_there_is_a_cache(tiny: Path, gate: Gate) -> None:
    with (
        ServerThread(create_app({"tiny": tiny}, limits=Limits(workers=1, cache_bytes=10_000))) as server,
        ThreadPoolExecutor(4) as threads,
    ):
        asked = [threads.submit(ask, server, 4.0) for _ in range(3)]
        assert gate.entered.wait(60)
        other = threads.submit(ask, server, 5.0)
        wait_until_queued(server, 1)
        gate.open.set()
        assert [future.result().body for future in asked] == [row(4.0)] * 3
        assert other.result().body == row(5.0)
        assert ask(server, 4.0).body == row(4.0)
        metrics = Client(server.url)("/metrics").body.decode()
    assert sorted(gate.values) == [4.0, 5.0]
    counts = {name: int(float(value)) for name, value in re.findall(r"edge_infer_(\w+)_total\{.*\} (\S+)", metrics)}
    assert counts["cache_misses"] == 2
    assert counts["cache_hits"] + counts["coalesced"] == 3


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """An entry for each time that a request begins to wait for an identical one."""
    seen: list[bool] = []
    led = infer._led

    async def note(*arguments: Any) -> Any:
        seen.append(True)
        return await led(*arguments)

    monkeypatch.setattr(infer, "_led", note)
    return seen


def test_an_identical_request_waits_no_longer_than_its_own_timeout(tiny: Path, gate: Gate) -> None:
    app = create_app({"tiny": tiny}, limits=Limits(workers=1, cache_bytes=10_000))
    with ServerThread(app) as server, ThreadPoolExecutor(1) as threads:
        first = threads.submit(ask, server, 4.0)
        assert gate.entered.wait(60)
        late = ask(server, 4.0, x_timeout_ms="20")  # the gate is closed still
        assert (late.status, json.loads(late.body)["details"]) == (504, {"timeout_ms": 20})
        gate.open.set()
        assert first.result().body == row(4.0)


def test_one_of_those_that_waited_runs_where_the_first_one_left(tiny: Path, gate: Gate, following: list[bool]) -> None:
    app = create_app({"tiny": tiny}, limits=limits()._replace(cache_bytes=10_000))
    head = f"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n"
    with ServerThread(app) as server, ThreadPoolExecutor(4) as threads:
        before = threads.submit(ask, server, 9.0)
        assert gate.entered.wait(60)
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
            connection.sendall(head.encode() + row(4.0))
            wait_until_queued(server, 1)
            others = [threads.submit(ask, server, 4.0) for _ in range(3)]
            wait_until(lambda: len(following) >= 3)
        for _ in range(2):  # its loop sees the closed connection before it answers what comes after
            assert Client(server.url)("/livez").status == 200
        gate.open.set()
        assert [one.result().body for one in (before, *others)] == [row(9.0), *[row(4.0)] * 3]
    assert gate.values == [9.0, 4.0]


def test_identical_requests_that_fail_run_once(
    tiny: Path, following: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, opened = [], Event()

    def fail(_session: Any, batch: Any) -> Any:
        runs.append(len(batch.requests))
        assert opened.wait(60)
        return [ExecutionError("It is broken", hint="mend it")] * len(batch.requests)

    monkeypatch.setattr(job, "run_batch", fail)
    app = create_app({"tiny": tiny}, limits=Limits(workers=1, cache_bytes=10_000))
    with ServerThread(app) as server, ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, server, 4.0) for _ in range(3)]
        wait_until(lambda: len(following) >= 2)
        opened.set()
        assert [json.loads(one.result().body)["error"] for one in asked] == ["It is broken"] * 3
        assert runs == [1]
        assert ask(server, 4.0).status == 500
    assert runs == [1, 1]


def test_a_request_that_fails_is_not_kept(tiny: Path) -> None:
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(cache_bytes=10_000))) as server:
        send = Client(server.url)
        for _ in range(2):
            assert send("/v2/models/tiny/infer", "POST", b"123", content_type=OCTETS).status == 400
        assert (
            'edge_infer_cache_misses_total{model="tiny",pool="default",version="1"} 2.0'
            in send("/metrics").body.decode()
        )
