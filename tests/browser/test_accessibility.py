"""The studio's views under axe-core: the gallery and a page of each kind, dark and light, narrow and wide."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any, Literal
from urllib.request import Request, urlopen

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.repository import Repository
from tests.support.browser.npm_project import ROOT
from tests.support.chains import made
from tests.support.generation.bundles import write_bundle
from tests.support.sync.publisher import Publisher
from tests.support.tasks.pipelines import colours, loudness, words
from tests.support.tasks.tables import risk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.browser.pages import BrowserPage

pytestmark = pytest.mark.long

_AXE = ROOT / "tests/bundlers/node_modules/axe-core/axe.min.js"
_POST = [{"step": "post.softmax"}, {"step": "post.top_k"}]
_SCHEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
_MODELS = ["digits", "colours", "mood", "loud", "risk", "tiny", "minilm"]
_RUN = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(" ")}`);
}"""


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, digits_bundle: Path) -> Iterator[str]:
    assert _AXE.is_file(), "run tests/setup.sh all: axe-core is not installed"
    folder = tmp_path_factory.mktemp("studio")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    bundles = {
        "digits": digits_bundle,
        "colours": colours(folder / "colours"),
        "mood": words(folder / "mood", "text-classification", _POST, 2, ["bad", "good"], pooled=True),
        "loud": loudness(folder / "loud"),
        "risk": risk(folder / "risk"),
        "tiny": write_bundle(folder / "tiny.bundle"),
        "minilm": made.embedder(folder / "minilm.bundle"),  # with the section of one's own documents
        "broken": broken,
    }
    publisher = Publisher(folder / "store", folder / "keys", folder / "published")
    Repository(publisher.folder).create(publisher.keys)
    publisher.publish(1)
    with ServerThread(create_app(bundles, find_web_root(), store=HostedStore(publisher.folder))) as server:
        for more in (
            {"method": "delta", "bytes_moved": 10, "bytes_full": 100},
            {"result": "trial_failed", "error": "bad"},
        ):
            body = json.dumps(
                {"device": more.get("method", "d2"), "model": "linear", "version": "1", "sequence": 1, **more}
            )
            with urlopen(Request(f"{server.url}/sync/v1/report", body.encode(), {"Content-Type": "application/json"})):
                pass
        yield server.url


@pytest.mark.parametrize(
    "view",
    ["", "#/inspect", *(f"#/models/{name}" for name in _MODELS), "dashboard", "fleet"],
    ids=["gallery", "inspect", *_MODELS, "dashboard", "fleet"],
)
def test_axe_finds_no_violation(open_page: Callable[..., BrowserPage], studio: str, view: str) -> None:
    page = open_page("about:blank", bypass_csp=True, reduced_motion="reduce")

    def check(page: Page) -> dict[str, Any]:
        page.goto(f"{studio}/{view}")
        page.wait_for_selector({"": ".cards", "dashboard": "#facts dt", "fleet": "h2"}.get(view, "main h1"))
        page.add_script_tag(path=str(_AXE))
        found = {}
        for scheme, width in product(_SCHEMES, (360, 1440)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            found[f"{scheme}, {width} pixels wide"] = page.evaluate(_RUN)
        return found

    found = page.do(check)

    assert {look: violations for look, violations in found.items() if violations} == {}
    assert len(found) == 4
