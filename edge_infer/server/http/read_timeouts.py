"""A client that never ends what it sends would keep its connection, and the memory for a body, for ever."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.flow_control import FlowControl

    from edge_infer.server.http.limits import DoorLimits


class SenderWatch:
    """Tells of headers that do not come in time, and of a body that stops or comes too slowly.

    Args:
        loop: The event loop.
        flow: Tells whether it is the server that takes no more for now.
        door: How long what may take.
        too_slow: Called with what did not come, `headers` or `body`.

    Attributes:
        timer: It runs while something is waited for.
        since: When the waiting began, in seconds of `perf_counter`.
        received: How many bytes of a body have come since.
    """

    __slots__ = ("_door", "_due", "_flow", "_loop", "_seen", "_too_slow", "received", "since", "timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flow: FlowControl,
        door: DoorLimits,
        too_slow: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._flow = flow
        self._door = door
        self._too_slow = too_slow
        self.timer: asyncio.TimerHandle | None = None
        self.since = self._due = 0.0
        self.received = self._seen = 0

    def await_headers(self) -> None:
        """Watch until all headers are there."""
        self._begin(self._door.header_timeout_s, "headers")

    def await_body(self) -> None:
        """Watch until all of the body is there."""
        self._begin(self._door.body_timeout_s, "body")

    def end(self) -> None:
        """Watch no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _begin(self, seconds: float, what: str) -> None:
        self.since = perf_counter()
        self.received = self._seen = 0
        self._due = 0.0
        self.timer = self._loop.call_later(seconds, self.look, what)

    def look(self, what: str) -> None:
        """See how far it has come; called by the timer."""
        door = self._door
        if self._flow.read_paused:  # it is we who take no more for now
            self._begin(door.body_timeout_s, what)
        elif what == "body" and self.received > self._seen and self.received >= self._due:
            self._seen = self.received
            self._due += door.body_timeout_s * door.min_body_rate
            self.timer = self._loop.call_later(door.body_timeout_s, self.look, what)
        else:
            self._too_slow(what)
