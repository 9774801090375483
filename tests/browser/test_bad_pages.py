"""Pages that allow no worker or have no WebAssembly: an error that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route

    from tests.support.browser.pages import BrowserPage

_LOAD = """async (options) => {
    const { load } = await import("/src/index.js");
    await load("/models/digits", options);
}"""
_POLICY = "worker-src 'none'; script-src 'self' 'unsafe-eval'"


def test_a_page_that_forbids_workers_is_told_what_its_policy_has_to_say(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page("about:blank")

    def guarded(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, headers={**response.headers, "content-security-policy": _POLICY})

    page.do(lambda page: page.route("**/blank.html", guarded))
    page.do(lambda page: page.goto(f"{server}/blank.html"))

    with pytest.raises(BackendUnavailable, match="the page's policy forbids it") as caught:
        page.evaluate(_LOAD, {})
    assert "worker-src 'self' blob:" in str(caught.value.hint)


@pytest.mark.parametrize("options", [{}, {"backend": "litert"}, {"device": "webgpu"}], ids=str)
def test_a_browser_without_webassembly_says_so(
    open_page: Callable[..., BrowserPage], server: str, options: dict[str, str]
) -> None:
    page = open_page(f"{server}/blank.html")

    def without(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=f"delete self.WebAssembly;\n{response.text()}")

    page.do(lambda page: page.route("**/src/page/worker.js", without))

    with pytest.raises(BackendUnavailable, match="runs no WebAssembly") as caught:
        page.evaluate(_LOAD, options)
    assert "fallback" in str(caught.value.hint)
