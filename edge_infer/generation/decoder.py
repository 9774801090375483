"""A decoder that runs: tokens in, logits out, with the same bits in every place.

The computing is done by `kernels/source/generation`: natively through ctypes, in a page by the same sources as
WebAssembly (`backends/web/decoder.py`). No kernel's result depends on the other rows of a batch.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from edge_infer.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from edge_infer.generation.config import DecoderConfig

#: Slots of one cache.
MAX_SLOTS = 4096
#: Threads of one decoder.
MAX_THREADS = 256


class Engine(Protocol):
    """What runs a checked program in one place: the kernels with their weights, their cache and their logits."""

    config: DecoderConfig
    context: int

    @property
    def threads(self) -> int:
        """How many threads compute the next token."""
        ...

    def run(self, rows: array[int], count: int, wanted: array[int]) -> str:
        """Compute a batch, and give what is wrong with it; nothing where it was computed."""
        ...

    def logits(self, index: int) -> memoryview[float]:
        """Give float32[vocab_size] of a wanted row."""
        ...

    def top(self, index: int, count: int) -> list[tuple[int, float]]:
        """Give the best tokens of a wanted row."""
        ...

    def copy(self, from_slot: int, to_slot: int, length: int) -> None:
        """Copy the first positions of a slot."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class Decoder:
    """A decoder with its weights and its cache; made by `open`, closed by `close` or as a context manager.

    It belongs to one thread.

    Args:
        engine: What computes.
        slots: Sequences that the cache holds.
        context: Positions kept for each of them.
    """

    def __init__(self, engine: Engine, slots: int, context: int) -> None:
        self.config: DecoderConfig = engine.config
        self.slots = slots
        self.context = context
        self._engine: Engine | None = engine
        self._wanted = 0

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, slots: int = 1, context: int | None = None, threads: int | None = 1
    ) -> Self:
        """Open a weight file; natively it is mapped, not read.

        Args:
            path: A file of `write_weight_file`.
            slots: Sequences that the cache holds at once.
            context: Positions kept for each; the model's own context unless given, and never more.
            threads: Threads that compute; None for as many as are faster, up to the processors that this process may
                use. The number changes no result. A page has threads where it is cross-origin isolated.

        Raises:
            BundleError: It is not a weight file, or is damaged.
            InputError: `slots` or `context` is out of range.
            OutOfMemory: There is no memory for the cache.
            BackendUnavailable: There are no kernels for this system or CPU.
            UnsupportedError: In a page: `threads` is more than 1 where it has none; or it cannot wait, and the kernels
                have not started.
        """
        # The kernels take both as 32-bit integers.
        if type(slots) is not int or not 1 <= slots <= MAX_SLOTS:
            raise InputError(f"slots is {slots!r}, expected 1 to {MAX_SLOTS}")
        if context is not None and (type(context) is not int or context < 1):
            raise InputError(f"context is {context!r}, expected 1 or more")
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
            raise InputError(f"threads is {threads!r}, expected 1 to {MAX_THREADS}")
        engine: Engine
        if sys.platform == "emscripten":
            from edge_infer.generation.page import PageEngine

            engine = PageEngine(Path(path), slots, context, threads)
        else:
            from edge_infer.generation.native import NativeEngine

            engine = NativeEngine(Path(path), slots, context, threads=threads)
        return cls(engine, slots, engine.context)

    @classmethod
    async def open_async(
        cls, path: str | os.PathLike[str], *, slots: int = 1, context: int | None = None, threads: int | None = 1
    ) -> Self:
        """Do as `open`, in every place: in a page it waits for the kernels."""
        if sys.platform == "emscripten":
            from edge_infer.backends.web.decoder import start

            await start()
        return cls.open(path, slots=slots, context=context, threads=threads)

    @property
    def threads(self) -> int:
        """How many threads compute the next token; where the number was left open, it changes with the load."""
        return 1 if self._engine is None else self._engine.threads

    def run(self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], wanted: Sequence[int]) -> None:
        """Compute one flat batch of rows: row i is `tokens[i]` at `positions[i]` of `slots[i]`.

        The cache is written at those positions. Each row sees the positions of its slot up to its own. A row's result
        is the same alone and in company.

        Args:
            tokens: Ids from 0 to `config.vocab_size` - 1.
            slots: From 0 to `slots` - 1.
            positions: From 0 to `context` - 1; those of one slot stand together, and rise.
            wanted: Rising indices of the rows whose logits are computed.

        Raises:
            InputError: A value is out of range, or the lists do not fit together.
        """
        engine, count = self._open_engine(), len(tokens)
        if len(slots) != count or len(positions) != count:
            raise InputError(f"The batch has {count} tokens, {len(slots)} slots and {len(positions)} positions")
        try:
            rows, asked = array("i", tokens), array("i", wanted)
            rows.extend(slots)
            rows.extend(positions)
        except (OverflowError, TypeError) as error:
            raise InputError(f"The batch holds something else than 32-bit integers: {error}") from error
        self._wanted = 0
        fault = engine.run(rows, count, asked)
        if fault:
            raise InputError(fault)
        self._wanted = len(asked)

    def logits(self, index: int) -> memoryview[float]:
        """Return the logits of the index-th wanted row: float32[vocab_size], writable, valid until the next run.

        Raises:
            InputError: The last run computed no such row.
        """
        return self._open_engine().logits(self._checked(index))

    def top(self, index: int, count: int) -> list[tuple[int, float]]:
        """Return the best tokens of the index-th wanted row as (id, logit), by (-logit, id).

        A NaN stands before every number, so that the first entry tells whether there is one.

        Args:
            index: Of `wanted`.
            count: How many; no more than the vocabulary has.

        Raises:
            InputError: The last run computed no such row, or `count` is less than 1.
        """
        if count < 1:
            raise InputError(f"count is {count}, expected 1 or more")
        return self._open_engine().top(self._checked(index), min(count, self.config.vocab_size))

    def copy(self, from_slot: int, to_slot: int, length: int) -> None:
        """Copy what the cache holds of one slot's first positions into another slot.

        Raises:
            InputError: A slot or the length is out of range.
        """
        engine = self._open_engine()
        for slot in (from_slot, to_slot):
            if type(slot) is not int or not 0 <= slot < self.slots:
                raise InputError(f"slot {slot!r} is out of range, expected 0 to {self.slots - 1}")
        if type(length) is not int or not 0 <= length <= self.context:
            raise InputError(f"length {length!r} is out of range, expected 0 to {self.context}")
        if from_slot != to_slot:
            engine.copy(from_slot, to_slot, length)

    def close(self) -> None:
        """Give the weights and the cache back. A second call does nothing."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_engine(self) -> Engine:
        if self._engine is None:
            raise InputError("The decoder is closed", hint="open it again")
        return self._engine

    def _checked(self, index: int) -> int:
        if not 0 <= index < self._wanted:
            raise InputError(f"logits {index} were not computed; the last run computed {self._wanted}")
        return index
