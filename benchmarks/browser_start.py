"""How long Python takes to start in a page: from the kept image, engine included, against plain Pyodide."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

_OURS = """async () => {
    const { startPython } = await import("/src/index.js");
    const start = performance.now();
    const python = await startPython({ threads: 1, keepImage: false });
    const ms = performance.now() - start;
    await python.run("import edge_infer");
    const { isFromImage } = python.report();
    python.close();
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


def sample_starts(context: BrowserContext, url: str, rounds: int) -> tuple[list[float], list[float]]:
    """Time both in turn, in ms, each in a new worker; all files are in the browser's cache.

    Returns:
        Our times and Pyodide's.

    Raises:
        RuntimeError: Python did not start from its image.
    """
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{url}/blank.html")
    page.evaluate("async () => (await import('/src/index.js')).keepPythonImage()")
    page.evaluate(_OURS)
    ours, peer = [], []
    for _ in range(rounds):
        ms, is_from_image = page.evaluate(_OURS)
        if not is_from_image:
            raise RuntimeError("Python did not start from its image")
        ours.append(float(ms))
        peer.append(float(page.evaluate(_PEER)))
    page.close()
    return ours, peer
