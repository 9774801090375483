"""A process that is killed while it writes leaves the index as it was before or after."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import edge_infer
from tests.support.soak import rounds
from tests.support.vectors import made

if TYPE_CHECKING:
    from pathlib import Path

_WRITER = """
import sys, edge_infer
from edge_infer.vectors.plain import Plain
index = edge_infer.Index.open(sys.argv[1])
index._arithmetic = Plain()
print("open", flush=True)
while True:
    index.add([[1, 2, 3]] * 20, texts=["some words"] * 20)
    index.delete(list(index.ids())[:10])
    if len(index) > 60:
        index.compact()
"""


def kill_writers(path: Path, times: int) -> int:
    """Kill writers, each at another moment, and count how often the index changed before."""
    edge_infer.Index.create(path, 3)
    rng, changed, before = random.Random(1), 0, 0
    for _ in range(times):
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"open\n"
            time.sleep(rng.uniform(0, 0.1))
            writer.kill()
        index = edge_infer.Index.open(path)
        # Each step adds 20 entries or deletes 10: anything between is half a step.
        assert len(index) % 10 == 0
        assert all(index.get(number) for number in index.ids())
        state = hash(frozenset(made.files(path).items()))
        changed, before = changed + (state != before), state
    index.compact()
    assert {one.name for one in path.iterdir()} <= {"index.json", "segments", "deleted", ".lock"}
    assert len([*(path / "segments").iterdir()]) <= 1
    return changed


def test_a_killed_writer_leaves_the_old_or_the_new_index(tmp_path: Path) -> None:
    assert kill_writers(tmp_path / "a.index", 4) > 1


@pytest.mark.long
def test_many_killed_writers_leave_the_old_or_the_new_index(tmp_path: Path) -> None:
    times = rounds(30, 100)

    assert kill_writers(tmp_path / "a.index", times) > times // 2
