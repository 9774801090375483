"""WorkerPool: threads that run batches, so that the event loop never computes."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class WorkerPool:
    """A fixed number of threads.

    Args:
        count: How many.
        name: What they are called in a debugger.
    """

    def __init__(self, count: int, name: str = "edge-infer worker") -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._name = name
        self._threads: list[Thread] = []
        for _ in range(count):
            self.add()

    def submit(self, job: Callable[[], None]) -> None:
        """Let a thread call a function, which must not raise."""
        self._jobs.put(job)

    def add(self) -> None:
        """Start one more thread: in the place of one that hangs in an engine, which nothing can stop."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # Daemons: a hanging engine must not keep the process from ending.
        thread = Thread(target=self._work, name=f"{self._name} {len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def remove(self) -> None:
        """Let one thread end, once it is free: one that hung has come back."""
        self._jobs.put(None)

    def close(self, timeout_s: float = 5.0) -> None:
        """Let the threads finish what was submitted and end; one that hangs is left behind."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("A worker's job failed")
            del job  # else it keeps the last batch's tensors until the next one
