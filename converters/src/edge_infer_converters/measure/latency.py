"""Measure the latency of a variant as a ratio to its float parent, both run in turn.

One figure of a single run says little: other programs, clock speed and caches change between runs. Each round times
both sides, one after the other, and gives one ratio; the median of many counts, and its quarters say how sure it is.
Engines run on one thread, and the clock is the CPU time of the process: what other programs take is not in it.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.runtime.selection import exact_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from edge_infer import Session
    from edge_infer.bundle.variant import Variant

#: How long each side of a round runs at least: the clock and the call's own cost no longer matter.
_MIN_ROUND_S = 0.001
_MIN_ROUNDS = 7
_MAX_ROUNDS = 31
#: After how long no further round is started.
_MAX_SECONDS = 2.0
#: What at least three of four rounds must exceed for a variant to be called slower than float.
SLOW = 1.1
#: And by how much a call must be slower: a net of some microseconds has nothing to lose.
_MIN_SLOWER_MS = 0.05


class Latency(NamedTuple):
    """How long one side takes against the other.

    Attributes:
        parent: The id of what it is compared with.
        ratio: The median of the rounds' ratios; below 1 is faster.
        low: The quarter of the rounds that is below this.
        high: The quarter that is above this.
        ms: The median time of one call in milliseconds.
        rounds: How many rounds were run.
    """

    parent: str
    ratio: float
    low: float
    high: float
    ms: float
    rounds: int

    @property
    def is_slow(self) -> bool:
        """Whether it is clearly slower, by a time that matters."""
        return self.low > SLOW and self.ms * (1 - 1 / self.ratio) >= _MIN_SLOWER_MS

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x of {self.parent} ({self.low:.2f} to {self.high:.2f})"

    def to_json(self) -> dict[str, float | str]:
        """Describe this as `quality.json` does."""
        figures = {name: round(getattr(self, name), 4) for name in ("ratio", "low", "high", "ms")}
        return {"parent": self.parent, **figures, "rounds": self.rounds, "threads": 1}


def compare(parent_id: str, parent: Callable[[], object], ours: Callable[[], object]) -> Latency:
    """Time two calls in turn.

    Args:
        parent_id: What to call the first.
        parent: Runs the float model once.
        ours: Runs the variant once.
    """
    calls = (parent, ours)
    counts = [_repeats(call) for call in calls]
    ratios: list[float] = []
    times: list[float] = []
    end = time.perf_counter() + _MAX_SECONDS
    while len(ratios) < _MAX_ROUNDS and (len(ratios) < _MIN_ROUNDS or time.perf_counter() < end):
        order = (0, 1) if len(ratios) % 2 == 0 else (1, 0)
        taken = [0.0, 0.0]
        for side in order:
            start = time.process_time()
            for _ in range(counts[side]):
                calls[side]()
            taken[side] = max(time.process_time() - start, 1e-9) / counts[side]
        ratios.append(taken[1] / taken[0])
        times.append(taken[1])
    low, _, high = statistics.quantiles(ratios, n=4)
    return Latency(parent_id, statistics.median(ratios), low, high, statistics.median(times) * 1000, len(ratios))


def measure(bundle: Path, variants: Sequence[Variant], call: Mapping[str, np.ndarray]) -> dict[str, Latency]:
    """Time the variants of a bundle against the fp32 variant of the same format, on one thread of the CPU.

    Args:
        bundle: The bundle's folder.
        variants: What it holds.
        call: The inputs of one call.

    Returns:
        The figures by id, of all variants that have such a parent and run.
    """
    import edge_infer

    found: dict[str, Latency] = {}
    # Two models whose weights lie beside them, each of a gigabyte and more, are not held at once to be timed.
    for parent in [variant for variant in variants if variant.precision == "fp32" and not variant.external]:
        others = [one for one in variants if one.format == parent.format and one.id != parent.id]
        if not others:
            continue

        def load(variant: Variant) -> Session:
            backend = exact_engine(variant.format)
            threads = None if variant.format == "compiled" else 1  # these have one, and take no number
            return edge_infer.load(
                bundle, variant=variant.id, backend=backend, device="cpu", threads=threads, arrays="numpy"
            )

        with load(parent) as base:
            for other in others:
                with load(other) as session:
                    found[other.id] = compare(parent.id, partial(base.run, call), partial(session.run, call))
    return found


def longest_s(call_s: float) -> float:
    """Return how long a comparison takes where one call of both sides takes so long."""
    round_s = 2 * max(_MIN_ROUND_S, call_s)
    return round_s * min(_MAX_ROUNDS, max(_MIN_ROUNDS, _MAX_SECONDS / round_s)) + 4 * call_s


def _repeats(call: Callable[[], object]) -> int:
    """Return how often to call in one round; the first call, which engines prepare in, is not counted."""
    call()
    start = time.process_time()
    call()
    return max(1, round(_MIN_ROUND_S / max(time.process_time() - start, 1e-6)))
