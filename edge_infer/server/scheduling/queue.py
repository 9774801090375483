"""A bounded queue with priorities in which nobody waits for ever.

A request's rank is the time of its arrival plus a handicap for its priority. A more urgent request overtakes those
that came at most the difference of the handicaps before it, and no others: this is ageing without ever sorting again
(earliest deadline first with a virtual deadline, Liu and Layland 1973).

Between tenants the turn of `Shares` alone decides: there a more urgent request takes the turn of its own tenant's
request that it overtakes, which takes the next one's, and so on. No priority costs another tenant anything.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from edge_infer.errors import QueueFull, ServingError
from edge_infer.server.errors import ClientLeft
from edge_infer.server.scheduling.request import DEFAULT_PRIORITY, HIGHEST_PRIORITY, LOWEST_PRIORITY
from edge_infer.server.scheduling.shares import ANYONE, Shares, Tenant

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from edge_infer.server.scheduling.request import Request

_Entry = tuple[float, int, "Request"]


class RequestQueue:
    """Requests in order of priority and age, apart by key.

    Args:
        max_size: How many may wait.
        step_s: The handicap of one step of priority: with 0.01 the least urgent wait at most 2.54 s longer.
    """

    def __init__(self, max_size: int = 256, step_s: float = 0.01) -> None:
        self.max_size = max_size
        self._step_s = step_s
        self._lines: dict[Hashable, list[_Entry]] = {}
        self._alone = 0
        self._sequence = self._before = 0
        self._latest: dict[str, float] = {}  # the greatest `_age` of each tenant's requests since it had none
        self._size = 0
        self.shares = Shares(max_size)
        #: The rows that wait, as `len` counts the requests: with those of batches that were formed ahead.
        self.rows = 0

    def __len__(self) -> int:
        return self._size

    def has_room(self, priority: int = 0, tenant: Tenant = ANYONE) -> bool:
        """Tell whether a request would be taken: there is room, or another gives way.

        That is a less urgent one, or one of a tenant that has more than its share where this one has less.
        """
        if self._size < self.max_size:
            return True
        urgency = priority or DEFAULT_PRIORITY
        is_urgent = urgency < DEFAULT_PRIORITY and self._least_urgent(tenant) > urgency
        return is_urgent or self._greedy(tenant) is not None

    def _greedy(self, tenant: Tenant) -> str | None:
        """Return the tenant whose newest request gives way to this one's; None where nobody has too much."""
        shares = self.shares
        if not tenant.name or shares.part(tenant) == 1 or shares.is_over(tenant):
            return None
        names = {entry[2].tenant.name for line in self._lines.values() for entry in line}
        return shares.most_over(names - {tenant.name})

    def _least_urgent(self, tenant: Tenant) -> int:
        """Return the priority of the least urgent request that one of this tenant may push out: only its own."""
        waiting = (entry[2] for line in self._lines.values() for entry in line)
        return max((one.priority for one in waiting if one.tenant.name == tenant.name), default=HIGHEST_PRIORITY)

    def push(self, request: Request) -> None:
        """Add a request. Where the queue is full and it is urgent, the last of the least urgent ones is refused.

        Raises:
            QueueFull: There is no room.
        """
        if self._size >= self.max_size:
            if not self.has_room(request.priority, request.tenant):
                raise self.full()
            self._give_way(request)
        self._sequence += 1
        self._enter(request, self._overtake(request) if request.tenant.name else self._sequence)

    def _overtake(self, request: Request) -> int:
        """Give a request the place of the first of its tenant's that it overtakes; return the place's number.

        Those that it overtakes move back by one place each, the last to the request's own.
        """
        own = self._age(request)
        name = request.tenant.name
        latest = self._latest.get(name, own) if self.shares.has_waiting(request.tenant) else own
        self._latest[name] = max(own, latest)
        if own >= latest:  # all of one priority: the usual case
            return self._sequence
        entries = [(key, entry) for key, line in self._lines.items() for entry in line]
        behind = [(key, one) for key, one in entries if one[2].tenant.name == name and self._age(one[2]) > own]
        behind.sort(key=lambda pair: pair[1][:2])
        places = [one[:2] for _, one in behind] + [(request.turn, self._sequence)]
        for (key, entry), place in zip(behind, places[1:], strict=True):
            entry[2].turn = place[0]
            line = self._lines[key]
            line[line.index(entry)] = (*place, entry[2])
        for key in {key for key, _ in behind}:
            heapify(self._lines[key])
        request.turn = places[0][0]
        return places[0][1]

    def count_out(self, requests: Sequence[Request]) -> None:
        """Count requests that were set aside as waiting no more."""
        self._size -= len(requests)
        for request in requests:
            self.rows -= request.rows
            if request.tenant.name:
                self.shares.removed(request.tenant)

    def put_back(self, requests: Sequence[Request]) -> None:
        """Let requests that were taken wait again, each where it was: before those of the same rank."""
        for request in reversed(requests):
            if not request.is_answered:
                self._before -= 1
                self._enter(request, self._before)

    def remove(self, request: Request) -> bool:
        """Let a request wait no more; False where it is in no line, such as one that was taken."""
        for key, line in self._lines.items():
            for entry in line:
                if entry[2] is request:
                    self._pull(key, entry)
                    return True
        return False

    def _enter(self, request: Request, sequence: int) -> None:
        key = request.key
        if key is None:  # a line of its own
            self._alone += 1
            key = (None, self._alone)
        heappush(self._lines.setdefault(key, []), (self.rank(request), sequence, request))
        self._size += 1
        self.rows += request.rows
        if request.tenant.name:
            self.shares.added(request.tenant)

    def rank(self, request: Request) -> float:
        """Return what requests are sorted by, in seconds: the least is next."""
        return request.turn if request.tenant.name else request.turn + request.priority * self._step_s

    def _age(self, request: Request) -> float:
        """Return what the requests of one tenant are sorted by."""
        return request.arrived + request.priority * self._step_s

    def full(self) -> QueueFull:
        """Make the error that says so."""
        return QueueFull(
            f"{self._size} requests wait already, the queue takes {self.max_size}",
            hint="come back after `Retry-After`, or send fewer at once",
            expected=self.max_size,
            got=self._size,
        )

    def _give_way(self, newcomer: Request) -> None:
        """Refuse the newest request of the tenant with too much, else the last of the least urgent ones."""
        greedy = self._greedy(newcomer.tenant)
        entries = [(key, entry) for key, line in self._lines.items() for entry in line]
        if greedy is not None:
            of_greedy = [pair for pair in entries if pair[1][2].tenant.name == greedy]
            key, victim = max(of_greedy, key=lambda pair: pair[1][:2])
            error: ServingError = self.shares.refusal(victim[2].tenant)
        else:
            name = newcomer.tenant.name
            own = [pair for pair in entries if pair[1][2].tenant.name == name]
            key, victim = max(own, key=lambda pair: (pair[1][2].priority, pair[1][:2]))
            error = QueueFull("A more urgent request took the place of this one", hint="come back after `Retry-After`")
        self._pull(key, victim)
        victim[2].answer(error)

    def _pull(self, key: Hashable, entry: _Entry) -> None:
        """Take an entry out of the midst of a line."""
        line = self._lines[key]
        line.remove(entry)
        heapify(line)
        if not line:
            del self._lines[key]
        self.count_out((entry[2],))

    def first(self, now: float) -> tuple[Hashable, Request] | None:
        """Return the request that is next, and its line; those that cannot be answered any more are dropped."""
        best: tuple[float, Hashable] = (inf, None)
        while self._lines:
            best = min(((line[0][0], key) for key, line in self._lines.items()), key=lambda pair: pair[0])
            request = self._lines[best[1]][0][2]
            if self._is_live(request, now):
                return best[1], request
            self.count_out((self._pop(best[1]),))
        return None

    def take(
        self, key: Hashable, max_rows: int, now: float, below: int = LOWEST_PRIORITY + 1, ahead: float = inf
    ) -> list[Request]:
        """Remove requests from the front of a line: the first always, then as many as fit.

        Args:
            key: The line.
            max_rows: How many rows fit.
            now: The time.
            below: The first request whose priority number is not smaller ends it.
            ahead: How many rows a tenant may run ahead of another that asks too.
        """
        taken = self.set_aside(key, max_rows, now, below, ahead)
        self.count_out(taken)
        return taken

    def set_aside(
        self, key: Hashable, max_rows: int, now: float, below: int = LOWEST_PRIORITY + 1, ahead: float = inf
    ) -> list[Request]:
        """Do as `take`, but let the requests count as waiting until `count_out`."""
        taken: list[Request] = []
        horizons: dict[str, float] = {"": inf}
        room = max_rows
        while line := self._lines.get(key):
            request = line[0][2]
            if (taken and request.rows > room) or request.priority >= below:
                break
            name = request.tenant.name
            if name not in horizons:
                horizons[name] = self.shares.horizon(request.tenant, now) + ahead / request.tenant.weight
            if taken and request.turn >= horizons[name]:
                break
            self._pop(key)
            if self._is_live(request, now):
                taken.append(request)
                room -= request.rows
            else:
                self.count_out((request,))
        return taken

    def fills(self, key: Hashable, rows: int) -> bool:
        """Tell whether at least so many rows wait in a line."""
        line = self._lines[key]
        return len(line) >= rows or sum(entry[2].rows for entry in line) >= rows

    def _pop(self, key: Hashable) -> Request:
        line = self._lines[key]
        request = heappop(line)[2]
        if not line:
            del self._lines[key]
        return request

    @staticmethod
    def _is_live(request: Request, now: float) -> bool:
        """Tell whether an answer is still wanted; one that comes too late is refused here."""
        if request.is_gone is not None and request.is_gone():
            request.answer(ClientLeft("The client left before its request ran"))
            return False
        if now >= request.deadline:
            request.answer(request.too_late())
            return False
        return True
