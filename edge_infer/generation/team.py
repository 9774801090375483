"""Threads that compute a native decoder's batches together, and how many of them are worth it just now.

The threads wait in the kernels (`kernels/source/generation/team.h`), without Python's lock. How many take part changes
no bit of a result, so that the number may change between two batches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edge_infer.errors import OutOfMemory

if TYPE_CHECKING:
    from edge_infer.kernels.generation import GenerationLibrary

#: Rows of a batch that is measured as a prompt; a step of some streams has fewer.
_PROMPT_ROWS = 16
#: Batches in a row that one number of threads computes while two are compared.
_TRIAL = 4
#: They end at once; a process that ends does not wait longer for them.
_END_S = 1.0
#: Batches between two comparisons: doubled each time that the choice stays.
_SHORTEST, _LONGEST = 16, 256


class ThreadChoice:
    """Chooses between one thread and all of them by what they took lately.

    Another busy process turns the choice: a batch that waits for a thread that the system put aside is slower than one
    that waits for nobody.

    Args:
        most: All of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._current = most
        self._averages: dict[int, float] = {}
        self._period = _SHORTEST
        self._left = -1
        self._trial: list[float] = []
        self._trials: list[int] = [1, most]

    @property
    def threads(self) -> int:
        """How many compute the next batch."""
        return self._trials[-1] if self._trials else self._current

    def add(self, seconds: float) -> None:
        """Take note of how long a row of the last batch took."""
        if self._trials:
            self._trial.append(seconds)
            if len(self._trial) == _TRIAL:
                # The first batch wakes threads, and reads weights that were never read.
                self._averages[self._trials.pop()] = sum(self._trial[1:]) / (_TRIAL - 1)
                self._trial = []
                if not self._trials:
                    self._choose()
            return
        self._left -= 1
        if self._left <= 0:
            self._trials = [self._current, 1 if self._current != 1 else self._most]

    def _choose(self) -> None:
        best = min(self._averages, key=self._averages.__getitem__)
        self._period = min(2 * self._period, _LONGEST) if best == self._current else _SHORTEST
        self._current, self._left = best, self._period


class Team:
    """Threads for the batches of one decoder, until `close`.

    Args:
        kernels: The library.
        program: The checked program.
        context: Positions of a slot.
        threads: All of them, the caller of `run` included: 2 or more.
        is_fixed: Whether all of them always take part; else as many as are faster.

    Raises:
        OutOfMemory: There is no memory for what each thread needs, or the system starts no more of them.
    """

    def __init__(
        self,
        kernels: GenerationLibrary,
        program: ctypes.Array[ctypes.c_char],
        context: int,
        threads: int,
        *,
        is_fixed: bool,
    ) -> None:
        self._kernels = kernels
        size = int(kernels.team_bytes(program, context, threads))
        try:
            memory = mmap.mmap(-1, size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise OutOfMemory(
                f"There is no memory for {threads} threads: {size / 2**20:.0f} MiB", hint="take fewer threads"
            ) from error
        first = ctypes.c_char.from_buffer(memory)
        self._place = ctypes.addressof(first)
        self._threads = threads
        self._choices = None if is_fixed else (ThreadChoice(threads), ThreadChoice(threads))
        self._process = os.getpid()
        kernels.team_begin(self._place, threads)
        # They hold the memory and not this object, so that they end with it.
        others = [
            threading.Thread(
                target=_join, args=(kernels, self._place, index, first), name=f"edge-infer decoder {index}", daemon=True
            )
            for index in range(1, threads)
        ]
        # Before the first one starts: what fails then lets the others end.
        self._finalizer = weakref.finalize(self, _end, kernels, self._place, first, self._process, others)
        try:
            for other in others:
                other.start()
        except RuntimeError as error:
            self.close()
            raise OutOfMemory(
                f"The system does not start {threads} threads: {error}", hint="take fewer threads"
            ) from error

    @property
    def threads(self) -> int:
        """How many threads compute the next token."""
        if self._process != os.getpid():
            return 1
        return self._threads if self._choices is None else self._choices[0].threads

    def run(self, rows: int, arguments: tuple[Any, ...]) -> None:
        """Compute a batch of so many rows; the arguments are those of `decoder_run`."""
        if self._process != os.getpid():  # a fork has no threads but the one that made it
            self._kernels.run(*arguments)
            return
        if self._choices is None:
            self._kernels.run_shared(self._place, *arguments)
            return
        choice = self._choices[rows >= _PROMPT_ROWS]
        start = perf_counter()
        if choice.threads == 1:
            self._kernels.run(*arguments)
        else:
            self._kernels.run_shared(self._place, *arguments)
        choice.add((perf_counter() - start) / rows)

    def close(self) -> None:
        """Let the threads end. A second call does nothing."""
        self._finalizer()


def _join(kernels: GenerationLibrary, place: int, index: int, memory: object) -> None:
    kernels.join(place, index)
    del memory


def _end(kernels: GenerationLibrary, place: int, memory: object, process: int, others: list[threading.Thread]) -> None:
    if process == os.getpid():
        kernels.team_end(place)
        for other in others:
            if other.ident is not None:
                other.join(_END_S)
    del memory
