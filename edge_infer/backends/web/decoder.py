"""Decoders in a page: Python in Pyodide drives `web/src/generation/decoder.js`, by a few crossings for each token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.backends.web.call import to_bytes, to_object, translated
from edge_infer.errors import BackendUnavailable
from edge_infer.platform import host

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

#: Where the module and its compiled kernels stay: names in JavaScript's global scope.
_MODULE, _KERNELS, _OPEN = "edgeInferDecoder", "edgeInferDecoderKernels", "edgeInferDecoderOpen"
#: Loads the modules of the page; the kernels are those that threads share where the page can have threads.
_LOAD = """async (root) => {
  const [decoder, team, page] = await Promise.all(
    ["generation/decoder", "generation/team", "page/decoder-threads"].map((name) => import(`${root}src/${name}.js`)),
  );
  const open = (room, { threads, ...options }) => {
    const most = team.threadsHere(threads ?? undefined);
    return room.open({ ...options, threads: most, areFixed: threads !== null, startWorker: page.startDecoderThread });
  };
  return [decoder, await decoder.kernelModule(team.threadsHere() > 1), open];
}"""
_ASYNC = "write `await edge_infer.generate_async(...)`"


async def start() -> None:
    """Fetch and compile the kernels where nobody has.

    Raises:
        BackendUnavailable: This is no page, or their files are missing.
    """
    if not host.in_browser():
        raise BackendUnavailable("The page's decoder runs only inside Pyodide", hint="open it with `Decoder.open`")
    import js

    if getattr(js, _KERNELS, None) is None:
        from pyodide.code import run_js

        with translated:
            module, kernels, opener = await run_js(_LOAD)(host.web_root())
        setattr(js, _MODULE, module)
        setattr(js, _OPEN, opener)
        setattr(js, _KERNELS, kernels)


class PageDecoder:
    """A weight file and a cache in the kernels' memory.

    Args:
        size: Bytes of the weight file.
        pieces: Its bytes, in order.
        slots: Sequences that the cache holds.
        context: Positions kept for each.
        vocab_size: Logits of a row.
        threads: The most threads; None for as many as are faster.

    Raises:
        BundleError: The file is damaged.
        OutOfMemory: The page has no memory for it.
        UnsupportedError: The kernels have not started, and this place cannot wait for them; or it has no threads.
    """

    def __init__(
        self, size: int, pieces: Iterable[bytes], slots: int, context: int, vocab_size: int, threads: int | None
    ) -> None:
        import js

        if getattr(js, _KERNELS, None) is None:
            host.suspend(start(), _ASYNC)
        at = 0
        with translated:
            # Piece by piece, so that the page has the weights twice at no time.
            room = getattr(js, _MODULE).WeightRoom.new(size, getattr(js, _KERNELS))
            for piece in pieces:
                room.put(at, to_bytes(piece))
                at += len(piece)
            self._decoder: Any = getattr(js, _OPEN)(
                room, to_object({"slots": slots, "context": context, "threads": threads})
            )
        self._vocab_size = vocab_size
        #: Logits that were read, and may have been written to since.
        self._taken: dict[int, bytearray] = {}

    @property
    def threads(self) -> int:
        """How many threads compute the next token."""
        return int(self._decoder.threads)

    def run(self, batch: array[int], count: int, wanted: int) -> str:
        """Compute a batch of tokens, slots, positions and then the wanted rows; give what is wrong with it."""
        self._taken = {}
        with translated:
            self._decoder.prepare(count, wanted).assign(batch)
            return str(self._decoder.cross(count, wanted))

    def logits(self, index: int) -> memoryview[float]:
        """Give the logits of a wanted row. What is written into them is seen by `top`."""
        if index not in self._taken:
            taken = bytearray(4 * self._vocab_size)
            with translated:
                self._decoder.logits(index).assign_to(memoryview(taken).cast("f"))
            self._taken[index] = taken
        return memoryview(self._taken[index]).cast("f")

    def top(self, index: int, count: int) -> list[tuple[int, float]]:
        """Give the best tokens of a wanted row."""
        with translated:
            if index in self._taken:
                self._decoder.logits(index).assign(memoryview(self._taken[index]).cast("f"))
            best = self._decoder.best(index, count)
            return list(zip(best.ids.to_py().tolist(), best.values.to_py().tolist(), strict=True))

    def copy(self, from_slot: int, to_slot: int, length: int) -> None:
        """Copy the first positions of a slot."""
        with translated:
            self._decoder.copy(from_slot, to_slot, length)

    def close(self) -> None:
        """Give the memory back. A second call does nothing."""
        self._taken = {}
        self._decoder.close()
