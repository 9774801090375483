"""The decoder's engine in a page: Python in Pyodide over the kernels of `web/src/generation/decoder.js`."""

from __future__ import annotations

from os import SEEK_END
from typing import TYPE_CHECKING

from edge_infer.backends.web.decoder import PageDecoder
from edge_infer.errors import BundleError
from edge_infer.generation.checks import check_fields, checked_context
from edge_infer.generation.weight_file import MAX_HEADER_BYTES, read_header

if TYPE_CHECKING:
    from array import array
    from pathlib import Path

#: Bytes of the file that Python holds at once.
_PIECE_BYTES = 2**20


class PageEngine:
    """One open weight file with a cache in the kernels' memory; see `decoder.Engine`.

    Args:
        path: The weight file, in Pyodide's file system.
        slots: Sequences that the cache holds.
        context: Positions kept for each; the model's own unless given.
        threads: The most threads; None for as many as are faster.

    Raises:
        BundleError: It is not a weight file, or is damaged.
        InputError: The model has fewer positions than `context`.
        OutOfMemory: The page has no memory for it.
        UnsupportedError: The kernels have not started, and this place cannot wait for them; or it has no threads.
    """

    def __init__(self, path: Path, slots: int, context: int | None, threads: int | None) -> None:
        try:
            with path.open("rb") as file:
                size = file.seek(0, SEEK_END)
                file.seek(0)
                head = file.read(8)
                head += file.read(min(int.from_bytes(head, "little"), MAX_HEADER_BYTES))
                self.config, tensors = read_header(head, size)
                place = tensors["program"]
                file.seek(place.start)
                check_fields(file.read(place.end - place.start), self.config, path.name)
                self.context = checked_context(self.config, context)
                file.seek(0)
                pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
                self._decoder = PageDecoder(size, pieces, slots, self.context, self.config.vocab_size, threads)
        except OSError as error:
            raise BundleError(f"The weight file `{path}` cannot be read: {error}") from error

    @property
    def threads(self) -> int:
        """How many threads compute the next token."""
        return self._decoder.threads

    def run(self, rows: array[int], count: int, wanted: array[int]) -> str:
        """Compute a batch; see `decoder.Engine.run`."""
        return self._decoder.run(rows + wanted, count, len(wanted))

    def logits(self, index: int) -> memoryview[float]:
        """Give the logits of a wanted row; see `decoder.Engine.logits`."""
        return self._decoder.logits(index)

    def top(self, index: int, count: int) -> list[tuple[int, float]]:
        """Give the best tokens of a wanted row; see `decoder.Engine.top`."""
        return self._decoder.top(index, count)

    def copy(self, from_slot: int, to_slot: int, length: int) -> None:
        """Copy the first positions of a slot; see `decoder.Engine.copy`."""
        self._decoder.copy(from_slot, to_slot, length)

    def close(self) -> None:
        """Give the memory back. A second call does nothing."""
        self._decoder.close()
