"""Look at a store again and again: with jitter, so that a fleet does not come at once, and back-off where it fails."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from edge_infer.sync.client import Pulled

#: The longest wait after failures, as a multiple of the interval.
MAX_BACKOFF = 32


def watch(
    pull: Callable[[], Pulled],
    *,
    interval_s: float,
    stop: Event,
    on_update: Callable[[Pulled], None] | None = None,
    on_error: Callable[[EdgeInferError], None] | None = None,
) -> None:
    """Pull until told to stop.

    Args:
        pull: Looks once and takes what is new.
        interval_s: The mean time between two looks; each wait is between half and one and a half of it.
        stop: Set to end at once.
        on_update: Told each change.
        on_error: Told each failure. A full disk is one too; the next look tries again.
    """
    failures = 0
    while not stop.is_set():
        try:
            pulled = pull()
            failures = 0
            if pulled.changed and on_update is not None:
                on_update(pulled)
        except (EdgeInferError, OSError) as error:
            failures += 1
            if on_error is not None:
                on_error(error if isinstance(error, EdgeInferError) else EdgeInferError(str(error)))
        stop.wait(wait_s(interval_s, failures, random.random()))


def wait_s(interval_s: float, failures: int, chance: float) -> float:
    """Return how long to wait after so many failures in a row, for a chance from 0 to 1."""
    return float(interval_s * min(2**failures, MAX_BACKOFF) * (0.5 + chance))
