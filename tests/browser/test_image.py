"""The image of Python's memory that a page keeps: a short start, and the usual one where it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser.pages import BrowserPage

_START = """async (code) => {
    const { loadPython } = await import("/src/index.js");
    // The engine has an image of its own where it has one thread, whatever the machine has.
    const python = await loadPython({ keepImage: false, threads: 1 });
    const answer = await python.run(code, { url: new URL("/models/digits", location.href).href });
    const { isFromImage } = python.report();
    python.dispose();
    return { isFromImage, answer };
}"""
_KEEP = """async () => (await import("/src/index.js")).keepPythonImage()"""
_CODE = """
import js, random, sys
import edge_infer
from pathlib import Path
Path("here.txt").write_text("written")
with edge_infer.load(url) as session:
    shape = list(session.run({"image": [[[[0.5] * 8] * 8]]})["logits"].shape)
[shape, Path("here.txt").read_text(), bool(js.URL), sys.version_info[1], random.random()]
"""
_EXPECTED = [[1, 10], "written", True, 14]
# Overwrites a piece of a part of the image, in a way that its sum shows.
_DAMAGE = """async (part) => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
    const name = (await Array.fromAsync(folder.keys())).find((one) => one.endsWith(`.${part}`));
    const stream = await (await folder.getFileHandle(name)).createWritable({ keepExistingData: true });
    await stream.write({ type: "write", position: 65536, data: new Uint8Array(4096).fill(7) });
    await stream.close();
}"""
# Makes the whole a piece of its start, with a seal that fits: what Python is then given is not an image of it.
_EXCHANGE = """async (part) => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
    const write = async (name, text) => {
        const stream = await (await folder.getFileHandle(name)).createWritable();
        await stream.write(text);
        await stream.close();
    };
    const names = (await Array.fromAsync(folder.keys())).filter((one) => one.startsWith("python-"));
    const [name, seal] = [`.${part}`, ".json"].map((end) => names.find((one) => one.endsWith(end)));
    await write(name, new Uint8Array(65536));
    const sealed = JSON.parse(await (await (await folder.getFileHandle(seal)).getFile()).text());
    let sums = [65536, 1, 2, 3];
    for (let i = 0; i < 4096; i++) sums = sums.map((sum) => Math.imul(sum, 31) | 0);
    const [a, b, c, d] = sums;
    sealed.parts[part] = { bytes: 65536, sum: (Math.imul(a, 7) + Math.imul(b, 11) + Math.imul(c, 13) + d) | 0 };
    await write(seal, JSON.stringify(sealed));
}"""
_KEEP_OFFLINE = """async () => {
    const { keepOffline, loadPython, forgetOffline } = await import("/src/index.js");
    const python = await loadPython({ keepImage: false });
    await keepOffline();
    python.dispose();
    const index = await (await caches.open("edge-infer-offline")).match("/.edge-infer/offline/index.json");
    const pages = await index.json();
    await forgetOffline();
    return Object.values(pages).flatMap((files) => Object.keys(files)).map((url) => url.split("/").at(-1));
}"""
_KEPT = """async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
    return (await Array.fromAsync(folder.keys())).filter((one) => one.startsWith("python-")).sort();
}"""


def start(page: BrowserPage) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_START, _CODE)
    return found


@pytest.mark.long
def test_python_starts_from_its_image_or_without_it(open_page: Callable[..., BrowserPage], server: str) -> None:
    """One test, as each start of Python costs seconds."""
    page = open_page(f"{server}/blank.html")
    assert page.evaluate(_KEEP) is True
    parts = ["engine-memory", "engine-wasm", "json", "memory", "stdlib", "wasm"]
    assert [name.rpartition(".")[2] for name in page.evaluate(_KEPT)] == parts
    page.do(lambda page: page.reload())

    asked: list[str] = []
    page.do(lambda page: page.on("request", lambda request: asked.append(request.url)))
    first, second = start(page), start(page)
    assert (first["isFromImage"], second["isFromImage"]) == (True, True)
    assert first["answer"][:4] == second["answer"][:4] == _EXPECTED
    assert first["answer"][4] != second["answer"][4], "chance is not part of the image"
    assert not [url for url in asked if url.endswith((".wasm", ".zip"))], "what was kept is not fetched again"

    kept = page.evaluate(_KEEP_OFFLINE)
    needed = {"pyodide.asm.wasm", "python_stdlib.zip", "ort-wasm-simd-threaded.wasm"}
    assert needed <= set(kept), "the page may lose the image while it is offline"

    page.console.clear()
    for damage, part, is_from_image in (
        (_DAMAGE, "memory", False),
        (_EXCHANGE, "memory", False),
        (_DAMAGE, "engine-wasm", True),
        (_EXCHANGE, "engine-memory", True),
    ):
        page.evaluate(damage, part)
        plain = start(page)
        assert (plain["isFromImage"], plain["answer"][:4]) == (is_from_image, _EXPECTED), (damage, part)
        assert any("starts as usual" in said for said in page.console)
        assert page.evaluate(_KEPT) == [], "it was dropped"
        page.console.clear()
        assert page.evaluate(_KEEP) is True
