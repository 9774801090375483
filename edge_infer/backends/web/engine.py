"""Find the engine of a page, or start it by `web/src/engines/open.js`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability, Backend
from edge_infer.backends.web.call import to_object, translated
from edge_infer.errors import BackendUnavailable, UnsupportedError
from edge_infer.platform import host

if TYPE_CHECKING:
    from collections.abc import Sequence

ASYNC_LOAD = "write `await edge_infer.load_async(...)`"


class PageEngine:
    """One engine of a page, which all its sessions share.

    Args:
        backend: The backend's name.
        engine: Its name in `web/src/engines/open.js`.
        place: Where a page's worker leaves the engine that it has started: a name in JavaScript's global scope.
    """

    def __init__(self, backend: str, engine: str, place: str) -> None:
        self._backend = backend
        self._engine = engine
        self._place = place

    def availability(self, devices: Sequence[str] = ("wasm",)) -> Availability:
        """Say whether this Python runs in a page; an engine that has not started is started by `load_async`."""
        if not host.in_browser():
            return Availability(
                False, reason="only inside Pyodide", hint=f"edge-infer verify BUNDLE --backend {self._backend}"
            )
        return Availability(True, tuple(devices))

    def version(self) -> str:
        """Return the engine's version; empty where it has not started."""
        engine = self.started() if host.in_browser() else None
        return str(engine.version) if engine is not None else ""

    def started(self) -> Any:
        """Return the engine, or None where it has not started."""
        import js

        return getattr(js, self._place, None)

    async def start(self) -> None:
        """Start the engine where nobody has.

        Raises:
            BackendUnavailable: Its files are missing, or of another version.
        """
        if not host.in_browser():
            raise BackendUnavailable(f"Backend `{self._backend}` runs only inside Pyodide", hint="edge-infer backends")
        if self.started() is None:
            import js
            from pyodide.code import run_js

            with translated:
                module = await run_js("(url) => import(url)")(f"{host.web_root()}src/engines/open.js")
                threads = getattr(js, "edgeInferThreads", None)  # of `loadPython`
                options = to_object({"threads": int(threads)} if threads else {})
                setattr(js, self._place, await module.sharedEngine(self._engine, options))

    def ready(self) -> Any:
        """Return the engine, started now where it has not been.

        Raises:
            UnsupportedError: It has not started, and this place cannot wait for it.
        """
        if self.started() is None:
            host.suspend(self.start(), ASYNC_LOAD)
        return self.started()


class WasmBackend(Backend):
    """An adapter of an engine of pages that runs on wasm only."""

    page_devices = ("wasm",)
    engine: PageEngine

    def availability(self) -> Availability:
        """Say whether this Python runs in a page."""
        return self.engine.availability()

    def version(self) -> str:
        """Return the engine's version; empty where it has not started."""
        return self.engine.version()

    async def start(self) -> None:
        """Start the engine where nobody has; a BackendUnavailable where its files are missing."""
        await self.engine.start()

    def check_device(self, device: str) -> None:
        """Refuse every device but `wasm`.

        Raises:
            UnsupportedError: It is another one.
        """
        if device != "wasm":
            raise UnsupportedError(
                f"Backend `{self.name}` runs on `wasm`, not on `{device}`", hint='load(..., device="wasm")'
            )
