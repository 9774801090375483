"""`FreeMemory`: what is free is given back where it is much more than what requests hold."""

from __future__ import annotations

import asyncio
import ctypes

import pytest

from edge_infer.platform import allocator
from edge_infer.server.http import free_memory
from edge_infer.server.http.free_memory import FreeMemory
from edge_infer.server.metrics.memory import resident_bytes

MB = 2**20


def looks(monkeypatch: pytest.MonkeyPatch, seen: list[tuple[int, int]], freed: int) -> list[int]:
    """At which of the looks memory is given back, for MB that are resident and held; giving back frees so many."""
    now, given = [0], []

    def give() -> None:
        given.append(now[0])
        seen[now[0]] = (seen[now[0]][0] - freed, seen[now[0]][1])

    monkeypatch.setattr(free_memory, "return_free_memory", give)
    monkeypatch.setattr(free_memory, "resident_bytes", lambda: seen[now[0]][0] * MB)
    memory = FreeMemory(lambda: seen[now[0]][1] * MB)
    for number in range(len(seen)):
        now[0] = number
        asyncio.run(memory.look())
    return given


def test_what_requests_hold_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, [(100, 0), (600, 500), (200, 0), (100, 0)], 0) == []


def test_what_is_kept_free_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, [(100, 0), (1200, 500), (1200, 0), (150, 0)], 600) == [1, 2]


def test_memory_that_does_not_go_back_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, [(100, 0), (900, 0), (900, 0), (950, 0)], 0) == [1]  # a model was loaded
    assert looks(monkeypatch, [(900, 0), (100, 0), (900, 0)], 800) == [2]  # and unloaded


def test_little_is_given_back_once_requests_hold_nothing_for_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [(100, 0), *[(200, 50)] * 6]
    assert looks(monkeypatch, [*busy, *[(200, 0)] * 4], 95) == [10]
    in_use = [(100, 0), (900, 500), *[(305, 0)] * 4, *[(210, 0)] * 8]  # what is in use at one look is free later
    assert looks(monkeypatch, in_use, 95) == [1, 5]
    assert looks(monkeypatch, [*busy, *[(200, 0)] * 3, (200, 50), *[(200, 0)] * 3], 95) == []
    assert looks(monkeypatch, [(100, 0)] * 5 + [(107, 0)] * 9, 7) == []


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "malloc_trim"), reason="glibc alone has it")
def test_free_memory_is_returned() -> None:
    blocks = [bytearray(b"a") * 100_000 for _ in range(1000)]  # below the size that is mapped by itself
    kept = blocks[::50]  # among those that are freed
    full = resident_bytes()
    del blocks
    allocator.return_free_memory()
    assert full - resident_bytes() > 50 * MB
    assert len(kept) == 20


def test_where_there_is_no_such_function_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    allocator.return_free_memory()
