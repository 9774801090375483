"""The kernels of the search in a page: Python in Pyodide calls `vectors.wasm`, in a memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import BackendUnavailable, OutOfMemory
from edge_infer.platform import host
from edge_infer.platform.fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODULE = "src/vectors/vectors.wasm"
_PAGE = 65_536


def search_module() -> Any:
    """Return the compiled kernels, which are fetched and compiled without waiting.

    Raises:
        BackendUnavailable: This is no worker of a page.
        FetchError: The file is missing.
    """
    if not host.in_worker():
        raise BackendUnavailable("The page's kernels are fetched in workers only", hint="numpy is used instead")
    import js

    data = fetch(host.web_root() + _MODULE)
    array = js.Uint8Array.new(len(data))
    array.assign(data)
    return js.WebAssembly.Module.new(array)


class KernelRoom:
    """Kernels in a memory of their own, which begins with some data.

    Args:
        module: What `search_module` returns.
        parts: The data; each lies at a multiple of 16.

    Raises:
        OutOfMemory: The page has no memory for it.

    Attributes:
        places: Where each part lies.
    """

    def __init__(self, module: Any, parts: Sequence[memoryview]) -> None:
        import js

        self._exports = js.WebAssembly.Instance.new(module, js.Object.new()).exports
        end = int(getattr(self._exports, "__heap_base").value)
        self.places: list[int] = []
        for part in parts:
            self.places.append(-(-end // 16) * 16)
            end = self.places[-1] + part.nbytes
        self._end = -(-end // 16) * 16
        self._grow(self._end)
        for place, part in zip(self.places, parts, strict=True):
            self.write(place, part)

    def scratch(self, sizes: Sequence[int]) -> list[int]:
        """Return places behind the data for so many bytes each; those of the call before are theirs no more.

        Raises:
            OutOfMemory: The page has no memory for it.
        """
        places, end = [], self._end
        for size in sizes:
            places.append(end)
            end = -(-(end + size) // 16) * 16
        self._grow(end)
        return places

    def write(self, place: int, data: bytes | memoryview) -> None:
        """Copy bytes to a place."""
        view = memoryview(data).cast("B")
        if view.nbytes:
            self._view(place, view.nbytes).assign(view)

    def read(self, place: int, size: int) -> bytes:
        """Copy bytes from a place."""
        return bytes(self._view(place, size).to_bytes()) if size else b""

    def call(self, name: str, *numbers: int) -> int:
        """Call a kernel; `source/vectors/search.c` says what each takes."""
        return int(getattr(self._exports, name)(*numbers) or 0)

    def _view(self, place: int, size: int) -> Any:
        import js

        return js.Uint8Array.new(self._exports.memory.buffer, place, size)

    def _grow(self, end: int) -> None:
        from pyodide.ffi import JsException

        missing = end - int(self._exports.memory.buffer.byteLength)
        try:
            if missing > 0:
                self._exports.memory.grow(-(-missing // _PAGE))
        except JsException as error:
            raise OutOfMemory("The page has no memory for the search", hint="close other tabs") from error
