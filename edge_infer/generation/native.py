"""The decoder's engine natively: the mapped weight file and the kernels of this CPU, through ctypes."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

from edge_infer.errors import OutOfMemory
from edge_infer.generation.checks import batch_fault, check_fields, checked_context, damaged
from edge_infer.generation.team import Team
from edge_infer.generation.weight_file import WeightFile
from edge_infer.kernels.generation import GenerationLibrary, generation_library
from edge_infer.platform.cpu import usable_cpus

if TYPE_CHECKING:
    from array import array
    from pathlib import Path


class NativeEngine:
    """One open weight file with a cache; see `decoder.Engine`.

    Args:
        path: The weight file.
        slots: Sequences that the cache holds.
        context: Positions kept for each; the model's own unless given.
        library: The kernels; those of this CPU unless given.
        threads: Threads that compute; None for as many as are faster, up to the processors that this process may use.

    Raises:
        BundleError: It is not a weight file, or is damaged.
        InputError: The model has fewer positions than `context`.
        OutOfMemory: There is no memory for the cache.
        BackendUnavailable: There are no kernels for this system or CPU.
    """

    def __init__(
        self,
        path: Path,
        slots: int,
        context: int | None,
        library: GenerationLibrary | None = None,
        *,
        threads: int | None = 1,
    ) -> None:
        self._kernels = library or generation_library()
        self._file = WeightFile(path)
        self._memory: list[tuple[mmap.mmap, object]] = []
        self._team: Team | None = None
        self._program = ctypes.create_string_buffer(self._file.program)
        self.config = self._file.config
        try:
            check_fields(self._file.program, self.config, path.name)
            wrong = self._kernels.check(self._program, len(self._file.program) // 4, float(len(self._file.data)))
            if wrong:
                raise damaged(wrong, path.name)
            self.slots, self.context = slots, checked_context(self.config, context)
            self._weights = self._address(self._file.data)
            self._cache = self._reserve(self._kernels.cache_bytes(self._program, slots, self.context))
            self._scratch = self._reserve(self._kernels.scratch_bytes(self._program, self.context))
            count = usable_cpus() if threads is None else threads
            if count > 1:
                self._team = Team(self._kernels, self._program, self.context, count, is_fixed=threads is not None)
        except BaseException:
            self.close()
            raise
        self._logits = ctypes.create_string_buffer(4 * self.config.vocab_size)
        self._best = (ctypes.c_int32 * 1)(), (ctypes.c_float * 1)()

    @property
    def threads(self) -> int:
        """How many threads compute the next token."""
        return 1 if self._team is None else self._team.threads

    def run(self, rows: array[int], count: int, wanted: array[int]) -> str:
        """Compute a batch; see `decoder.Engine.run`."""
        self._file.check_whole()
        place, asked = rows.buffer_info()[0], wanted.buffer_info()[0]
        wrong = self._kernels.check_rows(self._program, self.slots, self.context, place, count, asked, len(wanted))
        if wrong:
            return batch_fault(wrong, rows, count, wanted, (self.config.vocab_size, self.slots, self.context))
        if len(self._logits) < 4 * self.config.vocab_size * len(wanted):
            self._logits = ctypes.create_string_buffer(4 * self.config.vocab_size * len(wanted))
        arguments = (
            *(self._program, self._weights, self._cache, self._scratch, self.slots, self.context),
            *(place, count, asked, len(wanted), self._logits),
        )
        if self._team is None or not count:
            self._kernels.run(*arguments)
        else:
            self._team.run(count, arguments)
        return ""

    def logits(self, index: int) -> memoryview[float]:
        """Give the logits of a wanted row; see `decoder.Engine.logits`."""
        size = 4 * self.config.vocab_size
        return memoryview(self._logits).cast("B")[index * size : (index + 1) * size].cast("f")

    def top(self, index: int, count: int) -> list[tuple[int, float]]:
        """Give the best tokens of a wanted row; see `decoder.Engine.top`."""
        if len(self._best[0]) < count:
            self._best = (ctypes.c_int32 * count)(), (ctypes.c_float * count)()
        ids, values = self._best
        place = ctypes.addressof(self._logits) + 4 * self.config.vocab_size * index
        self._kernels.top(place, self.config.vocab_size, count, ids, values)
        return list(zip(ids[:count], values[:count], strict=True))

    def copy(self, from_slot: int, to_slot: int, length: int) -> None:
        """Copy the first positions of a slot; see `decoder.Engine.copy`."""
        self._kernels.copy(self._program, self._cache, self.slots, self.context, from_slot, to_slot, length)

    def close(self) -> None:
        """Unmap the weights and give the cache back. A second call does nothing."""
        if self._team is not None:
            self._team.close()
            self._team = None
        while self._memory:
            memory, _ = self._memory.pop()
            del _
            memory.close()
        self._file.close()

    def _reserve(self, size: float) -> int:
        try:
            return self._address(mmap.mmap(-1, max(int(size), 1)))
        except (OSError, OverflowError, ValueError, MemoryError) as error:
            raise OutOfMemory(
                f"There is no memory for the decoder: {size / 2**20:.0f} MiB for {self.slots} slots of {self.context}",
                hint="take fewer slots, or a smaller context",
            ) from error

    def _address(self, memory: mmap.mmap) -> int:
        """Keep a mapping, and return where it begins."""
        first = ctypes.c_char.from_buffer(memory)
        self._memory.append((memory, first))
        return ctypes.addressof(first)
