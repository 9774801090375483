"""The demo page, as a visitor uses it."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.listener import listen, url_of
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.digits import digits_app, make_digits_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Request

    from tests.support.browser.pages import BrowserPage

_ENGINE_FILES = ("/vendor/onnxruntime-web/", "/vendor/litert/")
#: What the demo fetches from a server until it answers, brotli as our server sends it.
_MAX_FIRST_VISIT = 125_000
_READY = "#result[data-state=answer]"


@pytest.fixture(scope="module")
def digits_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as `make demo` converts them, with compiled variants."""
    return make_digits_bundle(tmp_path_factory.mktemp("demo") / "digits.bundle")


@pytest.fixture(scope="module")
def server(digits_bundle: Path) -> Iterator[str]:
    with ServerThread(create_app({"digits": digits_bundle}, find_web_root())) as running:
        yield running.url


@pytest.fixture(scope="module")
def plain_server(digits_bundle: Path) -> Iterator[str]:
    """A server whose pages are not isolated."""
    with ServerThread(create_app({"digits": digits_bundle}, find_web_root(), isolated=False)) as running:
        yield running.url


def recognised(page: Page, digit: int) -> str:
    """Wait until the page has recognised a digit, and return how sure it is."""
    page.wait_for_function("digit => document.getElementById('digit').textContent === String(digit)", arg=digit)
    return page.inner_text("#certainty")


def draw_a_one(page: Page) -> None:
    box = page.locator("#pad").bounding_box()
    assert box is not None
    x, top, bottom = (box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.15, box["y"] + box["height"] * 0.85)
    page.mouse.move(x, top)
    page.mouse.down()
    page.mouse.move(x, bottom, steps=12)
    page.mouse.up()


@pytest.mark.parametrize("mode", ["javascript", pytest.param("python", marks=pytest.mark.long)])
def test_a_drawing_is_recognised(open_page: Callable[..., BrowserPage], server: str, mode: str) -> None:
    page = open_page(f"{server}/demo/?mode={mode}")
    page.do(lambda page: page.wait_for_selector(_READY))

    page.do(draw_a_one)
    page.do(lambda page: recognised(page, 1))
    spoken = page.do(lambda page: page.wait_for_selector("#spoken:not(:empty)", state="attached").text_content())  # type: ignore[union-attr]
    page.do(lambda page: page.click("#clear"))
    page.do(lambda page: page.wait_for_selector("#answer.is-empty"))

    assert spoken is not None
    assert spoken.startswith("one, ")
    assert page.console == []


@pytest.mark.long
@pytest.mark.parametrize("mode", ["javascript", "python"])
def test_a_drawing_is_recognised_under_a_path(
    open_page: Callable[..., BrowserPage], digits_bundle: Path, mode: str
) -> None:
    """As a part of another application, which is what answers at the root."""
    app = create_app({"digits": digits_bundle}, find_web_root())
    outer = uvicorn.Server(uvicorn.Config(Starlette(routes=[Mount("/ml", app)]), log_config=None))
    with listen("127.0.0.1", 0) as listening:
        thread = Thread(target=outer.run, args=([listening],))
        thread.start()
        try:
            page = open_page(f"{url_of(listening)}/ml/demo/?mode={mode}")
            page.do(lambda page: page.wait_for_selector(_READY))
            page.do(draw_a_one)
            page.do(lambda page: recognised(page, 1))
            assert page.console == []
        finally:
            outer.should_exit = True
            thread.join()
            app.engine.close()


def test_both_modes_recognise_every_sample_alike(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/demo/", reduced_motion="reduce")
    seen: dict[str, list[str]] = {}
    for mode in ("javascript", "python"):
        page.do(lambda page, mode=mode: page.click(f"label[for=mode-{mode}]"))  # type: ignore[misc]
        page.do(lambda page: page.wait_for_selector(_READY))
        seen[mode] = []
        for digit in range(10):
            page.do(lambda page, digit=digit: page.click(f"#samples button:nth-child({digit + 1})"))  # type: ignore[misc]
            seen[mode].append(page.do(lambda page, digit=digit: recognised(page, digit)))  # type: ignore[misc]

    assert seen["javascript"] == seen["python"]
    facts = page.do(lambda page: page.inner_text("dl"))
    assert f"compiled-web {edge_infer.__version__}" in facts
    assert "compiled/int8" in facts
    assert page.console == []


def test_the_first_answer_needs_no_engine(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")
    asked: list[str] = []
    sizes: list[int] = []

    def hear(request: Request) -> None:
        asked.append(request.url)
        sizes.append(request.sizes()["responseBodySize"])

    page.do(lambda page: page.context.on("requestfinished", hear))
    page.do(lambda page: page.goto(f"{server}/demo/"))
    page.do(lambda page: page.wait_for_selector(_READY))
    page.do(lambda page: page.wait_for_load_state("networkidle"))

    assert not [url for url in asked if any(part in url for part in _ENGINE_FILES)]
    assert [url for url in asked if url.endswith(".wasm")] == [f"{server}/models/digits/compiled/model_int8.wasm"]
    assert 40_000 < sum(sizes) < _MAX_FIRST_VISIT


def test_the_engines_are_started_when_they_are_asked_for(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/demo/")
    page.do(lambda page: page.wait_for_selector(_READY))
    page.do(lambda page: page.click("#measure"))
    page.do(lambda page: page.wait_for_selector("#measure", state="hidden", timeout=60_000))

    rows = page.do(lambda page: [row.inner_text().split("\t") for row in page.query_selector_all("#starts-rows tr")])

    assert [row[:2] for row in rows] == [
        ["Compiled, no engine", "compiled/int8"],
        ["onnxruntime-web", "onnx/int8"],
        ["LiteRT.js", "tflite/int8"],
    ]
    assert all(row[2].endswith((" kB", " MB", "cache")) and row[3].endswith(" ms") for row in rows)
    assert page.console == []


def test_javascript_prepares_a_drawing_as_python_does(open_page: Callable[..., BrowserPage], server: str) -> None:
    """Bit by bit, on drawings of any size and place, thin and faint ones too."""
    app = digits_app()
    drawings = [app.drawing(text, scale) for text in app.DRAWINGS.values() for scale in (1, 3, 13)]
    drawings += [
        (bytes((x * y) % 256 for y in range(40) for x in range(23)), 23, 40),
        (bytes(200) + b"\xff" + bytes(199), 20, 20),
        (bytes([63] * 100), 10, 10),
    ]
    expected = [list(image) if (image := app.to_image(*drawing)) else None for drawing in drawings]

    found = open_page(f"{server}/blank.html").evaluate(
        """async (drawings) => {
            const { toImage } = await import("/demo/digits.js");
            return drawings.map(([pixels, width, height]) => {
                const image = toImage(Uint8Array.from(pixels), width, height);
                return image && [...image];
            });
        }""",
        [[list(pixels), width, height] for pixels, width, height in drawings],
    )

    assert found == expected


def test_a_server_without_the_model_says_what_to_type(open_page: Callable[..., BrowserPage]) -> None:
    with ServerThread(create_app({}, find_web_root())) as bare:
        page = open_page(f"{bare.url}/demo/")
        said = page.do(lambda page: page.wait_for_selector("#error").inner_text())  # type: ignore[union-attr]

    assert "no model called digits" in said
    assert "edge-infer convert examples/digits/digits.onnx -o digits.bundle" in said
    assert "Try again" in said


def test_a_page_without_isolation_notes_it_and_works(open_page: Callable[..., BrowserPage], plain_server: str) -> None:
    page = open_page(f"{plain_server}/demo/")
    page.do(lambda page: page.wait_for_selector(_READY))

    assert page.do(lambda page: page.is_visible("#note"))
    assert "1 thread" in page.do(lambda page: page.inner_text("dl"))


def test_the_page_is_used_by_keyboard_alone(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/demo/", reduced_motion="reduce")
    page.do(lambda page: page.wait_for_selector(_READY))

    page.do(lambda page: page.focus("#samples button:nth-child(8)"))
    page.do(lambda page: page.keyboard.press("Enter"))
    page.do(lambda page: recognised(page, 7))
    page.do(lambda page: page.focus("#pad"))
    page.do(lambda page: page.keyboard.press("Escape"))

    assert page.do(lambda page: page.wait_for_selector("#answer.is-empty")) is not None
