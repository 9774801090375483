"""What goes wrong on the studio's pages: a sentence that says what to do, never a blank page, and nothing kept half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support import zoo
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.tasks.pipelines import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Route

    from tests.support.browser.pages import BrowserPage

pytestmark = pytest.mark.long

_PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bad")
    bundles = {
        "tiny": write_bundle(folder / "tiny", bundle_files("tiny")),
        "strange": write_bundle(folder / "strange", bundle_files("strange", zoo.unknown_operator(), shape=(1,))),
    }
    with ServerThread(create_app(bundles, find_web_root())) as server:
        yield server.url


def _trouble(page: Page) -> str:
    page.wait_for_selector(".notice.bad", timeout=_PATIENCE_MS)
    return page.inner_text(".notice.bad")


def _answered(page: Page) -> None:
    page.wait_for_selector(".answer .tensor", timeout=_PATIENCE_MS)


def test_a_model_with_a_false_hash_is_refused_and_can_be_tried_again(
    open_page: Callable[..., BrowserPage], url: str
) -> None:
    def damaged(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=response.body()[:-1] + b"\xff")

    def work(page: Page) -> str:
        page.route("**/onnx/model.onnx*", damaged)
        page.goto(f"{url}/#/models/tiny")
        said = _trouble(page)
        page.reload()  # what was refused is not kept
        again = _trouble(page)
        page.unroute("**/onnx/model.onnx*")
        page.click("text=Try again")
        _answered(page)
        return said + again

    said = open_page("about:blank").do(work)

    assert said.count("sha256") >= 2
    assert said.count("Try again") == 2


def test_an_operator_that_no_engine_has_is_named(open_page: Callable[..., BrowserPage], url: str) -> None:
    assert "Frobnicate" in open_page(f"{url}/#/models/strange").do(_trouble)


def test_a_dropped_model_with_an_operator_that_no_engine_has_is_named(
    open_page: Callable[..., BrowserPage], url: str, tmp_path: Path
) -> None:
    (tmp_path / "strange.onnx").write_bytes(zoo.unknown_operator())

    def work(page: Page) -> str:
        page.set_input_files("input[type=file]", tmp_path / "strange.onnx")
        page.click("text=Run on made-up inputs")
        return _trouble(page)

    assert "Frobnicate" in open_page(f"{url}/#/inspect").do(work)


def test_a_dropped_file_of_two_gigabytes_is_refused_unread(
    open_page: Callable[..., BrowserPage], url: str, tmp_path: Path
) -> None:
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(2_100_000_000)  # a hole: it takes no room

    def work(page: Page) -> str:
        page.set_input_files("input[type=file]", tmp_path / "large.onnx")
        return _trouble(page)

    said = open_page(f"{url}/#/inspect").do(work)

    assert "large.onnx is 2100 MB" in said
    assert "edge-infer info" in said


def test_a_browser_without_webassembly_is_told_so(open_page: Callable[..., BrowserPage], url: str) -> None:
    def without(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=f"delete self.WebAssembly;\n{response.text()}")

    def work(page: Page) -> str:
        page.route("**/src/page/worker.js", without)
        page.goto(f"{url}/#/models/tiny")
        return _trouble(page)

    assert "runs no WebAssembly" in open_page("about:blank").do(work)


def test_a_page_whose_policy_forbids_workers_is_told_so(open_page: Callable[..., BrowserPage], url: str) -> None:
    def guarded(route: Route) -> None:
        response = route.fetch()
        policy = "worker-src 'none'; script-src 'self' 'unsafe-eval'"
        route.fulfill(response=response, headers={**response.headers, "content-security-policy": policy})

    def work(page: Page) -> str:
        page.route(f"{url}/", guarded)
        page.goto(f"{url}/#/models/tiny")
        return _trouble(page)

    assert "policy forbids it" in open_page("about:blank").do(work)


def test_a_full_storage_is_said_and_the_model_answers(open_page: Callable[..., BrowserPage], url: str) -> None:
    def work(page: Page) -> str:
        page.context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", {"origin": url, "quotaSize": 1000})
        page.goto(f"{url}/#/models/tiny")
        _answered(page)
        return page.inner_text(".setup .why")

    assert "room" in open_page("about:blank").do(work)


def test_a_server_that_is_gone_is_said(open_page: Callable[..., BrowserPage], tmp_path: Path) -> None:
    post = [{"step": "post.softmax"}, {"step": "post.top_k"}]
    mood = words(tmp_path / "mood", "text-classification", post, 2, ["bad", "good"], pooled=True)

    def first(page: Page) -> None:
        page.wait_for_selector(".bars .best", timeout=_PATIENCE_MS)
        with page.expect_response("**/predict", timeout=_PATIENCE_MS) as answer:
            page.click("label:has(input[value=server])")
        assert answer.value.ok

    def later(page: Page) -> str:
        page.fill(".stage textarea", "another text")
        page.wait_for_selector(".notice.bad:has-text('does not answer')", timeout=_PATIENCE_MS)
        said = _trouble(page)
        page.click("label:has(input[value=ort])")  # its engine is not kept: nobody pressed "Offline now"
        page.wait_for_selector(".notice.bad:has-text('is the server there?')", timeout=_PATIENCE_MS)
        assert page.input_value(".stage textarea") == "another text"
        return said

    with ServerThread(create_app({"mood": mood}, find_web_root())) as server:
        page = open_page(f"{server.url}/#/models/mood")
        page.do(first)
    said = page.do(later)

    assert "The server does not answer" in said
    assert "edge-infer serve" in said


def test_made_values_are_not_in_the_address(open_page: Callable[..., BrowserPage], url: str) -> None:
    def work(page: Page) -> list[str]:
        page.add_init_script(
            "const was = history.replaceState; globalThis.written = [];"
            "history.replaceState = (...given) => (written.push(given[2]), was.apply(history, given));"
        )
        page.goto(f"{url}/#/models/tiny")
        _answered(page)
        written: list[str] = page.evaluate("written")
        return written

    assert open_page("about:blank").do(work) == []
