"""`edge-infer export-page`: the studio on a host of static files, without a server of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import InputError
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.page_export.folder import write_site
from tests.support.browser.static_host import StaticHost
from tests.support.tasks.pipelines import colours

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser.pages import BrowserPage


def test_an_exported_page_answers_below_a_folder_of_any_host(
    open_page: Callable[..., BrowserPage], digits_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    made = write_site([digits_bundle, colours(tmp_path / "colours")], tmp_path / "host" / "site", find_web_root())
    with StaticHost(tmp_path / "host") as host:
        page = open_page(f"{host.url}/site/#/models/digits")

        page.do(lambda page: page.wait_for_selector(".bars .best"))
        page.do(lambda page: page.click("button[aria-label='Draw a 7']"))
        page.do(
            lambda page: page.wait_for_function("document.querySelector('.answer .big').textContent.startsWith('7')")
        )
        page.do(lambda page: page.click("label:has(input[value=ort])"))
        page.do(lambda page: page.wait_for_selector("input[value^='onnx/']:checked", state="attached"))
        page.do(lambda page: page.wait_for_function("document.querySelector('.cost')?.textContent.includes('ms')"))

        assert page.do(lambda page: page.inner_text(".answer .big")).startswith("7")
        assert page.do(lambda page: page.is_disabled("input[value=server]"))
        assert page.do(lambda page: page.is_disabled("input[value=webgpu]")), "its files were left out"
        title = page.do(lambda page: page.get_attribute("label:has([value=webgpu])", "title"))
        assert title is not None
        assert "export-page --webgpu" in title
        assert page.do(lambda page: page.locator("#link-dashboard").count()) == 0
        assert page.console == []
        assert not [path for path in host.asked if not path.startswith("/site/")]

    assert made.models == ["digits", "colours"]
    assert not (made.folder / "vendor" / "pyodide").exists()
    assert {one["name"] for one in json.loads((made.folder / "models.json").read_text())["models"]} == set(made.models)


def test_what_is_there_and_names_that_are_taken_are_refused(digits_bundle: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html").write_text("mine")
    with pytest.raises(InputError, match="is there already") as caught:
        write_site([digits_bundle], mine, find_web_root(), force=True)
    assert "--force" not in str(caught.value.hint)
    with pytest.raises(InputError, match="Two bundles are named `digits`"):
        write_site([digits_bundle, digits_bundle], tmp_path / "site", find_web_root())
    with pytest.raises(InputError, match="bare model file"):
        write_site([Path("examples/digits/digits.onnx")], tmp_path / "site", find_web_root())

    assert (mine / "index.html").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [mine]


def test_a_page_is_replaced_from_within(digits_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "studio").mkdir(parents=True)
    (site / "models.json").touch()
    monkeypatch.chdir(site)

    made = write_site([digits_bundle], Path(), find_web_root(), force=True)

    assert made.models == ["digits"]
    assert (site / "models.json").read_text()
    assert list(tmp_path.iterdir()) == [site]
