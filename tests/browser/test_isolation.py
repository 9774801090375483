"""Threads: what an isolated page may use, and that one without isolation works all the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route

    from tests.support.browser.pages import BrowserPage

_RUN = """async (threads) => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/digits", { threads: threads ?? undefined });
    const image = Float32Array.from({ length: 64 }, (_, i) => (i % 7) / 7);
    const { logits } = await session.run({ image });
    const { threads: used, threadsWhy: why, isolated } = session.report();
    await session.dispose();
    return { used, why, isolated, logits: [...logits.data] };
}"""


_RUN_WITH = """async (options) => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/digits", { variant: "onnx/int8", ...options });
    const { logits } = await session.run({ image: new Float32Array(64) });
    const { threads: used } = session.report();
    await session.dispose();
    return { used, logits: [...logits.data] };
}"""


def test_a_page_that_is_not_isolated_uses_one_thread(open_page: Callable[..., BrowserPage], plain_server: str) -> None:
    found = open_page(f"{plain_server}/blank.html").evaluate(_RUN)

    assert (found["used"], found["isolated"]) == (1, False)
    assert "not cross-origin isolated" in found["why"]


def test_two_threads_give_the_same_numbers(open_page: Callable[..., BrowserPage], server: str) -> None:
    one, two = (open_page(f"{server}/blank.html").evaluate(_RUN, threads) for threads in (1, 2))

    assert (one["used"], two["used"], two["isolated"]) == (1, 2, True)
    assert two["why"] == "asked for"
    assert one["logits"] == two["logits"]


_START = """async ({ module, starter, base, cpus, isShared, policy }) => {
    Object.defineProperty(navigator, "hardwareConcurrency", { value: cpus, configurable: true });
    const meta = `<meta http-equiv=Content-Security-Policy content="${policy}">`;
    if (policy) document.head.insertAdjacentHTML("beforeend", meta);
    if (!isShared) delete globalThis.SharedArrayBuffer;
    const warnings = [];
    console.warn = (text) => warnings.push(text);
    const engine = await (await import(`/src/engines/${module}`))[starter]({ base });
    return { threads: engine.threads, warnings };
}"""
_ENGINES = [("ort.js", "startOrtEngine", "onnxruntime-web"), ("litert.js", "startLiteRtEngine", "litert")]


@pytest.mark.parametrize(("module", "starter", "folder"), _ENGINES, ids=["ort", "litert"])
def test_an_engine_of_another_origin_has_threads_on_many_processors(
    open_page: Callable[..., BrowserPage], server: str, elsewhere: str, module: str, starter: str, folder: str
) -> None:
    base = f"{elsewhere}/vendor/{folder}/"
    wish = {"module": module, "starter": starter, "base": base, "cpus": 8, "isShared": True}

    found = open_page(f"{server}/blank.html").evaluate(_START, wish)

    assert found == {"threads": 4, "warnings": []}


_POLICIES = {
    # A worker of a copy of the engine's script is refused.
    "worker-src 'self'": "worker-src 'self' blob:",
    # The engine starts its own threads by plain addresses.
    "require-trusted-types-for 'script'": "trusted-types edge-infer default",
}


@pytest.mark.parametrize("policy", list(_POLICIES), ids=["workers", "trusted types"])
def test_an_engine_whose_threads_the_policy_of_the_page_refuses_has_one(
    open_page: Callable[..., BrowserPage], server: str, elsewhere: str, policy: str
) -> None:
    base = f"{elsewhere if 'self' in policy else server}/vendor/onnxruntime-web/"
    wish = {"module": "ort.js", "starter": "startOrtEngine", "base": base, "cpus": 8, "isShared": True}

    found = open_page(f"{server}/blank.html").evaluate(_START, wish | {"policy": policy})

    assert found["threads"] == 1
    assert _POLICIES[policy] in found["warnings"][0]


def test_litert_has_one_thread_where_the_page_lets_no_policy_of_its_script_be_made(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    base = f"{server}/vendor/litert/"
    wish = {"module": "litert.js", "starter": "startLiteRtEngine", "base": base, "cpus": 8, "isShared": True}
    policy = "require-trusted-types-for 'script'; trusted-types edge-infer default"

    found = open_page(f"{server}/blank.html").evaluate(_START, wish | {"policy": policy})

    assert found["threads"] == 1
    assert "emscripten#workerPolicy2 'allow-duplicates'" in found["warnings"][0]

    named = "require-trusted-types-for 'script'; trusted-types edge-infer emscripten#workerPolicy2 'allow-duplicates'"
    found = open_page(f"{server}/blank.html").evaluate(_START, wish | {"policy": named})
    assert found == {"threads": 4, "warnings": []}


def test_threads_run_where_the_page_asks_for_trusted_types(open_page: Callable[..., BrowserPage], server: str) -> None:
    policy = "require-trusted-types-for 'script'; trusted-types edge-infer default"

    found = run_under(open_page, server, policy, {"threads": 2})

    assert (found["used"], len(found["logits"])) == (2, 10)


def run_under(
    open_page: Callable[..., BrowserPage], server: str, policy: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Run a model in a page, on what it takes for eight processors, all of whose scripts come with a policy."""

    def answer(route: Route) -> None:
        response = route.fetch()
        body = response.text()
        if route.request.url.endswith("/page/worker.js"):
            body = "Object.defineProperty(navigator, 'hardwareConcurrency', { value: 8 });" + body
        headers = response.headers | {"content-security-policy": policy}
        route.fulfill(response=response, headers=headers, body=body)

    page = open_page("about:blank")
    page.do(lambda page: page.context.route(re.compile(rf"{server}/(blank.html|src/page/worker.js)"), answer))
    page.do(lambda page: page.goto(f"{server}/blank.html"))
    found: dict[str, Any] = page.evaluate(_RUN_WITH, options)
    return found | {"console": page.console}


@pytest.mark.parametrize(("module", "starter", "folder"), _ENGINES, ids=["ort", "litert"])
def test_an_isolated_page_without_shared_memory_starts_with_one_thread(
    open_page: Callable[..., BrowserPage], server: str, module: str, starter: str, folder: str
) -> None:
    base = f"/vendor/{folder}/"
    wish = {"module": module, "starter": starter, "base": base, "cpus": 8, "isShared": False}

    found = open_page(f"{server}/blank.html").evaluate(_START, wish)

    assert found["threads"] == 1
    assert "SharedArrayBuffer" in found["warnings"][0]


def test_an_engine_that_python_starts_later_has_the_threads_of_the_first(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    threads = open_page(f"{server}/blank.html").evaluate(
        """async (url) => {
            const { loadPython } = await import("/src/index.js");
            const python = await loadPython({ threads: 2, keepImage: false });
            const code = 'import edge_infer; (await edge_infer.load_async(url, backend="litert-web")).report().threads';
            try {
                return await python.run(code, { url });
            } finally {
                python.dispose();
            }
        }""",
        f"{server}/models/digits",
    )

    assert threads == 2


def test_threads_are_refused_where_the_page_is_not_isolated(
    open_page: Callable[..., BrowserPage], plain_server: str
) -> None:
    with pytest.raises(UnsupportedError, match="cross-origin isolated"):
        open_page(f"{plain_server}/blank.html").evaluate(_RUN, 2)
