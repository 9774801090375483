"""The progress of a client: with a body that it sends, and with the answers that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from edge_infer.server.http.limits import DoorLimits
    from edge_infer.server.ingestion.memory_budget import BodyMemory


class Load(NamedTuple):
    """What a client that is not done makes the server keep.

    Attributes:
        size: The bytes that are kept.
        seconds: How long it has taken so far.
        moved: The bytes that it sent or read in that time.
    """

    size: int
    seconds: float
    moved: int


class BodyProgress:
    """Tells whether a body arrives too slowly; look once each `body_timeout_s`.

    Args:
        limits: The longest pause, and the slowest rate after the first one.

    Attributes:
        received: How many bytes of the body arrived.
        since: When it began, in seconds of `Connections.now`.
    """

    __slots__ = ("_limits", "_required", "_seen", "received", "since")

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Start with a new body."""
        self.since = now
        self.received = self._seen = 0
        self._required = 0.0

    def is_too_slow(self) -> bool:
        """Tell whether nothing arrived since the last look, or less than the slowest rate gives."""
        if self.received <= self._seen or self.received < self._required:
            return True
        self._seen = self.received
        self._required += self._limits.body_timeout_s * self._limits.min_body_rate
        return False


class UnreadAnswers:
    """Counts the bytes of answers that a client has not read, in the server's memory; look once each `read_timeout_s`.

    A client that reads slowly is not cut off: it gets the same time again. Only where memory is short it must read at
    the least rate; a few clients that read a byte now and then would keep all of it. An answer counts whole until all
    of it is read: no part of its memory goes back before.

    Args:
        transport: That of the connection.
        memory: The server's memory for bodies and answers.
        limits: The longest pause and the slowest rate.

    Attributes:
        last: The bytes of an answer, or of the piece of it, that was sent last.
    """

    __slots__ = ("_counted", "_least", "_memory", "_since", "_tenant", "_transport", "_unread", "last")

    def __init__(self, transport: asyncio.WriteTransport, memory: BodyMemory, limits: DoorLimits) -> None:
        self._transport = transport
        self._memory = memory
        self._least = limits.read_timeout_s * limits.min_body_rate
        self._unread = 0
        self._counted = self.last = 0
        self._tenant = ""
        self._since = 0.0

    def begin(self, now: float, tenant: str = "") -> bool:
        """Count what is unread now, in seconds of `Connections.now`, for a tenant; return whether there is any."""
        self._since = now
        self._unread = self._transport.get_write_buffer_size()
        if not self._unread:
            self.end()
        elif (held := max(self._unread, self.last)) > self._counted:
            self._memory.take(-self._counted, self._tenant)
            self._memory.take(held, tenant)
            self._counted, self._tenant = held, tenant
        return self._unread > 0

    def load(self, now: float) -> Load:
        """Return what is left unread, and how quickly the client reads."""
        left = self._transport.get_write_buffer_size()
        return Load(self._counted, now - self._since, max(0, self._unread - left))

    def end(self) -> None:
        """Give the memory back."""
        self._memory.take(-self._counted, self._tenant)
        self._unread = self._counted = 0

    def is_too_slow(self) -> bool:
        """Tell whether the client read nothing since the last look, or too little for a server short of memory."""
        left = self._transport.get_write_buffer_size()
        is_slow = left > max(self._least, self._unread - self._least)  # one that has read all but little is not
        return left >= self._unread or (is_slow and self._memory.is_short)
