"""Pages of others that start Python themselves: a kernel in a worker, a notebook's tasks, a script on the main thread.

The hosts themselves are in `test_real_hosts.py`. Each test here does what makes one special: where Pyodide runs, with
which options, how the package gets there and how code is entered; and no worker has JSPI, as in Safari.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

# What a user of the host writes: `load` first, as natively, and then what its error says.
_CELL = """
import edge_infer
said = ""
try:
    edge_infer.load(url)
except edge_infer.UnsupportedError as error:
    said = f"{error} {error.hint}"
session = await edge_infer.load_async(url)
result = session.run({"image": edge_infer.Tensor(bytes(256), "float32", (1, 1, 8, 8))})
again = edge_infer.load(url)  # the engine runs now
import json
answer = json.dumps([said, list(result["logits"].shape), str(again.report().engine)])
answer
"""

# As JupyterLite's kernel: a module worker, each cell by runPythonAsync, and everything of ours from another server.
_JUPYTER = """
delete WebAssembly.Suspending; delete WebAssembly.promising;
self.onmessage = async ({ data: { origin, ours, cell, url } }) => {
    const { loadPyodide } = await import(`${origin}/vendor/pyodide/pyodide.mjs`);
    const pyodide = await loadPyodide({ indexURL: `${origin}/vendor/pyodide/`, enableRunUntilComplete: false });
    await pyodide.loadPackage("micropip");
    pyodide.globals.set("url", url);
    await pyodide.runPythonAsync(`import js\\njs.edgeInferRoot = "${ours}/"`);
    const index = `${ours}/simple/{package_name}/`;
    await pyodide.runPythonAsync(`import micropip\\nawait micropip.install("edge-infer", index_urls="${index}")`);
    self.postMessage(await pyodide.runPythonAsync(cell));
};
"""

# As marimo: a worker that finds packages in its lock file, and runs cells as compiled coroutines in tasks of its own.
_MARIMO = """
delete WebAssembly.Suspending; delete WebAssembly.promising;
self.onmessage = async ({ data: { origin, cell, url } }) => {
    const { loadPyodide } = await import(`${origin}/vendor/pyodide/pyodide.mjs`);
    const indexURL = `${origin}/vendor/pyodide/`;
    const pyodide = await loadPyodide({ indexURL, lockFileURL: `${origin}/wheels/pyodide-lock.json` });
    await pyodide.loadPackage(["micropip", "edge-infer"]);
    pyodide.globals.set("cell", cell);
    pyodide.globals.set("url", url);
    self.postMessage(await pyodide.runPythonAsync(`
import ast, asyncio, micropip, types
async def run_cell(source, names):
    code = compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = types.FunctionType(code, names)()
    if waiting is not None:
        await waiting
    return names["answer"]
assert "edge-infer" in micropip.list()
await asyncio.create_task(run_cell(cell, {"url": url, "__name__": "__main__"}))
`));
};
"""

_IN_WORKER = """async ([code, cell, ours]) => {
    const script = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    const worker = new Worker(script, { type: "module" });
    const answered = new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = ({ message }) => reject(new Error(message));
    });
    const { origin } = location;
    worker.postMessage({ origin, ours, cell, url: `${ours}/models/digits` });
    try { return await answered; } finally { worker.terminate(); }
}"""

# As PyScript's `<script type="py">` on the main thread. JSPI is there, but what a plain call enters cannot use it.
_PYSCRIPT = """async (cell) => {
    const { origin } = location;
    const { loadPyodide } = await import(`${origin}/vendor/pyodide/pyodide.mjs`);
    const pyodide = await loadPyodide({ indexURL: `${origin}/vendor/pyodide/`, enableRunUntilComplete: false });
    pyodide.globals.set("url", `${origin}/models/digits`);
    await pyodide.loadPackage(`${origin}/wheels/edge_infer-0.1.0-py3-none-any.whl`);
    const [first, rest] = cell.split("session = await");
    pyodide.runPython(first);
    return pyodide.runPythonAsync(`session = await${rest}`);
}"""


def check(answer: str) -> None:
    said, shape, engine = json.loads(answer)
    assert "await edge_infer.load_async(" in said
    assert (shape, engine) == ([1, 10], "ort-web")


@pytest.mark.long
def test_a_kernel_in_a_worker_takes_everything_from_another_server(
    open_page: Open, server: str, digits_bundle: Path
) -> None:
    app = create_app({"digits": digits_bundle}, find_web_root(), cors_origins=[server])
    with ServerThread(app) as ours:
        answer: Any = open_page(f"{server}/blank.html").evaluate(_IN_WORKER, [_JUPYTER, _CELL, ours.url])

    check(answer)


def test_a_notebook_finds_the_package_by_its_lock_file(open_page: Open, server: str) -> None:
    answer: Any = open_page(f"{server}/blank.html").evaluate(_IN_WORKER, [_MARIMO, _CELL, server])

    check(answer)


@pytest.mark.long
def test_a_script_on_the_main_thread_loads_asynchronously_and_is_told_so(open_page: Open, server: str) -> None:
    # There are no synchronous requests on the main thread, however far the engine is.
    cell = _CELL.replace("again = edge_infer.load(url)  # the engine runs now", "again = session")

    answer: Any = open_page(f"{server}/blank.html").evaluate(_PYSCRIPT, cell)

    check(answer)
