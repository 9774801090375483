"""Shares: who gets how much of a model when more is asked of it than it can do.

Requests of several tenants take turns by start-time fair queueing (Goyal, Vin and Cheng 1996): each tenant has a
virtual time that moves on by the rows of its requests, divided by its weight. A batch ends where its next row would
run ahead of another tenant that asks too, or asked a moment ago: else who has few clients would wait for a batch of the
others' each time that it has read its answers. One that asks more than its share while
others wait is refused with 429; who is alone may have everything.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import OverShare

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How long after its last request a tenant counts as one that asks, beside the time of two batches: its clients wait
#: for one that runs, read the answer and ask again.
_ASKS_S = 0.05


class Bounds(NamedTuple):
    """The bounds of a tenant; 0 for no bound of its own.

    Attributes:
        highest_priority: Its most urgent priority: 1 is the most urgent of all, 255 the least.
        max_requests_per_s: The requests in a second, on average; one second's worth may come at once.
        max_connections: The requests of HTTP that are read, wait or run, and the WebSockets that are open, together.
        max_held_bytes: The bytes of its bodies, and of its answers until they are read, together.
        max_answer_bytes: The bytes of the tensors of one answer.
    """

    highest_priority: int = 0
    max_requests_per_s: float = 0.0
    max_connections: int = 0
    max_held_bytes: int = 0
    max_answer_bytes: int = 0


class Tenant(NamedTuple):
    """The client, or group of clients, that a request belongs to.

    Attributes:
        name: Its name in metrics and routes; empty for everybody, where no keys are asked for.
        weight: Its part, beside the weights of the others that ask at the same time.
        is_admin: Whether it may load, unload and try models, which all tenants share.
        sees_metrics: Whether it may read the counts of all tenants; an admin may.
        bounds: What it may ask for at most.
    """

    name: str = ""
    weight: float = 1.0
    is_admin: bool = False
    sees_metrics: bool = False
    bounds: Bounds = Bounds()


ANYONE = Tenant()


class Shares:
    """How many requests of each tenant wait, and when it is each one's turn.

    Args:
        capacity: How many may wait in all.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[str, int] = {}
        self._weights: dict[str, float] = {}
        self._ends: dict[str, float] = {}  # the virtual time when each tenant will have had what it asked for
        self._begun: dict[str, float] = {}  # the same of what began to run
        self._asked: dict[str, float] = {}  # when each asked last, in seconds
        self._latest = -inf  # when anybody did
        self._time = 0.0
        #: How long a batch takes, in seconds.
        self.batch_s = 0.0

    def part(self, tenant: Tenant) -> float:
        """Return a tenant's part of the model, 0 to 1, beside those that have requests waiting now."""
        others = sum(self._weights[name] for name in self._waiting if name != tenant.name)
        return tenant.weight / (tenant.weight + others)

    def waiting(self, tenant: Tenant) -> int:
        """Count a tenant's requests that wait."""
        return self._waiting.get(tenant.name, 0)

    def has_waiting(self, tenant: Tenant) -> bool:
        """Tell whether a request of this tenant waits."""
        return tenant.name in self._waiting

    def is_over(self, tenant: Tenant) -> bool:
        """Tell whether a tenant has its share of the queue already, and others wait too."""
        part = self.part(tenant)
        return part < 1 and self._waiting.get(tenant.name, 0) >= max(1.0, part * self._capacity)

    def refusal(self, tenant: Tenant) -> OverShare:
        """Make the error that says so."""
        waiting, part = self._waiting.get(tenant.name, 0), self.part(tenant)
        return OverShare(
            f"{waiting} requests of `{tenant.name}` wait already, its share is {part:.0%} of {self._capacity}",
            hint="come back after `Retry-After`, or send fewer at once",
            expected=int(part * self._capacity),
            got=waiting,
        )

    def turn(self, tenant: Tenant, rows: int, now: float, catch_up: float) -> float:
        """Return when it is a new request's turn, in virtual time: not before those that its tenant has already.

        Args:
            tenant: Whose request it is.
            rows: What it costs.
            now: When it arrived, in seconds.
            catch_up: How many rows of others a tenant may catch up with that was away for a moment: its clients read
                an answer and ask again, and others had their turns meanwhile.
        """
        name = tenant.name
        if not self._waiting and not self._was_now(self._latest, now):
            self._ends.clear()  # nobody was there whom anybody owes anything
            self._begun.clear()
        elif name not in self._waiting and name in self._ends:
            self._ends[name] = min(self._ends[name], self._begun.get(name, -inf))  # what was dropped cost nothing
        slowest = min((self._weights[other] for other in self._waiting), default=tenant.weight)
        earliest = self._time - (catch_up / slowest if self._asks(name, now) else 0.0)
        begin = max(earliest, self._ends.get(name, earliest))
        self._weights[name] = tenant.weight
        self._asked[name] = self._latest = now
        self._ends[name] = begin + rows / tenant.weight
        return begin

    def began(self, tenant: Tenant, turn: float, rows: int) -> None:
        """Let virtual time move on to the turn of a request that began."""
        self._time = max(self._time, turn)
        self._begun[tenant.name] = max(self._begun.get(tenant.name, -inf), turn + rows / tenant.weight)

    def horizon(self, tenant: Tenant, now: float) -> float:
        """Return the turn from which on a tenant runs ahead of another that asks too; infinity where it asks alone."""
        others = [end for name, end in self._ends.items() if name != tenant.name and self._asks(name, now)]
        return max(self._time, min(others)) if others else inf

    def _asks(self, name: str, now: float) -> bool:
        """Tell whether a tenant has requests waiting, or had some a moment ago."""
        return name in self._waiting or self._was_now(self._asked.get(name, -inf), now)

    def _was_now(self, asked: float, now: float) -> bool:
        return now - asked <= _ASKS_S + 2 * self.batch_s

    def most_over(self, names: Iterable[str]) -> str | None:
        """Return which of these tenants, which all wait, does so with the most requests for its weight."""
        return max(names, key=lambda name: self._waiting[name] / self._weights[name], default=None)

    def added(self, tenant: Tenant) -> None:
        """Take note of a request that waits."""
        self._weights[tenant.name] = tenant.weight
        self._waiting[tenant.name] = self._waiting.get(tenant.name, 0) + 1

    def removed(self, tenant: Tenant) -> None:
        """Take note of a request that waits no more."""
        left = self._waiting[tenant.name] - 1
        if left:
            self._waiting[tenant.name] = left
        else:
            del self._waiting[tenant.name]
