"""Engines of a page: found where they have started, or imported from `web/src/engines/` and started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability
from edge_infer.backends.web.call import translated
from edge_infer.errors import BackendUnavailable
from edge_infer.platform import host

if TYPE_CHECKING:
    from collections.abc import Sequence

ASYNC_LOAD = "write `await edge_infer.load_async(...)`"


class PageEngine:
    """One engine of a page, which all its sessions share.

    Args:
        backend: The backend's name.
        module: Its module in `web/src/engines/`.
        starter: The module's function that starts it, or gives the one that has started.
        place: Where a page's worker leaves the engine that it has started: a name in JavaScript's global scope.
    """

    def __init__(self, backend: str, module: str, starter: str, place: str) -> None:
        self._backend = backend
        self._module = module
        self._starter = starter
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
                module = await run_js("(url) => import(url)")(f"{host.web_root()}src/engines/{self._module}")
                setattr(js, self._place, await getattr(module, self._starter)())

    def ready(self) -> Any:
        """Return the engine, started now where it has not been.

        Raises:
            UnsupportedError: It has not started, and this place cannot wait for it.
        """
        if self.started() is None:
            host.suspend(self.start(), ASYNC_LOAD)
        return self.started()
