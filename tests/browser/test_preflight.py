"""`check` tells what `load` would do and fetch, and fetches nothing itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

_CHECK = """async (options) => {
    const { check } = await import("/src/index.js");
    return check("/models/digits", options);
}"""
_LOAD = """async (options) => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/digits", options);
    const { variant, engine } = session.report();
    await session.dispose();
    return { variant, engine };
}"""
_WASM_BYTES = 14_239_897


def test_a_load_does_what_was_told_before_and_nothing_was_fetched(
    open_page: Open, plain_server: str, digits_bundle: Path
) -> None:
    page = open_page(f"{plain_server}/blank.html")
    requests: list[str] = []
    page.do(lambda page: page.context.on("request", lambda request: requests.append(request.url)))
    size = {file["path"]: file["size"] for file in json.loads((digits_bundle / "manifest.json").read_text())["files"]}

    before = page.evaluate(_CHECK, {})
    fetched = [url for url in requests if "/models/" in url or "/vendor/" in url]
    loaded = page.evaluate(_LOAD, {})
    after = page.evaluate(_CHECK, {})

    assert {url.rpartition("/")[2] for url in fetched} <= {"manifest.json", "ort-wasm-simd-threaded.wasm"}
    assert (loaded["variant"], before["engine"], before["device"]) == (before["variant"], "ort", "wasm")
    model = size[f"onnx/model_{before['variant'].partition('/')[2]}.onnx"]
    assert (before["bytesToFetch"], before["bytesHere"]) == (model + _WASM_BYTES, 0)
    assert after["files"][0]["here"] == model
    assert before["expectedMs"] is None
    assert any("not cross-origin isolated" in why for why in before["notBetter"])
    assert any("tune" in why for why in before["notBetter"])


def test_what_was_measured_is_expected_and_what_the_gpu_lacks_is_said(open_page: Open, plain_server: str) -> None:
    page = open_page(f"{plain_server}/blank.html")
    page.evaluate(
        """async () => {
            const { tune } = await import("/src/index.js");
            await tune("/models/digits", { backend: "litert", maxTimeMs: 50 });
        }"""
    )

    found = page.evaluate(_CHECK, {})
    on_gpu = page.evaluate(_CHECK, {"device": "webgpu", "variant": "tflite/fp32"})

    assert found["engine"] == "litert"
    assert found["expectedMs"] > 0
    assert on_gpu["device"] == "wasm"
    assert any(why.startswith("webgpu:") for why in on_gpu["notBetter"])


def test_a_variant_that_is_not_there_is_the_error_of_load(open_page: Open, plain_server: str) -> None:
    page = open_page(f"{plain_server}/blank.html")

    with pytest.raises(Exception, match="onnx/fp31") as of_load:
        page.evaluate(_LOAD, {"variant": "onnx/fp31"})
    with pytest.raises(Exception, match="onnx/fp31") as of_check:
        page.evaluate(_CHECK, {"variant": "onnx/fp31"})
    assert str(of_load.value) == str(of_check.value)
