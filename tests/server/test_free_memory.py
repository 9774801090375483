"""`FreeMemory`: what is free is given back where it is much more than what requests hold."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from typing import Any

import pytest

from edge_infer.platform import allocator
from edge_infer.server.http import free_memory
from edge_infer.server.http.free_memory import FreeMemory
from edge_infer.server.metrics.memory import resident_bytes

MB = 2**20


def looks(
    monkeypatch: pytest.MonkeyPatch, seen: list[tuple[int, int]], freed: int, ends: list[Any] | None = None
) -> list[int]:
    """At which of the looks memory is given back, for MB that are resident and held; giving back frees so many."""
    now, given, ends = [0], [], [] if ends is None else ends

    def give() -> None:
        given.append(now[0])
        seen[now[0]] = (seen[now[0]][0] - freed, seen[now[0]][1])

    monkeypatch.setattr(free_memory, "return_free_memory", give)
    monkeypatch.setattr(free_memory, "resident_bytes", lambda: seen[now[0]][0] * MB)
    memory = FreeMemory(lambda: seen[now[0]][1] * MB, ends.append)
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


def test_threads_give_back_the_ends_of_their_heaps_once_requests_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = list[Any]()
    looks(monkeypatch, [(100, 0), (1200, 500), *[(200, 50)] * 6], 600, ends)
    assert ends == []
    looks(monkeypatch, [(100, 0), *[(200, 50)] * 6, *[(200, 0)] * 5], 95, ends)
    assert ends == [allocator.return_end_of_heap]


_HELD = """
import ctypes, sys, threading
from edge_infer.platform.allocator import return_end_of_heap, return_free_memory
from edge_infer.server.execution.workers import WorkerPool
from edge_infer.server.metrics.memory import resident_bytes

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
pool, done = WorkerPool(3), threading.Semaphore(0)

def everywhere(function):
    ran = set()
    while len(ran) < 3:  # on a busy machine one thread may take the turn of another
        pool.each(lambda: (function(), ran.add(threading.get_ident()), done.release()))
        for _ in range(3):
            done.acquire()

def work():
    library.free(library.malloc(20 << 20))  # mapped by itself: from now on no smaller block is
    block = library.malloc(16 << 20)
    ctypes.memset(block, 1, 16 << 20)
    library.free(block)

everywhere(work)
return_free_memory()
kept = resident_bytes()
everywhere(return_end_of_heap)
print((kept - resident_bytes()) / 2**20)
"""


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "malloc_trim"), reason="glibc alone has it")
def test_the_end_of_a_threads_heap_is_returned() -> None:
    """In a process of its own: it has one heap for each of its threads."""
    done = subprocess.run([sys.executable, "-c", _HELD], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 40


def test_where_there_is_no_such_function_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    allocator.return_free_memory()
    allocator.return_end_of_heap()
