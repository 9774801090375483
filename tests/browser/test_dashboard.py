"""The server's dashboard in a real browser, while requests come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.server.app import create_app
from edge_infer.server.config import parse_settings
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import ask
from tests.support.server.operators import digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage


def test_the_dashboard_asks_for_a_key_and_draws_what_happens(
    tmp_path: Path, open_page: Callable[..., BrowserPage]
) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    tenants = {"shop": {"keys": [digest("k")], "metrics": True}, "guest": {"keys": [digest("g")]}}
    settings = parse_settings({"tenants": tenants})
    with ServerThread(create_app({"tiny": tiny}, settings=settings)) as server:
        page = open_page(f"{server.url}/dashboard")
        page.do(lambda page: page.fill("#key", "g"))
        page.do(lambda page: page.click("#key-form button"))
        page.do(lambda page: page.wait_for_selector("#status:has-text('guest')"))
        page.do(lambda page: page.fill("#key", "k"))
        page.do(lambda page: page.click("#key-form button"))
        assert ask(server, x_api_key="k").status == 200
        page.do(lambda page: page.wait_for_selector(".model h2"))
        assert page.do(lambda page: page.inner_text(".model h2")) == "tiny"
        for _ in range(20):
            ask(server, x_api_key="k")
        page.do(lambda page: page.wait_for_selector("path.line.second", state="attached"))
        page.do(lambda page: page.wait_for_selector("#status[data-state=live]"))
        # A browser says of itself that 401 and 403 are errors; nothing else went wrong.
        assert [line for line in page.console if "401" not in line and "403" not in line] == []


def test_the_dashboard_keeps_the_theme_that_was_chosen(tmp_path: Path, open_page: Callable[..., BrowserPage]) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    ground = "async () => getComputedStyle(document.body).backgroundColor"
    with ServerThread(create_app({"tiny": tiny})) as server:
        page = open_page(f"{server.url}/dashboard")
        page.do(lambda page: page.click("text=Theme: auto"))
        light = page.evaluate(ground)
        page.do(lambda page: page.click("text=Theme: light"))
        dark = page.evaluate(ground)
        page.do(lambda page: page.reload())
        page.do(lambda page: page.wait_for_selector("text=Theme: dark"))
        assert (light, dark) == ("rgb(255, 255, 255)", "rgb(16, 18, 21)")
        assert page.evaluate(ground) == dark
        assert page.console == []


def test_the_fleet_shows_the_theme_that_was_chosen_on_the_dashboard(open_page: Callable[..., BrowserPage]) -> None:
    with ServerThread(create_app({})) as server:
        page = open_page(f"{server.url}/dashboard")
        page.do(lambda page: page.click("text=Theme: auto"))
        page.do(lambda page: page.click("text=Theme: light"))
        page.do(lambda page: page.goto(f"{server.url}/fleet"))
        assert page.do(lambda page: page.inner_text("#theme")) == "Theme: dark"
        assert page.evaluate("async () => getComputedStyle(document.body).backgroundColor") == "rgb(16, 18, 21)"
        assert page.console == []


def test_name_and_theme_stand_in_one_row_of_a_narrow_dashboard(open_page: Callable[..., BrowserPage]) -> None:
    tops = "async () => ['.mark', '#theme'].map((one) => document.querySelector(one).getBoundingClientRect().top)"
    with ServerThread(create_app({})) as server:
        page = open_page(f"{server.url}/dashboard")
        page.do(lambda page: page.set_viewport_size({"width": 360, "height": 740}))
        mark, theme = page.evaluate(tops)
        assert abs(mark - theme) < 3
