"""Have the C library give memory back: large blocks at once, where commands load large models, or all that is free."""

from __future__ import annotations

#: From this size of a model on it is worth it.
LARGE_BYTES = 2**24
#: M_MMAP_THRESHOLD of malloc.h, and the size of block that is mapped by itself from then on.
_THRESHOLD, _BLOCK_BYTES = -3, 2**20


def return_large_blocks() -> None:
    """Keep glibc from raising the size above which a block is given back to the system when it is freed.

    It raises it up to 32 MiB as blocks are freed (mallopt(3)); the weights of a model that is gone stay taken then.
    Where there is no glibc nothing happens.
    """
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(_THRESHOLD, _BLOCK_BYTES)
    except (OSError, AttributeError, TypeError):  # no such library, or no such function
        return


def return_free_memory() -> None:
    """Give back all memory that glibc keeps free (malloc_trim(3)); it takes a tenth of a second for a GB.

    Where there is no glibc nothing happens.
    """
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):  # no such library, or no such function
        return
