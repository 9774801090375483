"""How long Python takes to start in a page: from the kept image, engine included, against plain Pyodide."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from edge_infer.platform.posix import is_root
from edge_infer.tools.browser.chromium import QUIET, find_chromium

_OURS = """async () => {
    const { loadPython } = await import("/src/index.js");
    const start = performance.now();
    const python = await loadPython({ threads: 1, keepImage: false });
    const ms = performance.now() - start;
    await python.run("import edge_infer");
    const { isFromImage } = python.report();
    python.dispose();
    return [ms, isFromImage];
}"""
# In a module worker of its own as well, with nothing loaded besides.
_PEER = """async () => {
    const code = `import { loadPyodide } from "${location.origin}/vendor/pyodide/pyodide.mjs";
        await loadPyodide({ indexURL: "${location.origin}/vendor/pyodide/" });
        postMessage(0);`;
    const script = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    const start = performance.now();
    const worker = new Worker(script, { type: "module" });
    await new Promise((resolve, reject) => { worker.onmessage = resolve; worker.onerror = reject; });
    const ms = performance.now() - start;
    worker.terminate();
    return ms;
}"""


def sample_starts(url: str, rounds: int) -> tuple[list[float], list[float]]:
    """Time both in turn, in ms, each in a new worker of a browser with a profile, as users have one.

    All files are in its cache, and compiled code for as much as it keeps.

    Returns:
        Our times and Pyodide's.

    Raises:
        RuntimeError: Python did not start from its image.
    """
    ours, peer = [], []
    flags = [*QUIET, *(["--no-sandbox"] if is_root() else [])]
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for visit in ("first", "warm"):
            with (
                sync_playwright() as playwright,
                playwright.chromium.launch_persistent_context(
                    profile, executable_path=find_chromium(), args=flags
                ) as context,
            ):
                page = context.new_page()
                page.set_default_timeout(300_000)
                page.goto(f"{url}/blank.html")
                if visit == "first":
                    page.evaluate("async () => (await import('/src/index.js')).keepPythonImage()")
                for _ in range(2 if visit == "first" else rounds + 1):
                    ms, is_from_image = page.evaluate(_OURS)
                    if not is_from_image:
                        raise RuntimeError("Python did not start from its image")
                    ours.append(float(ms))
                    peer.append(float(page.evaluate(_PEER)))
    # The first start of a browser is not of this: its own parts are still to be loaded.
    return ours[-rounds:], peer[-rounds:]
