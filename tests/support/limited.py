"""Run a command in a process of its own, with limits of time and memory, and tell what it took."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_GB = 10**9
# A process's peak is never below that of the one that starts it: a small one starts it, and tells how it ended.
_LAUNCH = """
import os, resource, sys
told, memory, *command = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
pid = os.posix_spawnp(command[0], command, os.environ)
_, status, used = os.wait4(pid, 0)
os.write(int(told), f"{status} {used.ru_maxrss} {used.ru_utime + used.ru_stime}".encode())
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    Attributes:
        code: Its exit status; below 0 the signal that ended it, negated.
        out: What it wrote to its standard output.
        err: What it wrote to its standard error.
        seconds: How long it took.
        processor_s: How long it used processors, whatever others did with them meanwhile; 0 where it was ended.
        peak_bytes: The most memory that it, or a process it waited for, held at once.
        is_late: Whether it was ended because its time was over.
    """

    code: int
    out: str
    err: str
    seconds: float
    processor_s: float
    peak_bytes: int
    is_late: bool


def run(
    command: Sequence[str],
    *,
    seconds: float,
    memory_bytes: int = 8 * _GB,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end, or end it and its children after some seconds.

    Args:
        command: The program and its arguments.
        seconds: The most that it may take.
        memory_bytes: The most private memory of each of its processes; asking for more fails in it.
        cwd: Its working directory.
        env: Variables that it gets beside those of this process.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as told:
        began = time.perf_counter()
        launch = (sys.executable, "-I", "-S", "-c", _LAUNCH, str(told.fileno()), str(memory_bytes), *map(str, command))
        process = subprocess.Popen(
            launch,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            pass_fds=(told.fileno(),),
        )
        is_late = False
        while process.poll() is None:
            if not is_late and time.perf_counter() - began > seconds:
                is_late = True
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)
        took = time.perf_counter() - began
        for file in (out, err, told):
            file.seek(0)
        status, peak, processor_s = told.read().split() or (signal.SIGKILL, 0, 0.0)
        return Finished(
            os.waitstatus_to_exitcode(int(status)),
            out.read().decode(errors="replace"),
            err.read().decode(errors="replace"),
            took,
            float(processor_s),
            int(peak) * 1024,
            is_late,
        )


@contextmanager
def load_on_all() -> Iterator[None]:
    """Keep all processors busy."""
    burners = [subprocess.Popen((sys.executable, "-c", "while True: pass")) for _ in range(multiprocessing.cpu_count())]
    try:
        yield
    finally:
        for one in burners:
            one.kill()
            one.wait()
