"""Have the C library give memory back: large blocks at once, where commands load large models, or all that is free."""

from __future__ import annotations

from threading import Lock

#: From this size of a model on it is worth it.
LARGE_BYTES = 2**24
#: M_MMAP_THRESHOLD of malloc.h, and the size of block that is mapped by itself from then on.
_THRESHOLD, _BLOCK_BYTES = -3, 2**20
#: M_TRIM_THRESHOLD: how much free memory at the end of a heap stays there when a block is freed.
_TRIM_THRESHOLD = -1
#: What glibc raises the two to by itself as large blocks are freed, at most (mallopt(3)).
_MOST_BYTES, _MOST_TRIM_BYTES = 32 * 2**20, 64 * 2**20
#: A block that no glibc maps by itself or keeps for the thread, so that freeing it looks at the end of the heap.
_PROBE_BYTES = 100_000
_setting = Lock()


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


def return_end_of_heap() -> None:
    """Give back what is free at the end of the calling thread's heap; it takes some microseconds, or 1 ms for 16 MiB.

    `malloc_trim` leaves it alone in all heaps but the first one. glibc gives it back as a block is freed, where it is
    more than M_TRIM_THRESHOLD (`heap_trim` of malloc/arena.c), which large blocks have raised. Afterwards that and
    M_MMAP_THRESHOLD are what large blocks raise them to at most. Where there is no glibc nothing happens.
    """
    import ctypes

    try:
        library = ctypes.CDLL(None)
        set_option, take, free = library.mallopt, library.malloc, library.free
    except (OSError, AttributeError, TypeError):  # no such library, or no such function
        return
    take.argtypes, take.restype, free.argtypes = [ctypes.c_size_t], ctypes.c_void_p, [ctypes.c_void_p]
    with _setting:
        set_option(_TRIM_THRESHOLD, _BLOCK_BYTES)
        free(take(_PROBE_BYTES))
        set_option(_TRIM_THRESHOLD, _MOST_TRIM_BYTES)
        set_option(_THRESHOLD, _MOST_BYTES)
