"""The example of a search in the reader's own documents: indexed, found, ranked, answered, and all of it offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import FilePayload

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.chains import made
from tests.support.generation.bundles import write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.browser.pages import BrowserPage

FILES = [
    {"name": "films.md", "mimeType": "text/markdown", "text": "# Good\n\ngood film in paris\n\n# Bad\n\na bad film"},
    {"name": "places.html", "mimeType": "text/html", "text": "<h1>Places</h1><p>london a paris<p>paris &amp; london"},
    {"name": "notes.txt", "mimeType": "text/plain", "text": "a good london\n\n" * 60},
]
ADDRESS = (
    "/vendor/examples/23_browser_search/index.html?model=/models/minilm&ranker=/models/ranker&writer=/models/writer"
)


@pytest.fixture
def bundles(tmp_path: Path) -> dict[str, Path]:
    return {
        "minilm": made.embedder(tmp_path / "minilm.bundle"),
        "ranker": made.ranker(tmp_path / "ranker.bundle"),
        "writer": write_bundle(tmp_path / "writer.bundle", context=1024),
    }


def files() -> list[dict[str, object]]:
    return [{**{key: one[key] for key in ("name", "mimeType")}, "buffer": one["text"].encode()} for one in FILES]


def ready(page: Page) -> None:
    page.set_default_timeout(30_000)
    page.wait_for_selector("#query:enabled")


def ask(page: Page, text: str) -> list[str]:
    page.fill("#query", text)
    page.wait_for_function("document.querySelector('#status').textContent.endsWith('found')")
    found: list[str] = page.eval_on_selector_all("#hits small", "found => found.map(({ textContent }) => textContent)")
    return found


def shots(page: Page, folder: Path | None) -> None:
    """Photograph the page in both colours at three widths, for a person's look."""
    for scheme in ("light", "dark") if folder else ():
        page.emulate_media(color_scheme=scheme)
        for width in (360, 800, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") == width
            page.screenshot(path=f"{folder}/search-{scheme}-{width}.png")


def test_documents_are_indexed_found_and_answered_also_without_the_server(
    open_page: Callable[..., BrowserPage], bundles: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    folder = request.config.rootpath / ".shots" if (request.config.rootpath / ".shots").is_dir() else None

    def first(page: Page) -> tuple[list[str], str, str]:
        ready(page)
        page.set_input_files(".drop input", files())  # type: ignore[arg-type]
        page.wait_for_function(
            "document.querySelectorAll('#documents li').length === 3 && document.querySelector('#work').hidden"
        )
        found = ask(page, "good film in paris")
        page.check("#rank")
        ranked = ask(page, "good film paris")
        assert sorted({one.partition(",")[0] for one in ranked}) == ["films.md", "notes.txt", "places.html"]
        page.focus("#query")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "document.querySelector('#text').textContent.length > 0 && !document.querySelector('#ask').disabled"
        )
        shots(page, folder)
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.wait_for_selector("#place[data-offline]")
        return found, page.inner_text("#sources"), page.inner_text("#place")

    def later(page: Page) -> tuple[list[str], int, str]:
        page.reload()
        ready(page)
        found = ask(page, "good film in paris")
        page.click("text=Remove >> nth=0")
        page.wait_for_function("document.querySelectorAll('#documents li').length === 2")
        left = page.eval_on_selector_all("#documents li", "all => all.length")
        page.click("#ask")
        page.wait_for_function("document.querySelector('#text').textContent.length > 0")
        return found, left, page.inner_text("#sources")

    with ServerThread(create_app(bundles, find_web_root())) as server:
        opened = open_page(f"{server.url}{ADDRESS}")
        found, sources, place = opened.do(first)
    # The server is gone.
    again, left, others = opened.do(later)

    assert found[0] == "films.md, piece 1"
    assert found == again
    assert sources.startswith("Sources: [1] ")
    assert place == "Kept in this browser; works offline."
    assert left == 2
    assert "films.md" not in others


def test_what_is_no_document_is_refused_and_names_can_be_read_aloud(
    open_page: Callable[..., BrowserPage], bundles: dict[str, Path]
) -> None:
    def work(page: Page) -> tuple[str, list[str], str]:
        ready(page)
        page.set_input_files(".drop input", FilePayload(name="a.pdf", mimeType="application/pdf", buffer=b"%PDF"))
        page.wait_for_selector("#status.bad")
        said = page.inner_text("#status")
        page.set_input_files(".drop input", files()[:1])  # type: ignore[arg-type]
        page.wait_for_selector("#documents li")
        names: list[str] = page.eval_on_selector_all(
            "button, input",
            """all => all.filter((one) => one.offsetParent).map((one) =>
                one.ariaLabel || one.labels?.[0]?.textContent.trim() || one.textContent)""",
        )
        page.keyboard.press("Tab")
        return said, names, page.evaluate("document.activeElement.className || document.activeElement.tagName")

    with ServerThread(create_app(bundles, find_web_root())) as server:
        said, names, focused = open_page(f"{server.url}{ADDRESS.partition('?')[0]}").do(work)

    assert "`a.pdf` is not a document" in said
    assert all(names)
    assert "Remove films.md" in names
    assert "Your question" in names
    assert focused


def test_two_that_change_one_index_lose_nothing(
    open_page: Callable[..., BrowserPage], bundles: dict[str, Path]
) -> None:
    with ServerThread(create_app(bundles, find_web_root())) as server:
        found = open_page(f"{server.url}/blank.html").evaluate(
            """async () => {
                const { ownIndex } = await import("/src/index.js");
                const open = () => ownIndex("shared", { model: "/models/minilm" });
                const [one, two] = [await open(), await open()];
                await Promise.all([
                    one.add([{ name: "a.txt", text: "good film" }, { name: "b.txt", text: "paris" }]),
                    two.add([{ name: "c.txt", text: "bad film" }]),
                ]);
                await two.remove("a.txt");
                await one.add([{ name: "d.txt", text: "london" }]);
                const kept = (await open()).documents().map(({ source }) => source);
                await two.clear();
                await one.add([{ name: "e.txt", text: "a good london" }]);
                const last = await open();
                await last.dispose();
                const more = last.add([{ name: "f.txt", text: "paris" }]);
                const closed = await more.then(() => "added", ({ code }) => code);
                return [kept.sort(), one.documents(), last.size, closed];
            }"""
        )
    assert found == [["b.txt", "c.txt", "d.txt"], [{"source": "e.txt", "pieces": 1}], 1, "input_error"]


def test_what_is_given_up_before_it_begins_takes_nothing_out(
    open_page: Callable[..., BrowserPage], bundles: dict[str, Path]
) -> None:
    with ServerThread(create_app(bundles, find_web_root())) as server:
        found = open_page(f"{server.url}/blank.html").evaluate("""async () => {
            const { ownIndex } = await import("/src/index.js");
            const own = await ownIndex("stopped", { model: "/models/minilm" });
            await own.add([{ name: "a.txt", text: "a good film" }]);
            const signal = AbortSignal.abort();
            const said = await own.add([{ name: "a.txt", text: "a bad film" }], { signal }).catch(String);
            return [said, own.documents()];
        }""")

    assert "Abort" in found[0]
    assert found[1] == [{"source": "a.txt", "pieces": 1}]
