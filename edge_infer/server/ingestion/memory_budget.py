"""How much memory the bodies of all requests take together, and the answers that their clients have not taken yet."""

from __future__ import annotations

from edge_infer.errors import QueueFull

#: The most bytes, unless the caller says otherwise: eight bodies of the largest size.
MAX_BODIES_BYTES = 512 * 2**20


class BodyMemory:
    """Counts the bytes of bodies that are read, wait or run, and of unsent answers, in the event loop's thread.

    Args:
        most: The most bytes. A body that is alone is taken though it has more: its own limit is another.

    Attributes:
        taken: The bytes now.
    """

    def __init__(self, most: int = MAX_BODIES_BYTES) -> None:
        self._most = most
        self.taken = 0

    def refusal(self, size: int) -> QueueFull | None:
        """Return the error for a body for which there is no room now; else None."""
        if not self.taken or self.taken + size <= self._most:
            return None
        return QueueFull(
            f"Requests that wait and answers that nobody reads fill the {self._most} bytes that there are for them",
            hint="come back after `Retry-After`, or send smaller batches",
            expected=self._most,
        )

    @property
    def is_short(self) -> bool:
        """Whether more than half of the bytes are taken."""
        return 2 * self.taken > self._most

    def is_over(self, part: int) -> bool:
        """Tell whether so many of the bytes that are taken are beyond the most; who is alone never is."""
        return self.taken > max(self._most, part)
