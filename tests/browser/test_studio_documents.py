"""The studio's search in the visitor's own documents: indexed, found, ranked again and answered in the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.chains import made
from tests.support.generation.bundles import write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import FilePayload, Page

    from tests.support.browser.pages import BrowserPage

FILES: list[FilePayload] = [
    {"name": "films.md", "mimeType": "text/markdown", "buffer": b"# Good\n\ngood film in paris\n\n# Bad\n\na bad film"},
    {"name": "places.html", "mimeType": "text/html", "buffer": b"<h1>Places</h1><p>a paris<p>paris &amp; london"},
    {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"a good london\n\n" * 60},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("documents")
    bundles = {
        "minilm": made.embedder(folder / "minilm.bundle"),
        "before": made.embedder(folder / "before.bundle"),
        "ranker": made.ranker(folder / "ranker.bundle"),
        "writer": write_bundle(folder / "writer.bundle", context=1024),
        "prose": write_bundle(folder / "prose.bundle", template=None),
    }
    with ServerThread(create_app(bundles, find_web_root())) as server:
        yield f"{server.url}/#/models/minilm"


@pytest.mark.long
def test_documents_are_found_ranked_answered_and_there_at_the_next_visit(
    open_page: Callable[..., BrowserPage], url: str
) -> None:
    def ask(page: Page, text: str) -> list[str]:
        page.fill("input[type=search]", text)
        page.wait_for_selector("text=/ found in /")
        return page.locator(".hits li > :last-child").all_inner_texts()

    def first(page: Page) -> tuple[list[str], list[str], str]:
        page.set_default_timeout(30_000)
        page.wait_for_selector("text=Rank again by")
        page.set_input_files(".drop input", FILES)
        page.wait_for_selector("text=/pieces of 3 documents/")
        found = ask(page, "good film in paris")
        page.click("label:has-text('ranker')")
        page.wait_for_function("document.querySelectorAll('.hits li').length > 3")
        ranked = ask(page, "good film paris")
        answers = []
        for name in ("writer", "prose"):  # one by a template, one goes on with the text
            page.click(f"label:has-text('{name}')")
            page.click("form .go")
            page.wait_for_function("document.querySelector('.mind').textContent")
            page.wait_for_selector("form .go:enabled")
            answers.append(page.inner_text(".found .notice"))
        for _ in range(60):  # the one before is closed, and the browser tells it late
            writers = [one.url for one in page.workers if "generation-worker" in one.url]
            if len(writers) == 1:
                break
            page.wait_for_timeout(50)
        assert len(writers) == 1
        for width in (1440, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") == width
        return found, ranked, answers[1]

    def later(page: Page) -> tuple[list[str], str]:
        page.reload()
        page.click("text=Show those kept here")
        page.wait_for_selector("text=/pieces of 3 documents/")
        found = ask(page, "good film in paris")
        page.click("button[aria-label='Remove films.md']")
        page.wait_for_selector("text=/pieces of 2 documents/")
        return found, page.inner_text(".hits")

    opened = open_page(url)
    found, ranked, answer = opened.do(first)
    again, left = opened.do(later)

    assert found[0] == "films.md, piece 1"
    assert sorted({one.partition(",")[0] for one in ranked}) == ["films.md", "notes.txt", "places.html"]
    assert "From [1] " in answer
    assert again == found
    assert "films.md" not in left
    assert opened.console == []


@pytest.mark.long
def test_documents_of_another_revision_stay_until_the_visitor_lets_them_be_indexed_anew(
    open_page: Callable[..., BrowserPage], url: str
) -> None:
    def work(page: Page) -> tuple[str, str, str, list[str]]:
        page.set_default_timeout(30_000)
        page.click("text=Show those kept here")
        said = page.inner_text(".documents .notice.warn")
        page.reload()  # nothing was removed by looking
        page.click("text=Show those kept here")
        page.evaluate("""() => {
            window.progressTexts = [];
            new MutationObserver(() => {
                const [name, amount] = document.querySelectorAll(".documents .load span");
                if (name) window.progressTexts.push(`${name.textContent}: ${amount.textContent}`);
            }).observe(document.querySelector(".documents"), { childList: true, characterData: true, subtree: true });
        }""")
        page.click("button:has-text('Index them anew')")
        page.wait_for_selector("text=/pieces of 1 document\\./")
        progress = page.evaluate("window.progressTexts")
        page.fill("input[type=search]", "good film")
        found = page.inner_text(".hits li")
        other: FilePayload = {"name": "kept.txt", "mimeType": "text/plain", "buffer": b"a bad film"}
        page.set_input_files(".drop input", [other])
        return said, found, page.inner_text("text=/took its place/"), progress

    opened = open_page(url.replace("#/models/minilm", "blank.html"))
    opened.evaluate("""async () => {
        const { ownIndex } = await import("/src/index.js");
        const own = await ownIndex("studio-minilm", { model: "/models/before" });
        await own.add([{ name: "kept.txt", text: "a good film\\n\\n".repeat(90) }]);
        await own.dispose();
    }""")
    opened.do(lambda page: page.goto(url))
    said, found, replaced, progress = opened.do(work)

    assert "what is kept was made by revision" in said
    assert "kept.txt, piece" in found
    assert replaced == "kept.txt was here with other content: this one took its place."
    indexing = [one for one in progress if one.startswith("Indexing anew")]
    counts = [re.fullmatch(r"Indexing anew: (\d+) of (\d+) pieces", one) for one in indexing]
    assert counts, progress
    assert all(counts), indexing
    assert counts[-1] and counts[-1][1] == counts[-1][2] != "0"
    assert opened.console == []


def test_two_files_of_one_name_are_told_apart_by_a_number(open_page: Callable[..., BrowserPage], url: str) -> None:
    texts = (b"a good film", b"a bad film", b"paris")
    same: list[FilePayload] = [{"name": "notes.txt", "mimeType": "text/plain", "buffer": text} for text in texts]

    def work(page: Page) -> list[str]:
        page.set_default_timeout(30_000)
        page.wait_for_selector(".drop input", state="attached")
        page.set_input_files(".drop input", same)
        page.wait_for_selector("text=/pieces of 3 documents\\./")
        return page.locator(".shelf li > span").all_inner_texts()

    assert open_page(url).do(work) == ["notes.txt 1", "notes (2).txt 1", "notes (3).txt 1"]


def test_what_is_no_document_is_said_and_the_others_stay(open_page: Callable[..., BrowserPage], url: str) -> None:
    bad: list[FilePayload] = [
        {"name": "photo.png", "mimeType": "image/png", "buffer": b"\x89PNG"},
        {"name": "latin.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe\xff"},
    ]

    def work(page: Page) -> list[str]:
        page.set_default_timeout(30_000)
        page.wait_for_selector(".drop input", state="attached")
        page.set_input_files(".drop input", FILES[:1])
        page.wait_for_selector("text=/pieces of 1 document\\./")
        said = []
        for one in bad:
            page.set_input_files(".drop input", [one])
            said.append(page.inner_text(f".notice.bad:has-text('{one['name']}')"))
        assert page.locator(".shelf li").count() == 1
        return said

    said = open_page(url).do(work)

    assert "not a document" in said[0]
    assert "UTF-8" in said[1]
