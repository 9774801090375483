"""Waiting for a state that another thread or process brings about."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(holds: Callable[[], object], limit_s: float = 120.0, pause_s: float = 0.001) -> None:
    """Return when a condition holds; the processor is free meanwhile.

    Args:
        holds: The condition.
        limit_s: How long it may take.
        pause_s: Between two looks: longer where a look costs more than a call.

    Raises:
        TimeoutError: It does not hold in time.
    """
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"The condition does not hold after {limit_s:g} s")
        time.sleep(pause_s)
