"""Each task of the guide is three lines at most, in Python and in a page, and both print the same."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tasks.registry import OWN
from tests.support.browser.pages import BrowserPage, BrowserThread
from tests.support.tasks.each_task import write_all

if TYPE_CHECKING:
    from playwright.sync_api import Route

GUIDE = (Path(__file__).parents[2] / "docs/guide/tasks.md").read_text("utf-8")
BLOCKS = re.findall(r"## (\S+)\n\n```python\n(.*?)```\n\n```js\n(.*?)```", GUIDE, re.DOTALL)


def test_every_task_has_its_three_lines() -> None:
    assert sorted(task for task, *_ in BLOCKS) == sorted(task.name for task in OWN)
    for task, *codes in BLOCKS:
        for code in codes:
            assert sum(bool(line.strip()) for line in code.splitlines()) <= 3, task


@pytest.mark.long
def test_both_languages_print_the_same(browser: BrowserThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = write_all(tmp_path)
    monkeypatch.chdir(tmp_path)

    def send(route: Route) -> None:
        route.fulfill(body=(tmp_path / route.request.url.rpartition("/")[2]).read_bytes())

    with ServerThread(create_app(bundles, find_web_root())) as server:
        page = BrowserPage(browser, f"{server.url}/blank.html")
        page.do(lambda page: page.route("**/photo.jpg", send))
        page.do(lambda page: page.route("**/hello.wav", send))
        for task, python, script in BLOCKS:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(python, task, "exec"), {})
            code = script.replace(
                'import { pipeline } from "edge-infer"', 'const { pipeline } = await import("/src/index.js")'
            )
            code = code.replace("console.log(", "said.push(")
            said = page.evaluate(f"async () => {{ const said = []; {code}\n return said; }}")
            assert same(printed.getvalue().strip(), said[0]), (task, printed.getvalue(), said)
        page.close()


def same(printed: str, value: object) -> bool:
    """Whether Python printed a value of JavaScript; numbers may differ in their last digits."""
    if isinstance(value, (int, float)):
        return float(printed) == pytest.approx(value, abs=0.05)
    return printed == value
