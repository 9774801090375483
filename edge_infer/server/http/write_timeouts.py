"""A client that never reads its answer would keep the answer and its connection for ever: TCP waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from edge_infer.server.ingestion.memory_budget import BodyMemory


class ReaderWatch:
    """Counts what a client has not taken of what was written for it, and cuts one that takes nothing.

    One that reads slowly is not cut: each time it is given as long again. Only where memory is short it must read at
    a least rate, else a few that read a byte now and then would keep all of it.

    Args:
        transport: The connection's.
        loop: The event loop.
        memory: Counts what is not taken.
        timeout_s: How long nothing may be taken.
        min_rate: The slowest reading where memory is short, in bytes a second.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        loop: asyncio.AbstractEventLoop,
        memory: BodyMemory,
        timeout_s: float,
        min_rate: float,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._memory = memory
        self._timeout_s = timeout_s
        self._least = timeout_s * min_rate
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def begin(self) -> None:
        """Watch from now on, if there is something to take."""
        self.end()
        self._unsent = self._transport.get_write_buffer_size()
        if self._unsent:
            self._memory.taken += self._unsent
            self._timer = self._loop.call_later(self._timeout_s, self._look)

    def end(self) -> None:
        """Watch no more."""
        self._memory.taken -= self._unsent
        self._unsent = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left = self._transport.get_write_buffer_size()
        is_slow = left > max(self._least, self._unsent - self._least)  # one that has taken all but little is not
        if left >= self._unsent or (is_slow and self._memory.is_short):
            self.end()
            self._transport.abort()
        else:
            self.begin()
