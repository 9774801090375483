"""A client that never reads its answer would keep the answer and its connection for ever: TCP waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class ReaderWatch:
    """Cuts a connection whose client takes nothing of what was written for it.

    One that reads slowly is not cut: each time it is given as long again.

    Args:
        transport: The connection's.
        loop: The event loop.
        timeout_s: How long nothing may be taken.
    """

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._transport = transport
        self._loop = loop
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def begin(self) -> None:
        """Watch from now on, if there is something to take."""
        self.end()
        self._unsent = self._transport.get_write_buffer_size()
        if self._unsent:
            self._timer = self._loop.call_later(self._timeout_s, self._look)

    def end(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() < self._unsent:
            self.begin()
        else:
            self._transport.abort()
