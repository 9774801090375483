"""Find a Chromium on this machine and start it without a window."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edge_infer.errors import BackendUnavailable
from edge_infer.platform.posix import is_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "chromium-headless-shell")
#: Without a network, Chromium's own services keep calling home, dozens of connections at a time.
QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
#: Switches for WebGPU with no graphics card: headless Chromium offers no adapter without them.
SOFTWARE_WEBGPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


def find_chromium() -> str:
    """Return the path of a Chromium: that of `EDGE_INFER_CHROMIUM`, or the first on the PATH.

    Raises:
        BackendUnavailable: There is none.
    """
    named = os.environ.get("EDGE_INFER_CHROMIUM")
    found = [named] if named else [path for name in _NAMES if (path := shutil.which(name)) is not None]
    if not found or not os.access(found[0], os.X_OK):
        raise BackendUnavailable(
            f"No Chromium is installed{f' at `{named}`' if named else ''}",
            hint="sudo apt-get install chromium (or chromium-headless-shell), or set EDGE_INFER_CHROMIUM to its path",
        )
    return found[0]


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Run a headless Chromium while the block lasts; what its contexts keep is gone with them.

    Args:
        *flags: More command-line switches.

    Raises:
        BackendUnavailable: Playwright or Chromium is not installed, or Chromium does not start.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise BackendUnavailable(
            "Playwright, which drives the browser, is not installed", hint="pip install 'edge-infer[browser]'"
        ) from error
    path = find_chromium()
    # Chromium refuses to run its sandbox as root, which containers and CI are.
    sandbox: tuple[str, ...] = ("--no-sandbox",) if is_root() else ()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=[*QUIET, *sandbox, *flags])
        except Error as error:
            raise BackendUnavailable(
                f"Chromium at `{path}` does not start: {error.message.splitlines()[0]}", hint=f"try `{path} --headless`"
            ) from error
        try:
            yield browser
        finally:
            browser.close()
