"""PyScript itself, from npm, runs edge-infer: isolated and not, on the page's main thread and in its worker."""

from __future__ import annotations

from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Route

    from tests.support.browser.pages import BrowserPage

pytestmark = [pytest.mark.browser, pytest.mark.long]

_PYSCRIPT = Path(__file__).parents[1] / "hosts/node_modules/@pyscript/core/dist"
_ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
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
    headers = _ISOLATED if is_isolated else {}
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
            "document.querySelector('#said').textContent || document.querySelector('.py-error')", timeout=200_000
        )
        return str(
            page.evaluate("(document.querySelector('.py-error') ?? document.querySelector('#said')).textContent")
        )

    shape, same, threads = open_page(f"{server}/blank.html").do(said).rsplit(" ", 2)
    assert (shape, same) == ("(1, 10)", "True")
    assert int(threads) >= 1
