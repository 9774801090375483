"""A page installs edge-infer from the dev server, with no other server in reach."""

from __future__ import annotations

import json

import pytest

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tools.browser.chromium import chromium

pytestmark = [pytest.mark.browser, pytest.mark.long]

INSTALL = """async ([urls, what]) => {
  const { loadPyodide } = await import("/vendor/pyodide/pyodide.mjs");
  const python = await loadPyodide();
  await python.loadPackage("micropip");
  python.globals.set("urls", urls);
  python.globals.set("what", what);
  return await python.runPythonAsync(`
import json, sys
import micropip
await micropip.install(what, index_urls=urls)
import edge_infer
loaded = [name for name in ("numpy", "click", "starlette") if name in sys.modules]
json.dumps([edge_infer.__version__, sorted(micropip.list()), loaded])
`);
}"""


@pytest.mark.parametrize(("way", "isolated"), [("index", True), ("url", False)])
def test_micropip_installs_the_wheel_and_nothing_else(way: str, isolated: bool) -> None:
    with ServerThread(create_app({}, isolated=isolated)) as server, chromium() as browser:
        page = browser.new_page()
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{server.url}/blank.html")
        assert page.evaluate("crossOriginIsolated") is isolated
        name = f"edge_infer-{edge_infer.__version__}-py3-none-any.whl"
        what = "edge-infer" if way == "index" else f"{server.url}/wheels/{name}"
        answer = page.evaluate(INSTALL, [f"{server.url}/simple/{{package_name}}/", what])
    assert json.loads(answer) == [edge_infer.__version__, ["edge-infer", "micropip"], []]
    assert all(url.startswith((server.url, "data:")) for url in requested)
