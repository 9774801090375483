"""Cut bytes where their content says so: what was inserted or moved changes the chunks around it, and no others.

The gear hash (Xia et al. 2014, "Ddelta", section 3.2) of the last 32 bytes is the sum of a random number for each byte,
doubled with every byte that follows; a chunk ends where its highest bits are zero. Needs numpy, which computes all
hashes at once: the sum over 2 n bytes is that of the last n, plus that of the n before them doubled n times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_CHUNK = 2**12
MAX_CHUNK = 2**16
# 14 bits: a chunk has 16 kB beyond the least in the mean, as FastCDC 16k, the best on models' graphs (LOG.md).
_MASK = 0xFFFC_0000
_WINDOW = 32
_BLOCK = 2**20


def cut(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the (offset, length) of each chunk, which together are the data."""
    start = 0
    for end in _ends(data):
        while end - start > MAX_CHUNK:
            yield start, MAX_CHUNK
            start += MAX_CHUNK
        if end - start >= MIN_CHUNK:
            yield start, end - start
            start = end
    for at in range(start, len(data), MAX_CHUNK):
        yield at, min(MAX_CHUNK, len(data) - at)


def _ends(data: memoryview) -> Iterator[int]:
    """Yield where a chunk may end."""
    import numpy as np

    gear = np.random.RandomState(0).randint(0, 2**32, 256, np.uint32)  # fixed for ever, unlike a Generator
    for start in range(0, len(data), _BLOCK):
        before = min(start, _WINDOW - 1)
        sums = gear[np.frombuffer(data[start - before : start + _BLOCK], "u1")]
        width = 1
        while width < _WINDOW:
            sums[width:] += sums[:-width] << np.uint32(width)
            width *= 2
        yield from (np.flatnonzero(sums[before:] & np.uint32(_MASK) == 0) + start + 1).tolist()
