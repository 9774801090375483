"""`strict` refuses the same in JavaScript and in Python: one table of cases for both, in a Chromium without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import EdgeInferError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser.pages import BrowserPage, PagePython

# What is asked for, and the code of the refusal; empty where the model is loaded.
_CASES: list[tuple[dict[str, str], str]] = [
    ({}, ""),
    ({"device": "wasm"}, ""),
    ({"device": "wasm", "variant": "tflite/fp32"}, ""),
    ({"device": "webgpu"}, "backend_unavailable"),
    ({"device": "webgpu", "variant": "onnx/fp32"}, "backend_unavailable"),
    ({"device": "webgpu", "variant": "tflite/fp32"}, "backend_unavailable"),
]
_LOAD = """async (options) => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/digits", { ...options, strict: true });
    const { device } = session.report();
    await session.dispose();
    return device;
}"""


def code_of(load: Callable[..., Any], *given: Any) -> str:
    try:
        load(*given)
    except EdgeInferError as error:
        return error.code
    return ""


def test_both_languages_refuse_the_same(open_page: Callable[..., BrowserPage], python: PagePython, server: str) -> None:
    page = open_page(f"{server}/blank.html")
    for asked, code in _CASES:
        words = "".join(f", {name}={value!r}" for name, value in asked.items())
        line = f"(await edge_infer.load_async({f'{server}/models/digits'!r}, strict=True{words})).report().device"

        found = [code_of(page.evaluate, _LOAD, asked), code_of(python.run, f"import edge_infer\n{line}")]

        assert found == [code, code], asked
