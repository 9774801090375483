"""The image of Python's memory that a page keeps: a short start, and the usual one where it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import BrowserPage

_START = """async (code) => {
    const { startPython } = await import("/src/index.js");
    const python = await startPython({ keepImage: false });
    const answer = await python.run(code, { url: new URL("/models/digits", location.href).href });
    const { isFromImage } = python.report();
    python.close();
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
# Overwrites a piece of the image, and makes its seal fit where it is told to.
_DAMAGE = """async (seal) => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
    const name = (await Array.fromAsync(folder.keys())).find((one) => /^python-[0-9.]+$/.test(one));
    const write = async (name, command) => {
        const file = await folder.getFileHandle(name, { create: true });
        const stream = await file.createWritable({ keepExistingData: true });
        await stream.write({ type: "truncate", size: command.size });
        await stream.write({ type: "write", position: command.position, data: command.data });
        await stream.close();
    };
    await write(name, { size: 65536, position: 0, data: new Uint8Array(65536) });
    if (!seal) return;
    const sum = Array(16384).fill(0).reduce((sum) => Math.imul(sum, 31) | 0, 65536);
    await write(`${name}.json`, { size: 0, position: 0, data: JSON.stringify({ bytes: 65536, sum }) });
}"""
_READ = """async () => {
    const code = `import { readImage } from "${location.origin}/src/engines/python-image.js";
        postMessage((await readImage())?.length ?? 0);`;
    const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), { type: "module" });
    return new Promise((resolve) => { worker.onmessage = ({ data }) => { worker.terminate(); resolve(data); }; });
}"""


def start(page: BrowserPage) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_START, _CODE)
    return found


def test_python_starts_from_its_image_or_without_it(open_page: Callable[..., BrowserPage], server: str) -> None:
    """One test, as each start of Python costs seconds."""
    page = open_page(f"{server}/blank.html")
    assert page.evaluate(_READ) == 0
    assert page.evaluate(_KEEP) is True
    page.do(lambda page: page.reload())

    first, second = start(page), start(page)
    assert (first["isFromImage"], second["isFromImage"]) == (True, True)
    assert first["answer"][:4] == second["answer"][:4] == _EXPECTED
    assert first["answer"][4] != second["answer"][4], "chance is not part of the image"

    assert page.evaluate(_READ) > 2**24
    page.evaluate(_DAMAGE, False)
    assert page.evaluate(_READ) == 0, "its sum does not fit"

    page.evaluate(_DAMAGE, True)
    assert page.evaluate(_READ) == 65536
    page.console.clear()
    plain = start(page)
    assert (plain["isFromImage"], plain["answer"][:4]) == (False, _EXPECTED)
    assert any("starts as usual" in said for said in page.console)
    assert page.evaluate(_READ) == 0, "it was dropped"
