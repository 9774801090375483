"""Pages that need their server once: after one visit it may be gone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

EXAMPLES = Path(__file__).parents[2] / "examples"
_KEPT = """async () => {
    const cache = await caches.open("edge-infer-offline");
    const index = await (await cache.match("/.edge-infer/offline/index.json")).json();
    return Object.keys(Object.assign({}, ...Object.values(index)));
}"""


def answer(page: BrowserPage) -> tuple[str, str]:
    """Wait for what an example says, and whether it was kept."""

    def read(page: Page) -> tuple[str, str]:
        page.wait_for_function("/: /.test(answer.textContent) || answer.dataset.kept !== undefined")
        found = page.locator("#answer")
        return found.inner_text(), found.get_attribute("data-kept") or ""

    return page.do(read)


def visit_twice(open_page: Open, bundle: Path, path: str) -> tuple[tuple[str, str], str, list[str]]:
    """Visit a page, stop its server, visit it again."""
    with ServerThread(create_app({"digits": bundle}, find_web_root())) as running:
        page = open_page(f"{running.url}{path}")
        first = answer(page)
        kept = page.evaluate(_KEPT)
    page.do(lambda page: page.reload())
    second = page.do(_said_offline)
    return first, second, kept


def _said_offline(page: Page) -> str:
    page.wait_for_function("!/^Loading/.test(answer.textContent)")
    return page.locator("#answer").inner_text()


def test_a_page_with_javascript_only_works_offline_after_one_visit(open_page: Open, digits_bundle: Path) -> None:
    first, second, kept = visit_twice(open_page, digits_bundle, "/vendor/examples/20_browser_page/index.html")

    assert first == ("7 (online)", "yes")
    assert second == "7 (offline)"
    assert not any(part in url for url in kept for part in ("/models/", "/vendor/pyodide/", "/vendor/litert/"))


def test_a_page_that_is_kept_when_its_session_is_gone_works_offline(open_page: Open, digits_bundle: Path) -> None:
    """The worker that fetched the engine has ended by then."""
    use = """async () => {
        const { load } = await import("/src/index.js");
        const session = await load("/models/digits", { variant: "onnx/int8" });
        const { logits } = await session.run({ image: new Float32Array(64) });
        await session.dispose();
        return [...logits.data];
    }"""
    with ServerThread(create_app({"digits": digits_bundle}, find_web_root())) as running:
        page = open_page(f"{running.url}/blank.html")
        first = page.evaluate(use)
        kept = page.evaluate('async () => (await import("/src/index.js")).keepOffline()')
    page.do(lambda page: page.reload())

    assert kept["checked"] >= 2, "the engine's files are not kept"
    assert page.evaluate(use) == first


def test_a_kept_page_works_offline_with_what_it_never_used_online(open_page: Open, tmp_path: Path) -> None:
    """Online it runs the model alone; offline the pipeline with its steps, and the kernels of a search."""
    bundle = pipelines.colours(tmp_path / "colours.bundle")
    run = """async () => {
        const { load, keepOffline } = await import("/src/index.js");
        const session = await load("/models/colours");
        const kept = await keepOffline();
        await session.dispose();
        return kept.isKept;
    }"""
    classify = """async () => {
        const { pipeline } = await import("/src/index.js");
        const classify = await pipeline("/models/colours");
        const red = new ImageData(new Uint8ClampedArray(64).map((_, i) => [255, 0, 0, 255][i % 4]), 4, 4);
        const [best] = await classify(red, { top_k: 1 });
        const similarity = await fetch("/src/vectors/vectors.wasm");
        return [best.label, similarity.ok];
    }"""
    with ServerThread(create_app({"colours": bundle}, find_web_root())) as running:
        page = open_page(f"{running.url}/blank.html")
        assert page.evaluate(run)
        kept = page.evaluate(_KEPT)
    page.do(lambda page: page.reload())

    assert page.evaluate(classify) == ["red", True]
    assert any(url.endswith("/vendor/jinja/index.js") for url in kept)
    assert not any(part in url for url in kept for part in ("/models/", "/vendor/pyodide/", "/vendor/litert/"))


@pytest.mark.long
def test_an_onnxruntime_script_works_offline_after_one_visit(open_page: Open, digits_bundle: Path) -> None:
    """The file itself runs natively too, over the real onnxruntime."""
    folder = EXAMPLES / "21_browser_script"
    command = [sys.executable, str(folder / "script.py"), str(EXAMPLES / "digits/digits.onnx")]
    natively = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    first, second, _ = visit_twice(open_page, digits_bundle, "/vendor/examples/21_browser_script/index.html")

    assert re.match(r"7, by onnxruntime \S+ on CPUExecutionProvider", natively)
    assert (first[0].partition(",")[0], first[1], second) == ("7", "yes", first[0])


def test_an_engine_file_that_is_not_the_one_of_the_build_is_not_kept(
    open_page: Open, digits_bundle: Path, tmp_path: Path
) -> None:
    """The build's list names another hash for it."""
    web = find_web_root()
    shutil.copytree(web / "src", tmp_path / "src")
    shutil.copytree(EXAMPLES / "20_browser_page", tmp_path / "vendor/examples/20_browser_page")
    (tmp_path / "vendor/onnxruntime-web").mkdir()
    for ending in ("mjs", "wasm"):
        path = f"vendor/onnxruntime-web/ort-wasm-simd-threaded.{ending}"
        shutil.copy(web / path, tmp_path / path)
    entry = {"files": {"onnxruntime-web/ort-wasm-simd-threaded.mjs": {"sha256": "0" * 64}}}
    (tmp_path / "vendor/versions.json").write_text(json.dumps(entry))

    with ServerThread(create_app({"digits": digits_bundle}, tmp_path)) as running:
        page = open_page(f"{running.url}/vendor/examples/20_browser_page/index.html")
        said, _ = answer(page)

    assert re.search(r"ort-wasm-simd-threaded.mjs has sha256 \w+, expected 0000.*install them again", said)
