"""Turns: tenants that ask at the same time have the event loop in turn, whatever the number of their connections.

A small request takes the event loop longer than it takes the model: who has ten times the connections would have ten
times the answers, whose turn it is in the model's queue or not. So each pass of the loop begins and answers a few
requests of each tenant, by weight, and the others wait in a line of its own: deficit round robin (Shreedhar and
Varghese 1995), where a tenant that has nothing to do saves nothing up. Who asks alone waits for nobody. Requests of
HTTP and frames of WebSockets begin in turn; of the answers only those of the fast path are sent in turn: the others are
no more than the requests that began.

Who was just refused pauses: what a tenant sends beyond its share is not begun, and its bodies are not read, until
`TenantBounds.paused_until`. Else the reading and refusing of a flood would take the processors that the others' answers
need. And who asks beside others has no more requests under way than one of them asks for, by weight, or than keep the
models busy: more would only wait in the server, and what the server and the client do for them would keep the others
from the processors. Neither holds anybody for ever: a request waits a second at most, and of each tenant so many
requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError
from edge_infer.server.ingestion.api_keys import OPEN_PATHS
from edge_infer.server.scheduling.shares import ANYONE, Tenant

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.http.exchange import Exchange
    from edge_infer.server.ingestion.api_keys import ApiKeys
    from edge_infer.server.ingestion.tenant_bounds import TenantBounds

    #: What waits for its turn; it returns whether there was something to do.
    Work = Callable[[], bool]

log = logging.getLogger(__name__)
#: How many requests of the tenant with the greatest weight begin or are answered in one pass of the loop.
_A_PASS = 2.0
#: How long after its last request a tenant counts as one that asks.
_ASKS_S = 0.05
#: How long after its last request a tenant is one beside which others pause: it may wait for a long batch.
_BESIDE_S = 1.0
#: The longest that a request waits for the end of its tenant's pauses or for its other requests, and the most requests
#: of a tenant that do: each may have sent 64 KiB of a body. Those beyond are begun, or refused, at once.
_LONGEST_PAUSE_S, _MOST_PAUSED = 1.0, 256
#: Whose line the open paths without a key have: what orchestrators ask does not wait behind requests that are refused.
_OPEN = Tenant("\0open")
#: Whose requests count for no tenant's.
_NOBODY = (ANYONE.name, _OPEN.name)
_OPEN_PATHS = frozenset(one.encode() for one in OPEN_PATHS)


class _Line:
    """The work of a tenant that waits: answers go before requests that have not begun; those with when they came."""

    __slots__ = ("answers", "requests")

    def __init__(self) -> None:
        self.answers: deque[Work] = deque()
        self.requests: deque[tuple[float, Work]] = deque()

    def __bool__(self) -> bool:
        return bool(self.answers or self.requests)


class Turns:
    """Decides whose work the event loop does now; for one loop.

    Args:
        keys: Tells the tenant of a request. Requests without a known key have one line together,
            those to open paths another.
        bounds: Tells who was refused just now, by `perf_counter`, and what each has under way.
    """

    def __init__(self, keys: ApiKeys, bounds: TenantBounds) -> None:
        self._keys = keys
        self._bounds = bounds
        bounds.on_end = self._ended
        self._lines: dict[str, _Line] = {}
        self._credits: dict[str, float] = {}  # what those may still do in this pass that did something in it
        self._weights: dict[str, float] = {}
        self._asking: set[str] = set()
        self._asked: dict[str, float] = {}  # when each did last
        self._swept = 0.0
        self._is_due = False  # whether a pass is to come
        self._wake: asyncio.TimerHandle | None = None  # at the end of the first pause, where nothing else is to do

    def defer_request(self, exchange: Exchange, begin: Work) -> bool:
        """Let a request wait, unless its tenant may begin it now.

        Args:
            exchange: The request, whose turn it is on its connection; its tenant is noted in it.
            begin: Begins it later; false where it was answered meanwhile, or its client left.

        Returns:
            Whether it waits; if not, the caller begins it.
        """
        try:
            tenant = exchange.tenant = self._keys.tenant_of(exchange.headers)
        except EdgeInferError:
            path = exchange.url.partition(b"?")[0]
            tenant = _OPEN if path in _OPEN_PATHS else ANYONE  # the latter is refused, in its turn
        if self._may_begin(tenant, exchange.start):
            return False
        self._line(tenant.name).requests.append((exchange.start, begin))
        return True

    async def wait(self, tenant: Tenant) -> None:
        """Wait until a tenant may begin one more request, such as a frame of a WebSocket."""
        now = perf_counter()
        if self._may_begin(tenant, now):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> bool:
            if turn.done():  # who waited was cancelled
                return False
            turn.set_result(None)
            return True

        self._line(tenant.name).requests.append((now, begin))
        await turn

    def defer_answer(self, tenant: Tenant, answer: Work) -> bool:
        """Let an answer wait, unless its tenant may have it now.

        Args:
            tenant: Whose it is.
            answer: Writes and sends it later.

        Returns:
            Whether it waits; if not, the caller sends it.
        """
        if len(self._asking) == 1 or tenant.name not in self._asking or self._may(tenant.name):
            return False
        self._line(tenant.name).answers.append(answer)
        return True

    def _may_begin(self, tenant: Tenant, now: float) -> bool:
        """Take note that a tenant asks; return whether it may begin a request now."""
        self._asked[tenant.name] = now
        self._weights[tenant.name] = tenant.weight
        self._asking.add(tenant.name)
        if self._bounds.paused_until(tenant.name) > now and self._has_others(tenant.name, now):
            self._plan()
            return False
        if len(self._asking) > 1 and now - self._swept > _ASKS_S:
            self._sweep(now)
        if self._has_enough(tenant.name):
            self._plan()
            return False
        if len(self._asking) == 1 and tenant.name not in self._lines:
            return True
        return self._may(tenant.name)

    def _has_others(self, name: str, now: float) -> bool:
        """Tell whether another tenant asked in the last second."""
        return any(now - last <= _BESIDE_S for one, last in self._asked.items() if one not in (name, *_NOBODY))

    def _has_enough(self, name: str) -> bool:
        """Tell whether a tenant has enough under way beside another that asks now or waits for an answer."""
        bounds = self._bounds
        if not bounds.is_enough(name):
            return False
        others = self._asking.union(bounds.under_way).difference((name, *_NOBODY))
        asked_for = [
            (bounds.under_way[one] + len(self._lines[one].requests if one in self._lines else ())) / self._weights[one]
            for one in others
        ]
        return bool(others) and bounds.under_way[name] / self._weights[name] >= max(asked_for)

    def _ended(self, name: str) -> None:
        """Let the next request of a tenant begin, where one waits."""
        if name in self._lines:
            self._plan()

    def _may(self, name: str) -> bool:
        """Use up a part of what a tenant may do in this pass; false where nothing of it is left."""
        self._plan()
        if name in self._lines:
            return False
        left = self._credits.get(name)
        left = self._earned(name) if left is None else left
        self._credits[name] = left - 1 if left >= 1 else left
        return left >= 1

    def _line(self, name: str) -> _Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line()
        return line

    def _earned(self, name: str) -> float:
        """Return what a tenant may do in a pass."""
        return _A_PASS * self._weights[name] / max(self._weights[one] for one in self._asking)

    def _sweep(self, now: float) -> None:
        """Forget who does not ask any more."""
        self._swept = now
        for name in [one for one in self._asking if now - self._asked[one] > _ASKS_S and one not in self._lines]:
            self._asking.remove(name)
            self._credits.pop(name, None)

    def _plan(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        """Do what each tenant may do now; come back at once where that is not all, or when the first pause is over."""
        self._is_due = False
        before, self._credits = self._credits, {}
        now, due = perf_counter(), inf
        for name, line in list(self._lines.items()):
            left = min(before.get(name, 0.0), 1.0) + self._earned(name)
            resumes = 0.0
            while line and left >= 1:
                resumes = self._resumes(name, line, now)
                if resumes > now:
                    break
                work = line.answers.popleft() if line.answers else line.requests.popleft()[1]
                try:
                    left -= work()
                except Exception:  # one request harms no other
                    log.exception("A request failed in its turn")
                    left -= 1
            self._credits[name] = left
            if line:
                due = min(due, resumes)
            else:
                del self._lines[name]
        if due <= now:
            self._plan()
        elif due < inf:
            if self._wake is not None:
                self._wake.cancel()
            self._wake = asyncio.get_running_loop().call_later(due - now, self._plan)

    def _resumes(self, name: str, line: _Line, now: float) -> float:
        """Return when a line may go on; what is past for now."""
        if line.answers or len(line.requests) > _MOST_PAUSED:
            return now
        longest = line.requests[0][0] + _LONGEST_PAUSE_S
        if self._has_enough(name):
            return longest  # or when one of its requests is answered
        return min(self._bounds.paused_until(name), longest) if self._has_others(name, now) else now
