"""A page by plain http under a name that is not this machine's: Chromium itself takes it for an insecure context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.browser.pages import BrowserPage, BrowserThread

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN = """async () => {
    const { load, keepOffline } = await import("/src/index.js");
    const session = await load("/models/digits");
    const { logits } = await session.run({ image: new Float32Array(64) });
    const { storage, notices, threads, isolated } = session.report();
    const kept = await keepOffline();
    await session.dispose();
    const lost = [isSecureContext, typeof crypto.subtle, typeof SharedArrayBuffer, typeof navigator.storage];
    return { lost, shape: logits.shape, storage, notices, threads, isolated, kept };
}"""
_PYTHON = """async () => {
    const { keepPythonImage, loadPython } = await import("/src/index.js");
    const python = await loadPython({ keepImage: false });
    const shape = await python.run(`
import edge_infer
with edge_infer.load(url) as session:
    shape = list(session.run({"image": [[[[0.5] * 8] * 8]]})["logits"].shape)
shape`, { url: new URL("/models/digits", location.href).href });
    python.dispose();
    return [shape, await keepPythonImage()];
}"""


@pytest.fixture(scope="module")
def page(server: str) -> Iterator[BrowserPage]:
    with BrowserThread("--host-resolver-rules=MAP lan.example 127.0.0.1") as thread:
        opened = BrowserPage(thread, f"{server.replace('127.0.0.1', 'lan.example')}/blank.html")
        yield opened
        opened.close()


def test_javascript_works_there_and_says_what_it_lost(page: BrowserPage) -> None:
    found = page.evaluate(_RUN)

    assert found["lost"] == [False, "undefined", "undefined", "undefined"]
    assert (found["shape"], found["storage"], found["threads"], found["isolated"]) == ([1, 10], "memory", 1, False)
    assert "not in a secure context" in found["notices"][0]
    assert (found["kept"]["isKept"], "not in a secure context" in found["kept"]["why"]) == (False, True)


def test_python_works_there_and_keeps_no_image(page: BrowserPage) -> None:
    assert page.evaluate(_PYTHON) == [[1, 10], False]
