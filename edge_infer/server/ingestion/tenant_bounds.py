"""The bounds of each tenant: priority, rate, connections, size of an answer, refusals, what is under way."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import TYPE_CHECKING

from edge_infer.errors import OverShare, PayloadTooLarge
from edge_infer.server.errors import PriorityRefused
from edge_infer.server.scheduling.request import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.scheduling.shares import Tenant


#: How long a tenant begins nothing after a refusal, while others ask. A refusal costs the server the reading of what
#: was sent, and who was refused asks again at once. It is shorter than what may wait for a model (30 ms and more),
#: which therefore does not run dry.
_PAUSE_S = 0.01
#: What is under way is counted in whole numbers, which add up to nothing again: this is all that is of use.
_FULL = 2**20


class TenantBounds:
    """Counts what each tenant has under way, in the event loop's thread.

    Args:
        clock: Tells the time in seconds.

    Attributes:
        under_way: How many requests for models each tenant has that has some.
        on_end: Called with the name of a tenant that has one request less under way.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._connections: Counter[str] = Counter()
        self._rates: dict[str, tuple[float, float]] = {}  # how many may come, and when that was so
        self._paused: dict[str, float] = {}  # until when each begins nothing
        self.under_way: Counter[str] = Counter()
        self._filled: Counter[str] = Counter()  # how much of `_FULL` these are
        self.on_end: Callable[[str], None] | None = None

    def check_connections(self, tenant: Tenant) -> OverShare | None:
        """Return why a tenant may use no connection more now; None where it may."""
        most = tenant.bounds.max_connections
        if not most or self._connections[tenant.name] < most:
            return None
        return OverShare(
            f"`{tenant.name}` uses {most} connections already, as many as it may",
            hint="wait for answers first, or send many requests over one WebSocket",
            expected=most,
        )

    def connected(self, tenant: Tenant) -> None:
        """Count a connection in use."""
        if tenant.bounds.max_connections:
            self._connections[tenant.name] += 1

    def disconnected(self, tenant: Tenant) -> None:
        """Count one less."""
        if tenant.bounds.max_connections:
            self._connections[tenant.name] -= 1

    def begin(self, tenant: Tenant, enough: float) -> int:
        """Count a request for a model as under way.

        Args:
            tenant: Whose it is.
            enough: How many such requests keep the model busy, at least one; infinity where that is not known.

        Returns:
            What `end` takes.
        """
        part = ceil(_FULL / enough)
        if part:
            self.under_way[tenant.name] += 1
            self._filled[tenant.name] += part
        return part

    def end(self, tenant: Tenant, part: int) -> None:
        """Count one less."""
        if part:
            self._filled[tenant.name] -= part
            self.under_way[tenant.name] -= 1
            if not self.under_way[tenant.name]:
                del self.under_way[tenant.name]
            if self.on_end is not None:
                self.on_end(tenant.name)

    def is_enough(self, name: str) -> bool:
        """Tell whether a tenant's requests that are under way keep the models busy for which they are."""
        return self._filled[name] >= _FULL

    def refused(self, tenant: Tenant) -> None:
        """Take note that there was no room for a request, or that its tenant may not ask now."""
        if tenant.name:
            self._paused[tenant.name] = self._clock() + _PAUSE_S

    def paused_until(self, name: str) -> float:
        """Return until when a tenant begins nothing while others ask, in seconds of the clock; 0 for now."""
        return self._paused.get(name, 0.0)

    def check_rate(self, tenant: Tenant) -> OverShare | None:
        """Count a request; return why it comes too soon, in which case it counts for nothing.

        A token bucket that holds the requests of a second, and at least one.
        """
        rate = tenant.bounds.max_requests_per_s
        if not rate:
            return None
        most = max(1.0, rate)
        now = self._clock()
        left, then = self._rates.get(tenant.name, (most, now))
        left = min(most, left + (now - then) * rate)
        is_early = left < 1.0
        self._rates[tenant.name] = (left if is_early else left - 1.0), now
        if not is_early:
            return None
        return OverShare(
            f"`{tenant.name}` sends more than its {rate:g} requests a second",
            hint="come back after `Retry-After`, or send larger batches",
            expected=rate,
        )


def priority_of(tenant: Tenant, asked: int) -> int:
    """Return the priority of a tenant's request.

    Args:
        tenant: Whose it is.
        asked: What it asks for; 0 for nothing.

    Raises:
        PriorityRefused: It is more urgent than the tenant may be.
    """
    highest = tenant.bounds.highest_priority
    if asked >= highest:
        return asked
    if not asked:
        return highest if highest > DEFAULT_PRIORITY else 0
    raise PriorityRefused(
        f"The request has priority {asked}, `{tenant.name}` may have {highest} at most: 1 is the most urgent",
        hint=f"X-Priority: {highest}, or leave it out",
        expected=highest,
        got=asked,
    )


def check_answer(tenant: Tenant, size: int) -> None:
    """Refuse an answer of so many bytes where the tenant may have less.

    Raises:
        PayloadTooLarge: It is too large.
    """
    most = tenant.bounds.max_answer_bytes
    if most and size > most:
        raise PayloadTooLarge(
            f"The answer has {size} bytes, `{tenant.name}` gets {most}",
            hint="ask for fewer rows or outputs at once",
            expected=most,
            got=size,
        )
