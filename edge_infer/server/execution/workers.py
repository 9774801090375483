"""WorkerPool: threads that run batches and load models, so that the event loop never computes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Barrier, BrokenBarrierError, Thread
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

#: How much workers stand back where they and the event loop, whose turns are short, want the same core. Measured with
#: MobileNetV2 at four times what it can do: of the accepted, 99 % took 78 ms instead of 70 to 160 (with 5, 74).
_NICE = 2
#: How long free threads wait for the others in `each`.
_MEETING_S = 0.05

_P = ParamSpec("_P")
_T = TypeVar("_T")
log = logging.getLogger(__name__)


class WorkerPool:
    """A fixed number of threads.

    Args:
        count: How many.
        name: What they are called in a debugger.
    """

    def __init__(self, count: int, name: str = "edge-infer worker") -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        #: Its methods are atomic.
        self._offered: deque[Callable[[], None]] = deque()
        self._name = name
        self._threads: list[Thread] = []
        for _ in range(count):
            self.add()

    def submit(self, job: Callable[[], None]) -> None:
        """Let a thread call a function, which must not raise."""
        self._jobs.put(job)

    def call(self, function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> asyncio.Future[_T]:
        """Let a thread call a function, and wait on the event loop for what it returns or raises."""
        future: Future[_T] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*arguments, **options))
                except BaseException as error:
                    future.set_exception(error)

        self.submit(job)
        return asyncio.wrap_future(future)

    def each(self, function: Callable[[], None]) -> None:
        """Let each thread that is free call a function; one that is not leaves it to another."""
        threads = [thread for thread in self._threads if thread.is_alive()]
        meeting = Barrier(max(1, len(threads)))  # so that none takes the turn of another

        def job() -> None:
            with suppress(BrokenBarrierError):
                meeting.wait(_MEETING_S)
            function()

        for _ in threads:
            self.submit(job)

    def offer(self, job: Callable[[], None]) -> None:
        """Let a thread that ends a job go on with this one at once, the oldest first; an idle one does not take it."""
        self._offered.append(job)

    def offers(self) -> int:
        """Count the offers that no thread has taken yet."""
        return len(self._offered)

    def withdraw(self) -> bool:
        """Take back the newest offer; False where threads have all."""
        try:
            self._offered.pop()
        except IndexError:
            return False
        return True

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

    def drop(self) -> None:
        """Forget what was submitted and has not begun."""
        try:
            while True:
                self._jobs.get_nowait()
        except Empty:
            pass

    def close(self, timeout_s: float = 5.0) -> None:
        """Let the threads finish what was submitted and end; those that take longer are left behind."""
        deadline = monotonic() + timeout_s
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))

    def _work(self) -> None:
        if sys.platform == "linux":  # where it holds for this thread alone
            os.nice(_NICE)
        while (job := self._jobs.get()) is not None:
            while job is not None:
                try:
                    job()
                except Exception:
                    log.exception("A worker's job failed")
                job = self._next_offer()

    def _next_offer(self) -> Callable[[], None] | None:
        try:
            return self._offered.popleft()
        except IndexError:
            return None
