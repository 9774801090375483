"""One server, one Chromium and one Python in a page, shared by all tests of this folder.

Playwright's synchronous interface owns the thread that starts it. It gets a thread of its own here, so that a test
may also run code that drives a browser of its own, such as `edge-infer verify --backend ort-web`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.digits import make_digits_bundle
from tests.support.browser.pages import BrowserPage, BrowserThread, PagePython

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker("browser")


@pytest.fixture(scope="package")
def digits_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits in the formats of engines: with a compiled variant, pages would start none."""
    return make_digits_bundle(tmp_path_factory.mktemp("digits") / "digits.bundle", "both")


@pytest.fixture(scope="package")
def server(digits_bundle: Path) -> Iterator[str]:
    """The address of a server whose pages are cross-origin isolated."""
    with ServerThread(create_app({"digits": digits_bundle}, find_web_root())) as running:
        yield running.url


@pytest.fixture(scope="package")
def plain_server(digits_bundle: Path) -> Iterator[str]:
    """The address of a server whose pages are not isolated."""
    with ServerThread(create_app({"digits": digits_bundle}, find_web_root(), isolated=False)) as running:
        yield running.url


@pytest.fixture(scope="package")
def elsewhere() -> Iterator[str]:
    """The modules and the engine on a server of another origin, as on a CDN."""
    with ServerThread(create_app({}, find_web_root(), cors_origins=("*",))) as server:
        yield server.url


@pytest.fixture(scope="package")
def browser() -> Iterator[BrowserThread]:
    with BrowserThread() as thread:
        yield thread


@pytest.fixture(scope="package")
def python(browser: BrowserThread, server: str) -> Iterator[PagePython]:
    page = BrowserPage(browser, f"{server}/blank.html")
    yield PagePython(page)
    page.close()


@pytest.fixture
def open_page(browser: BrowserThread) -> Iterator[Callable[..., BrowserPage]]:
    """Open pages that are closed after the test."""
    pages: list[BrowserPage] = []

    def opened(url: str, **options: Any) -> BrowserPage:
        pages.append(BrowserPage(browser, url, **options))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()
