"""The place where this Python runs: native or a page, its threads, waiting and cache folder.

Natively there are threads, files and blocking sockets. In a page there is Pyodide: one thread, JavaScript's `fetch`,
and synchronous requests in workers only. Backends and bundles ask here and need no `js` of their own.
"""

from __future__ import annotations

import os
import sys

from edge_infer.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path
    from typing import Any, TypeVar

    T = TypeVar("T")


def in_browser() -> bool:
    """Tell whether this Python is Pyodide, in a page, a worker or Node."""
    return sys.platform == "emscripten"


def in_worker() -> bool:
    """Tell whether this is Pyodide in a worker, where synchronous requests may be made."""
    if not in_browser():
        return False
    import js

    return bool(hasattr(js, "WorkerGlobalScope"))


def can_suspend() -> bool:
    """Tell whether a synchronous call may wait for a promise here: WebAssembly stack switching (JSPI)."""
    if not in_browser():
        return False
    from pyodide.ffi import can_run_sync

    return bool(can_run_sync())


def suspend(promise: Awaitable[T], instead: str) -> T:
    """Wait for a promise in a synchronous call.

    Args:
        promise: What to wait for.
        instead: The asynchronous call to write where this place cannot wait; it becomes the hint.

    Raises:
        UnsupportedError: There is no JSPI here, or Python was entered by a synchronous call.
    """
    if not can_suspend():
        close = getattr(promise, "close", None)
        if close is not None:
            close()
        raise UnsupportedError(
            "This engine is asynchronous, and this place cannot wait for it in a synchronous call", hint=instead
        )
    from pyodide.ffi import run_sync

    result: T = run_sync(promise)
    return result


def available_cpus() -> int:
    """Count the CPUs whose time this process may use: by its affinity and by the quota of its control group."""
    from edge_infer.platform.cpu import usable_cpus

    return usable_cpus()


def cache_path() -> str:
    """Return this user's folder for what can be made again; `EDGE_INFER_CACHE` names another."""
    named = os.environ.get("EDGE_INFER_CACHE")
    if named:
        return named
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/edge-infer")
    if os.name == "nt":
        return os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser(r"~\AppData\Local"), "edge-infer")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "edge-infer")


def cache_folder() -> Path:
    """Return `cache_path` as a path."""
    from pathlib import Path

    return Path(cache_path())


def at_once(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose `await`s do not suspend, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError(f"{steps!r} suspended")


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a thread and await its result; in Pyodide, which has no threads, call it."""
    if in_browser():
        return function()
    import asyncio

    return await asyncio.to_thread(function)


def web_root() -> str:
    """Return the URL under which this page's server offers `web/src` and the engine files, with a `/` at its end.

    A page may set `globalThis.edgeInferRoot`; else it is the root of the page's own origin.
    """
    import js

    root = getattr(js, "edgeInferRoot", None)
    return str(root) if root is not None else f"{js.location.origin}/"
