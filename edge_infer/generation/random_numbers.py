"""Random numbers from a seed: the same in Python and JavaScript."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


class RandomNumbers:
    """Uniform numbers of sfc32, the small fast counting generator of C. Doty-Humphrey's PractRand, on 32-bit integers.

    Args:
        seed: A whole number; its lower 64 bits count.
    """

    __slots__ = ("_a", "_b", "_c", "_count")

    def __init__(self, seed: int) -> None:
        self._a, self._b, self._c, self._count = 0x9E3779B9, seed & _MASK, (seed >> 32) & _MASK, 1
        for _ in range(15):
            self.word()

    def word(self) -> int:
        """Return the next 32 bits."""
        a, b, c = self._a, self._b, self._c
        found = (a + b + self._count) & _MASK
        self._count = (self._count + 1) & _MASK
        self._a = b ^ (b >> 9)
        self._b = (c + (c << 3)) & _MASK
        self._c = ((((c << 21) & _MASK) | (c >> 11)) + found) & _MASK
        return found

    def uniform(self) -> float:
        """Return the next number of 53 bits, at least 0 and below 1."""
        high = self.word() >> 5
        return (high * 67108864 + (self.word() >> 6)) / 9007199254740992.0
