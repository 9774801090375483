"""Calls that only POSIX systems have: locks, signals, CPU affinity, users, memory of this process."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

#: The flag of `os.open` that refuses a symbolic link; none on Windows.
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)


def allowed_cpus() -> set[int]:
    """Return the numbers of the CPUs that this process may use; empty where the system does not bind processes."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def bind_to_cpus(numbers: Iterable[int]) -> None:
    """Let this process use these of the allowed CPUs only."""
    os.sched_setaffinity(0, numbers)


def is_root() -> bool:
    """Tell whether this process runs as root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def give_to(path: Path, user: int, group: int) -> None:
    """Let a file be another user's."""
    os.chown(path, user, group)


def lock_alone(file: IO[bytes]) -> None:
    """Lock a file for this process until it is closed.

    Raises:
        OSError: Another process has locked it.
    """
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def on_termination(action: Callable[[], None]) -> None:
    """Call a function when systemd, or `kill`, ends this process by SIGTERM, instead of ending at once."""
    import signal

    signal.signal(signal.SIGTERM, lambda *_: action())


def resident_bytes() -> int | None:
    """Return the memory that this process has in RAM; None where there is no `/proc`."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def limit_memory(most: int) -> None:
    """Let this process have at most so many bytes of data; does nothing where the system has no such limit."""
    try:
        import resource
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def lower_priority() -> None:
    """Let other processes go first where CPUs are short."""
    if hasattr(os, "nice"):
        os.nice(5)
