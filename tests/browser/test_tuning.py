"""Measuring in the page: from Python it lasts as long as the page, JavaScript keeps it with the models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import InputError, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route

    from tests.support.browser.pages import BrowserPage, PagePython

pytestmark = pytest.mark.browser


def test_a_page_measures_its_variants_and_loads_the_best(python: PagePython, server: str) -> None:
    variants, path, why, loaded, best = python.run(
        """
import edge_infer
from edge_infer.runtime import measurements
tuning = edge_infer.tune(url, max_time_s=0.2, backend="ort-web")
with edge_infer.load(url) as session:
    report = session.report()
measurements._IN_PAGE.clear()
[sorted(row.variant for row in tuning.rows), tuning.path, report.why, report.variant, tuning.best.variant.id]
""",
        url=f"{server}/models/digits",
    )

    assert variants == ["onnx/fp16", "onnx/fp32", "onnx/int8"]
    assert path is None
    assert why.startswith(("measured: the fastest of 3 ways", "measured: too noisy to tell"))
    assert loaded == best


_LOAD = """async (options) => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/digits", options);
    const { variant, why, threads } = session.report();
    const shape = (await session.run({ image: new Float32Array(64) })).logits.shape;
    await session.dispose();
    return { variant, why, threads, shape };
}"""
_TUNE = """async (options) => (await import("/src/index.js")).tune("/models/digits", options)"""


def test_javascript_remembers_the_fastest_way_for_the_next_visit(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(f"{server}/blank.html")
    before = page.evaluate(_LOAD, {})
    tuning = page.evaluate(_TUNE, {"maxTimeMs": 50, "threads": [1, 2]})
    page.do(lambda page: page.reload())
    after = page.evaluate(_LOAD, {})
    asked = page.evaluate(_LOAD, {"variant": "onnx/fp16"})
    litert = page.evaluate(_LOAD, {"backend": "litert", "threads": 1})
    forgetful = page.evaluate(_LOAD, {"keep": False})

    rows = tuning["rows"]
    assert (before["variant"], before["why"]) == ("onnx/int8", "rule: of onnx variants int8 comes first here")
    ways = {(row["variant"], row["backend"], row["threads"]) for row in rows}
    onnx = {(f"onnx/{precision}", "ort", n) for precision in ("int8", "fp16", "fp32") for n in (1, 2)}
    assert ways >= onnx
    assert any(backend == "litert" for _, backend, _ in ways)
    assert (rows, tuning["failed"]) == (sorted(rows, key=lambda row: row["ms"]), [])
    best = tuning["best"]
    assert (after["variant"], after["threads"], after["why"]) == (best["variant"], best["threads"], best["why"])
    assert best["why"].startswith(
        (f"measured: the fastest of {len(rows)} ways that keep the quality", "measured: too noisy")
    )
    assert [row["variant"] for row in rows if row.get("vsRule") == 1] == ["onnx/int8"]
    assert best["vsRule"] <= 1, "it is surely not slower than the choice of the rules"
    assert (asked["variant"], asked["why"][:11]) == ("onnx/fp16", "asked for; ")
    assert litert["variant"].startswith("tflite/")
    assert forgetful["why"].startswith("rule"), "a session that leaves no trace reads none"


@pytest.mark.long
def test_a_session_that_is_to_be_tuned_measures_once(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")
    workers: list[str] = []
    page.do(lambda page: page.on("worker", lambda worker: workers.append(worker.url)))

    def sessions() -> int:  # beside them there are the engines' own threads
        return sum(url.endswith("/src/page/worker.js") for url in workers)

    first = page.evaluate(_LOAD, {"tune": True, "backend": "ort"})
    measuring = sessions()
    second = page.evaluate(_LOAD, {"tune": True})

    assert first["why"].startswith("measured") and second["why"].startswith("measured")
    assert (measuring > 1, sessions() - measuring) == (True, 1)


def test_a_session_is_tuned_within_what_it_asks_for(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")

    page.evaluate(_LOAD, {"tune": True, "backend": "ort", "threads": 1})
    litert = page.evaluate(_LOAD, {"tune": True, "backend": "litert", "threads": 1})
    onnx = page.evaluate(_LOAD, {"backend": "ort"})

    assert litert["why"].startswith("measured"), "what was measured of another engine does not count"
    assert onnx["why"].startswith(("measured: the fastest of 3 ways", "measured: too noisy")), "they stay"


def _with_wrong_int8(route: Route) -> None:
    """Let int8 claim to be fp32, whose bound it cannot keep, and be the first of these."""
    manifest = route.fetch().json()
    for variant in manifest["variants"]:
        if variant["id"] == "onnx/int8":
            variant["precision"] = "fp32"
            del variant["parity"]  # what the conversion measured of it
    manifest["variants"].sort(key=lambda variant: variant["id"] != "onnx/int8")
    route.fulfill(status=200, json=manifest)


def test_a_variant_that_misses_its_golden_outputs_is_not_taken(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/manifest.json", _with_wrong_int8))

    tuning = page.evaluate(_TUNE, {"maxTimeMs": 50, "threads": [1], "backend": "ort"})

    assert "onnx/int8" not in {row["variant"] for row in tuning["rows"]}
    ((variant, reason),) = [(one["variant"], one["reason"]) for one in tuning["failed"]]
    assert (variant, "golden outputs" in reason) == ("onnx/int8", True)
    with pytest.raises(UnsupportedModel, match="golden outputs"):
        page.evaluate(_TUNE, {"maxTimeMs": 50, "threads": [1], "variant": "onnx/int8"})


@pytest.mark.long
def test_a_variant_that_misses_them_is_not_taken_though_nothing_else_was_measured(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/manifest.json", _with_wrong_int8))
    before = page.evaluate(_LOAD, {})

    with pytest.raises(UnsupportedModel, match="golden outputs"):
        page.evaluate(_TUNE, {"maxTimeMs": 50, "threads": [1], "variant": "onnx/int8"})
    after = page.evaluate(_LOAD, {})

    assert (before["variant"], after["variant"]) == ("onnx/int8", "onnx/fp32")


@pytest.mark.parametrize(("options", "said"), [({"threads": []}, "numbers from 1"), ({"maxTimeMs": 0}, "more than 0")])
def test_wrong_options_are_refused(
    open_page: Callable[..., BrowserPage], server: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        open_page(f"{server}/blank.html").evaluate(_TUNE, options)
