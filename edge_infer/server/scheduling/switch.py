"""VariantSwitch: the good variant while there is time, the fast one while requests pile up."""

from __future__ import annotations

from math import inf

#: What stands for a fast variant that is chosen when the model is loaded.
ANY_VARIANT = "auto"
#: How many batches for each worker must wait until the fast variant is taken, how few until that is over, and for how
#: long they must be that few: between the two nothing changes, so that a load at the edge does not flap.
_UP_BATCHES = 2.0
_DOWN_BATCHES = 0.5
_CALM_S = 2.0


class VariantSwitch:
    """Decides at the start of each batch, and when it is asked while nothing waits; it has no clock of its own.

    Args:
        up_batches: How many batches for each worker must wait for the fast variant.
        down_batches: How few are calm.
        calm_s: How long it must be calm until the good variant comes back.

    Attributes:
        is_fast: Whether the fast variant is in use.
        switches: How often that changed.

    >>> switch = VariantSwitch()
    >>> [switch.update(waiting, now) for waiting, now in ((0.0, 0.0), (3.0, 1.0), (1.0, 9.0), (0.0, 10.0), (0.0, 11.5))]
    [False, True, True, True, False]
    """

    __slots__ = ("_busy_at", "_calm_s", "_down_batches", "_up_batches", "is_fast", "switches")

    def __init__(
        self, up_batches: float = _UP_BATCHES, down_batches: float = _DOWN_BATCHES, calm_s: float = _CALM_S
    ) -> None:
        self.is_fast = False
        self.switches = 0
        self._up_batches = up_batches
        self._down_batches = down_batches
        self._calm_s = calm_s
        self._busy_at = -inf

    def update(self, waiting_batches: float, now: float) -> bool:
        """Take note of how much waits, and say whether the next batch runs on the fast variant.

        Args:
            waiting_batches: Batches that wait behind it, for each worker.
            now: The time in seconds.
        """
        if waiting_batches > self._down_batches:
            self._busy_at = now
        is_fast = now - self._busy_at < self._calm_s if self.is_fast else waiting_batches >= self._up_batches
        if is_fast != self.is_fast:
            self.is_fast = is_fast
            self.switches += 1
        return is_fast
