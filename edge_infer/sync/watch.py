"""Look at a store again and again: with jitter, so that a fleet does not come at once, and back-off where it fails."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError, NotReleasedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from edge_infer.sync.client import Pulled

_log = logging.getLogger(__name__)

#: The longest wait after failures, as a multiple of the interval.
MAX_BACKOFF = 32
#: After an event, devices come within this time, in seconds.
SPREAD_S = 1.0
#: A device that listens still looks, for the case that an event was lost: so many intervals later.
LISTENING = 10


def watch(
    pull: Callable[[], Pulled],
    *,
    interval_s: float,
    stop: Event,
    on_update: Callable[[Pulled], None] | None = None,
    on_error: Callable[[EdgeInferError], None] | None = None,
    wake: Event | None = None,
    is_listening: Callable[[], bool] = lambda: False,
) -> None:
    """Pull until told to stop.

    Args:
        pull: Looks once and takes what is new.
        interval_s: The mean time between two looks; each wait is between half and one and a half of it.
        stop: Set to end; at once, if `wake` is set after it.
        on_update: Told each change.
        on_error: Told each failure, whatever it was: a full disk and too little memory too. The next look tries again,
            also where this fails itself, which is logged.
        wake: Set to look soon; whoever gives it sets it to end too.
        is_listening: Whether something sets it when the store changes: looks in between are rarer then.
    """
    failures = 0
    bell = stop if wake is None else wake
    while not stop.is_set():
        try:
            pulled = pull()
            failures = 0
            if pulled.changed and on_update is not None:
                on_update(pulled)
        except NotReleasedError as error:
            failures = 0  # in order: the version is for others
            _tell(on_error, error)
        except Exception as error:  # whatever it was, the next look may do: a thread that ends here ends in silence
            failures += 1
            _tell(on_error, in_words(error))
        rarer = LISTENING if failures == 0 and is_listening() else 1
        if bell.wait(wait_s(interval_s * rarer, failures, random.random())) and not stop.is_set():
            bell.clear()
            stop.wait(random.random() * SPREAD_S)


def _tell(on_error: Callable[[EdgeInferError], None] | None, error: EdgeInferError) -> None:
    """Tell a failure; that of being told is logged."""
    try:
        if on_error is not None:
            on_error(error)
    except Exception:
        _log.exception("`on_error` failed when it was told: %s", error.message)


def in_words(error: Exception) -> EdgeInferError:
    """Return an error as one of ours."""
    if isinstance(error, EdgeInferError):
        return error
    return EdgeInferError(str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}")


def wait_s(interval_s: float, failures: int, chance: float) -> float:
    """Return how long to wait after so many failures in a row, for a chance from 0 to 1."""
    return float(interval_s * min(2**failures, MAX_BACKOFF) * (0.5 + chance))
