"""Canary: a new version takes a part of the requests that name no version."""

from __future__ import annotations

from edge_infer.errors import InputError


class Canary:
    """Splits requests by percent, evenly: of 100 in a row exactly so many go to the new version.

    Args:
        version: The new version.
        percent: Its part, 0 to 100.

    Attributes:
        failure: Why the new version could not be had when it was last asked for; empty where it could.

    Raises:
        InputError: The part is none.

    >>> canary = Canary("2", 25)
    >>> [canary.takes_next() for _ in range(8)]
    [False, False, False, True, False, False, False, True]
    """

    __slots__ = ("_sum", "failure", "percent", "version")

    def __init__(self, version: str, percent: float) -> None:
        if not 0 <= percent <= 100:
            raise InputError(f"A canary takes {percent} percent, expected 0 to 100", hint='"percent": 10')
        self.version = version
        self.percent = percent
        self.failure = ""
        self._sum = 0.0

    def takes_next(self) -> bool:
        """Say whether the next request is for the new version."""
        self._sum += self.percent
        if self._sum < 100:
            return False
        self._sum -= 100
        return True
