"""FreeMemory: gives free memory of the C library back to the system, where it is much more than what requests hold.

glibc keeps large blocks that were freed, and small ones among them keep it from using them again: a hundred answers of
16 MiB a second, within a bound of 512 MB, left 1.2 GB resident. To map each large block by itself would take clients of
large answers half of their rate or more, so what is free is returned now and then instead: much of it at once, little
of it when requests have held nothing for a while. What is free at the end of the heap of a thread stays even then,
three answers of 16 MiB in one of two runs, unless the thread itself gives it back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edge_infer.platform.allocator import return_end_of_heap, return_free_memory
from edge_infer.server.metrics.memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

#: How much more than before the process may occupy, beside what requests hold, until that is done.
_SPARE_BYTES = 128 * 2**20
#: The same where requests held next to nothing at so many looks in a row.
_IDLE_SPARE_BYTES, _IDLE_LOOKS = 8 * 2**20, 4
_EVERY_S = 0.5


class FreeMemory:
    """Looks twice a second; one look costs some 20 microseconds.

    Args:
        held: Tells how many bytes requests and unsent answers hold.
        in_each_thread: Lets each thread that runs models call a function, some time.
    """

    def __init__(self, held: Callable[[], int], in_each_thread: Callable[[Callable[[], None]], None]) -> None:
        self._held = held
        self._in_each_thread = in_each_thread
        self._rest: int | None = None  # what the process occupied at the least, beside what requests held
        self._idle_looks = 0
        self._is_due = False  # whether requests held much since they held nothing for a while

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Give memory back where there is more of it than at the last look; models that came may be the cause."""
        held = self._held()
        rest = resident_bytes() - held
        self._idle_looks = self._idle_looks + 1 if held <= _IDLE_SPARE_BYTES else 0
        is_idle = self._idle_looks >= _IDLE_LOOKS
        if self._rest is None or rest < self._rest:
            self._rest = rest
        over = rest - self._rest
        if over > _SPARE_BYTES or (is_idle and (self._is_due or over > _IDLE_SPARE_BYTES)):
            await asyncio.to_thread(return_free_memory)
            if is_idle:
                self._in_each_thread(return_end_of_heap)
            self._rest = resident_bytes() - self._held()
            self._idle_looks, self._is_due = 0, not is_idle
        elif held > _IDLE_SPARE_BYTES:
            self._is_due = True
