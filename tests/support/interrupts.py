"""Processes that Ctrl-C ends, however the tests themselves were started."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def heeded() -> Iterator[None]:
    """Let processes started meanwhile heed Ctrl-C, which those of a shell's background inherit as ignored.

    In this process, before they start: what runs between fork and exec may hang where there are threads.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
