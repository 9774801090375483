"""FreeMemory: gives free memory of the C library back to the system, where it is much more than what requests hold.

glibc keeps large blocks that were freed, and small ones among them keep it from using them again: a hundred answers of
16 MiB a second, within a bound of 512 MB, left 1.2 GB resident. To map each large block by itself would take clients of
large answers half of their rate or more, so what is free is returned now and then instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edge_infer.platform.allocator import return_free_memory
from edge_infer.server.metrics.memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

#: How much more than before the process may occupy, beside what requests hold, until that is done.
_SPARE_BYTES = 128 * 2**20
_EVERY_S = 0.5


class FreeMemory:
    """Looks twice a second; one look costs some 20 microseconds.

    Args:
        held: Tells how many bytes requests and unsent answers hold.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        self._held = held
        self._rest: int | None = None  # what the process occupied at the least, beside what requests held

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Give memory back where there is much more of it than at the last look; models that came may be the cause."""
        rest = self._rest_now()
        if self._rest is not None and rest > self._rest + _SPARE_BYTES:
            await asyncio.to_thread(return_free_memory)
            self._rest = self._rest_now()
        elif self._rest is None or rest < self._rest:
            self._rest = rest

    def _rest_now(self) -> int:
        return resident_bytes() - self._held()
