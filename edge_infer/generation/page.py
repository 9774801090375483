"""The decoder's engine in a page: Python in Pyodide over the kernels of `web/src/generation/decoder.js`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.backends.web.decoder import PageDecoder
from edge_infer.errors import BundleError
from edge_infer.generation.checks import check_fields, checked_context
from edge_infer.generation.weight_file import read_header

if TYPE_CHECKING:
    from array import array
    from pathlib import Path


class PageEngine:
    """One open weight file with a cache in the kernels' memory; see `decoder.Engine`.

    Args:
        path: The weight file, in Pyodide's file system.
        slots: Sequences that the cache holds.
        context: Positions kept for each; the model's own unless given.

    Raises:
        BundleError: It is not a weight file, or is damaged.
        InputError: The model has fewer positions than `context`.
        OutOfMemory: The page has no memory for it.
        UnsupportedError: The kernels have not started, and this place cannot wait for them.
    """

    def __init__(self, path: Path, slots: int, context: int | None) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BundleError(f"The weight file `{path}` cannot be read: {error}") from error
        self.config, tensors = read_header(content, len(content))
        place = tensors["program"]
        check_fields(content[place.start : place.end], self.config, path.name)
        self.context = checked_context(self.config, context)
        self._decoder = PageDecoder(content, slots, self.context, self.config.vocab_size)

    @property
    def threads(self) -> int:
        """A page has one."""
        return 1

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
