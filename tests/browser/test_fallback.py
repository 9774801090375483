"""`load(url, { fallback })` in a page: the same model on the server, by the rules of Python's `load`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser.pages import BrowserPage

pytestmark = pytest.mark.browser

_LOAD = """async (options) => {
    const { load } = await import("/src/index.js");
    const fallback = new URL("/v2/models/digits", location.href).href;
    const session = await load("/models/digits", { fallback, ...options });
    const image = new Float32Array(64).fill(0.5);
    const runs = [];
    for (let i = 0; i < 6; i++) runs.push([...(await session.run({ image })).logits.data]);
    const { engine, device, fallbacks, notices } = session.report();
    const read = await session.read("manifest.json").then(() => "", ({ code }) => code);
    await session.dispose();
    return { runs, engine, device, fallbacks, notices, read };
}"""


@pytest.mark.long  # it measures for seconds
def test_a_session_goes_to_the_server_where_it_must(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")
    asked = {"variant": "onnx/fp32", "threads": 1}

    here = page.evaluate(_LOAD, asked)
    slow = page.evaluate(_LOAD, {**asked, "latencyBudgetMs": 1e-6})
    measured = page.evaluate(_LOAD, {**asked, "latencyBudgetMs": 1e-6, "tune": True})

    assert (here["engine"], here["fallbacks"], here["notices"]) == ("ort-web", [], [])
    assert (slow["engine"], "latencyBudgetMs" in slow["notices"][0]) == ("ort-web", True)
    assert "ms here, more than 0.000001 ms" in slow["fallbacks"][0]
    assert (measured["engine"], measured["device"], measured["read"]) == ("remote", "remote", "unsupported")
    assert "more than" in measured["fallbacks"][0]
    expected = pytest.approx(here["runs"][0], abs=1.0)  # the server may take another variant
    for found in (slow, measured):
        assert all(run == expected for run in found["runs"])


@pytest.mark.parametrize("options", [{"fallback": "/models/digits"}, {"latencyBudgetMs": 0}])
def test_wrong_options_are_refused(
    open_page: Callable[..., BrowserPage], server: str, options: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        open_page(f"{server}/blank.html").evaluate(_LOAD, options)
