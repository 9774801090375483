"""All connections of a server: their number, their clock, and one sweep that finds those over a limit of time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from email.utils import formatdate
from operator import itemgetter
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from edge_infer.server.http.limits import DoorLimits
    from edge_infer.server.http.progress import Load

log = logging.getLogger(__name__)
#: How often connections are looked at; more often where a limit of time is shorter.
_SWEEP_S = 1.0
#: How often a stopping server looks whether all connections are closed.
_POLL_S = 0.01
#: How long it waits for those that it cut.
_ABORT_S = 1.0
#: Who is let go where memory is short: a client that has taken so long, at less than so many bytes a second.
_SLOW_S, _BRISK_RATE = 2.0, 1e6
#: How long it takes until another look for such clients is worth it: one costs a microsecond for each connection.
_RELIEVE_EVERY_S = 0.1


class Swept(Protocol):
    """A connection, as far as the sweep knows it.

    Attributes:
        since: When it began to wait for its client to send, in seconds of `Connections.now`.
        patience: How many seconds it waits.
        write_due: When the client must have read a part of its answers.
        transport: Its socket.
    """

    since: float
    patience: float
    write_due: float
    transport: Any

    def check(self, now: float) -> None:
        """Do what is due: a limit of time is over."""

    def load(self, now: float) -> Load | None:
        """Return what the server keeps because its client is not done; None for nothing."""

    def let_go(self) -> None:
        """Give that back, and close."""

    def shutdown(self) -> None:
        """Close once the requests that arrived are answered."""


class Connections:
    """The connections of a server, with the settings that they share.

    Args:
        limits: What each may take.

    Attributes:
        limits: As given.
        sweep_s: The seconds between two sweeps.
        header_s: How long a head may take; `body_s`, `read_s` and `keep_alive_s` are likewise of the limits.
        open: Those that are open.
        now: The time of the last sweep, in seconds of `monotonic`: a clock that costs a request nothing.
        date: The header line of the date.
        is_stopping: Whether answers close their connections.
    """

    def __init__(self, limits: DoorLimits) -> None:
        self.limits = limits
        times = (limits.header_timeout_s, limits.body_timeout_s, limits.read_timeout_s, limits.keep_alive_s)
        self.sweep_s = min(_SWEEP_S, min(times) / 4)
        # Each is longer by a sweep, because the clock is up to one sweep behind.
        self.header_s, self.body_s, self.read_s, self.keep_alive_s = (each + self.sweep_s for each in times)
        self.open: set[Swept] = set()
        self.is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._relieve_again = 0.0
        self._set_clock()

    def sweep(self) -> None:
        """Look at each connection whose time has come, and again after a while, until `close`."""
        self._timer = asyncio.get_running_loop().call_later(self.sweep_s, self.sweep)
        self._set_clock()
        now = self.now
        for connection in [one for one in self.open if one.since + one.patience < now or one.write_due < now]:
            try:
                connection.check(now)
            except Exception:  # one connection harms no other
                log.exception("A connection failed")
                connection.transport.abort()

    def relieve(self, size: int) -> bool:
        """Let the slowest clients go, to free so many bytes of bodies and answers.

        Returns:
            Whether that many are free; if not, nobody was let go.
        """
        now = monotonic()
        if now < self._relieve_again:
            return False
        slow: list[tuple[float, int, Swept]] = []
        for connection in self.open:
            load = connection.load(now)
            if load is not None and load.seconds >= _SLOW_S and load.moved < _BRISK_RATE * load.seconds:
                slow.append((load.moved / load.seconds, load.size, connection))
        if sum(part for _, part, _ in slow) < size:
            self._relieve_again = now + _RELIEVE_EVERY_S
            return False
        for _, part, connection in sorted(slow, key=itemgetter(0)):
            connection.let_go()
            size -= part
            if size <= 0:
                break
        return True

    def _set_clock(self) -> None:
        self.now = monotonic()
        self.date = b"date: %b\r\n" % formatdate(time(), usegmt=True).encode()

    def after(self, seconds: float) -> float:
        """Return the time so many seconds from now, at least: the clock is up to one sweep behind."""
        return self.now + self.sweep_s + seconds

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task, which a stopping server waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def shutdown(self) -> None:
        """Close idle connections now, the others with their last answer."""
        self.is_stopping = True
        for connection in list(self.open):
            connection.shutdown()

    async def wait(self) -> None:
        """Wait until all connections are closed and all tasks are done."""
        while self.open or self._tasks:
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Cut what is still open."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.open):
            connection.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError):  # an aborted connection of TLS takes some turns of the loop
            async with asyncio.timeout(_ABORT_S):
                await self.wait()
