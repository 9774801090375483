"""The counters of each model: outcomes, and the time of each stage. Counting a request is a few plain assignments."""

from __future__ import annotations

from bisect import bisect_left
from time import time
from typing import TYPE_CHECKING

from edge_infer.errors import OverShare, QueueFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.server.scheduling.request import Timings

#: Seconds: from a tenth of a millisecond to half a minute, about three to a decade.
TIME_BOUNDS = (0.0001, 0.0003, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NO_ROOM = frozenset({QueueFull.code, OverShare.code})
BATCH_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Histogram:
    """Counts by upper bound, and the sum.

    Args:
        bounds: The upper bounds, rising; what is larger is counted last.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = TIME_BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)


class Statistics:
    """The counts of one model version; they belong to the event loop's thread."""

    def __init__(self) -> None:
        self.queue = Histogram()
        self.batch_wait = Histogram()
        self.compute = Histogram()
        self.serialization = Histogram()
        self.total = Histogram()
        self.batch_rows = Histogram(BATCH_BOUNDS)
        #: Batches by their rows: how many, and the seconds that they took. What is over the last bound counts at the
        #: next power of two: clients choose the rows of a request.
        self.batches: dict[int, tuple[int, float]] = {}
        #: Batches by the variant that ran them, where a model has several.
        self.variants: dict[str, int] = {}
        #: Requests answered, by the tenant that asked, where there are tenants.
        self.tenants: dict[str, int] = {}
        self.requests = 0
        self.failures: dict[str, int] = {}
        self.failure_s = 0.0
        self.rejections: dict[str, int] = {}
        self.cache_hits = 0
        self.cache_misses = 0
        self.coalesced = 0
        self.last_inference = 0.0

    def ran(self, rows: int, compute_s: float, variant: str = "") -> None:
        """Count a batch."""
        if variant:
            self.variants[variant] = self.variants.get(variant, 0) + 1
        self.batch_rows.observe(rows)
        if rows > BATCH_BOUNDS[-1]:
            rows = 1 << (rows - 1).bit_length()
        count, seconds = self.batches.get(rows, (0, 0.0))
        self.batches[rows] = (count + 1, seconds + compute_s)
        self.last_inference = time()

    def answered(self, timings: Timings, serialization_s: float, total_s: float, tenant: str = "") -> None:
        """Count a request that was answered."""
        self.requests += 1
        if tenant:
            self.tenants[tenant] = self.tenants.get(tenant, 0) + 1
        self.queue.observe(timings.queue)
        self.batch_wait.observe(timings.batch_wait)
        self.compute.observe(timings.compute)
        self.serialization.observe(serialization_s)
        self.total.observe(total_s)

    def failed(self, code: str, total_s: float) -> None:
        """Count a request that failed; one that was let in and had no room after all counts as rejected."""
        if code in _NO_ROOM:
            self.rejected(code)
            return
        self.failures[code] = self.failures.get(code, 0) + 1
        self.failure_s += total_s

    def rejected(self, code: str) -> None:
        """Count a request for which there was no room."""
        self.rejections[code] = self.rejections.get(code, 0) + 1
