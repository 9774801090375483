"""Hosts of Python themselves run edge-infer, isolated and not: PyScript from npm, JupyterLite and marimo from PyPI."""

from __future__ import annotations

from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.hosts import MADE, jupyterlite_site, marimo_site
from tests.support.browser.static_host import ISOLATED, StaticHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Route

    from tests.support.browser.pages import BrowserPage

pytestmark = [pytest.mark.browser, pytest.mark.long]

_PYSCRIPT = Path(__file__).parents[1] / "hosts/node_modules/@pyscript/core/dist"
_PAGE = """<!doctype html><meta charset="utf-8"><pre id="said"></pre>
<script>globalThis.edgeInferRoot = new URL("/", location.href).href;</script>
<script type="module" src="/pyscript/core.js"></script>
<script type="py" KIND config='{"interpreter": "/vendor/pyodide/pyodide.mjs", "packages": ["micropip"]}'>
import js, micropip
js.edgeInferRoot = "ORIGIN/"
await micropip.install("edge-infer", index_urls="ORIGIN/simple/{package_name}/")
import edge_infer
session = await edge_infer.load_async("ORIGIN/models/digits")
logits = session.run({"image": edge_infer.Tensor(bytes(256), "float32", (1, 1, 8, 8))})["logits"]
again = edge_infer.load("ORIGIN/models/digits") if WORKER else session
later = await session.run_async({"image": edge_infer.Tensor(bytes(256), "float32", (1, 1, 8, 8))})
from pyscript import document
assert again.report().engine == "ort-web" and "<table" in session._repr_html_()
same = later["logits"].tolist() == logits.tolist()
document.querySelector("#said").textContent = f"{logits.shape} {same} {session.report().threads}"
</script>"""


# PyScript's worker reads `pyscript.document`, for which its page has to be isolated.
@pytest.mark.parametrize(("kind", "is_isolated"), [("", True), ("", False), ("worker", True)])
def test_pyscript_runs_a_model(
    open_page: Callable[..., BrowserPage], server: str, kind: str, *, is_isolated: bool
) -> None:
    assert _PYSCRIPT.is_dir(), "run tests/setup.sh all: PyScript is not installed"
    headers = ISOLATED if is_isolated else {}
    source = _PAGE.replace("KIND", kind).replace("ORIGIN", server).replace("WORKER", str(bool(kind)))

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(f"{server}/pyscript/")
        file = _PYSCRIPT / path
        if path == "page.html":
            route.fulfill(body=source, content_type="text/html", headers=headers)
        else:
            route.fulfill(
                path=file, content_type=guess_type(file.name)[0] or "application/octet-stream", headers=headers
            )

    def said(page: Page) -> str:
        page.route(f"{server}/pyscript/**", answer)
        page.goto(f"{server}/pyscript/page.html")
        page.wait_for_function(
            "document.querySelector('#said').textContent || document.querySelector('.py-error')", timeout=400_000
        )
        return str(
            page.evaluate("(document.querySelector('.py-error') ?? document.querySelector('#said')).textContent")
        )

    shape, same, threads = open_page(f"{server}/blank.html").do(said).rsplit(" ", 2)
    assert (shape, same) == ("(1, 10)", "True")
    assert int(threads) >= 1


# What the guides say, cell by cell; `load` comes first too, to see what a user who writes it is told.
_INSTALL = """import js, micropip
js.edgeInferRoot = "ORIGIN/"
await micropip.install("edge-infer", index_urls="ORIGIN/simple/{package_name}/")"""
_LOAD = """import edge_infer
said = "it loads"
try:
    edge_infer.load("ORIGIN/models/digits")
except edge_infer.UnsupportedError as error:
    said = "write load_async" if "load_async" in str(error) + str(error.hint) else str(error)
session = await edge_infer.load_async("ORIGIN/models/digits")"""
_RUN = """image = edge_infer.Tensor(bytes(256), "float32", (1, 1, 8, 8))
logits = session.run({"image": image})["logits"]
later = (await session.run_async({"image": image}))["logits"]
again = edge_infer.load("ORIGIN/models/digits")  # the engine runs now
same = logits.tolist() == later.tolist() == again.run({"image": image})["logits"].tolist()
result = f"RESULT {logits.shape} {same} {session.report().threads} {said}"
"""
_CHECKED = {"it loads", "write load_async"}


def _cells(origin: str, last: str) -> list[str]:
    return [text.replace("ORIGIN", origin) for text in (_INSTALL, _LOAD, _RUN + last)]


@pytest.fixture(scope="module", params=[True, False], ids=["isolated", "plain"])
def is_isolated(request: pytest.FixtureRequest) -> bool:
    assert (MADE / "ready").exists(), "run tests/setup.sh all: JupyterLite and marimo are not installed"
    return bool(request.param)


def _check(text: str, *, is_isolated: bool) -> None:
    shape, _, rest = text.partition("RESULT ")[2].partition(") ")
    same, threads, said = rest.split(" ", 2)
    assert (shape, same) == ("(1, 10", "True")
    assert said.strip() in _CHECKED
    assert int(threads) >= 1 if is_isolated else int(threads) == 1


def test_jupyterlite_runs_a_model(
    open_page: Callable[..., BrowserPage], digits_bundle: Path, tmp_path: Path, *, is_isolated: bool
) -> None:
    jupyterlite_site(tmp_path / "site")
    with (
        StaticHost(tmp_path / "site", ISOLATED if is_isolated else {}) as host,
        ServerThread(create_app({"digits": digits_bundle}, find_web_root(), cors_origins=[host.url])) as ours,
    ):
        cells = _cells(ours.url, "print(result)\nsession")
        query = urlencode([("kernel", "python"), *(("code", cell) for cell in cells)])
        page = open_page(f"{host.url}/repl/index.html?{query}")

        def said(page: Page) -> str:
            page.wait_for_function(
                "[...document.querySelectorAll('.jp-OutputArea-output')].some("
                "(e) => e.querySelector('table') || e.dataset.mimeType?.includes('stderr'))",
                timeout=400_000,
            )
            return str(page.evaluate("document.querySelector('.jp-CodeConsole-content').innerText"))

        text = page.do(said)
        assert "digits@" in text, text
        result = next((line for line in text.splitlines() if line.startswith("RESULT")), text)
        _check(result, is_isolated=is_isolated)


def test_marimo_runs_a_model(
    open_page: Callable[..., BrowserPage], digits_bundle: Path, tmp_path: Path, *, is_isolated: bool
) -> None:
    with (
        StaticHost(tmp_path, ISOLATED if is_isolated else {}) as host,
        ServerThread(create_app({"digits": digits_bundle}, find_web_root(), cors_origins=[host.url])) as ours,
    ):
        marimo_site(tmp_path / "site", _notebook(_cells(ours.url, "mo.md(result)")))
        page = open_page(f"{host.url}/site/index.html")

        def said(page: Page) -> str:
            page.wait_for_function("document.body.innerText.includes('RESULT (')", timeout=400_000)
            return str(page.evaluate("document.body.innerText"))

        text = page.do(said)
    _check(next(line for line in text.splitlines() if line.startswith("RESULT")), is_isolated=is_isolated)


def _notebook(cells: list[str]) -> str:
    lines = [
        "import marimo",
        "app = marimo.App()",
        "@app.cell",
        "def _():",
        "    import marimo as mo",
        "    return (mo,)",
    ]
    for cell in cells:
        lines += ["@app.cell", "async def _():", *(f"    {line}" for line in cell.splitlines()), "    return"]
    return "\n".join(lines) + "\n"
