"""`edge-infer.js` and the engine's wasm beside it: in pages of any host, a service worker and an extension."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.tools.browser.chromium import find_chromium
from tests.support.browser.digits import make_digits_bundle
from tests.support.browser.npm_project import run, unpack_package
from tests.support.browser.static_host import ISOLATED, SHARED, StaticHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

pytestmark = pytest.mark.long

_ANSWER = """
    const session = await load("/models/digits", options);
    const { logits } = await session.run({ image: Float32Array.from({ length: 64 }, (_, i) => (i % 7) / 7) });
    const { engine, threads, variant } = session.report();
    await session.dispose();
    return { engine, threads, variant, logits: [...logits.data] };
"""
_IN_PAGE = (
    "async ([address, options, cpus]) => {"
    "Object.defineProperty(navigator, 'hardwareConcurrency', { value: cpus });"
    "const { load } = await import(address);" + _ANSWER + "}"
)
# A service worker may import nothing later: all is imported at its start.
_SERVICE_WORKER = (
    'import { load } from "/edge-infer.js";\n'
    "const answer = async (options) => {" + _ANSWER + "};\n"
    "onmessage = async ({ data, ports: [port] }) =>"
    " port.postMessage(await answer(data).catch((error) => ({ error: `${error}` })));"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user copies to a host of static files."""
    folder = tmp_path_factory.mktemp("one")
    unpack_package(folder)
    site = folder / "site"
    run("node", "node_modules/edge-infer/bin/edge-infer-files.js", str(site), "--engine=onnx", "--one-file", cwd=folder)
    (site / "models").mkdir()
    make_digits_bundle(site / "models/digits")
    (site / "index.html").write_text("<!doctype html><link rel=icon href='data:,'>")
    (site / "worker.js").write_text(_SERVICE_WORKER)
    return site


@pytest.fixture(scope="module")
def host(site: Path) -> Iterator[StaticHost]:
    with StaticHost(site, ISOLATED) as running:
        yield running


@pytest.fixture(scope="module")
def cdn(site: Path) -> Iterator[StaticHost]:
    with StaticHost(site, SHARED) as running:
        yield running


def test_the_file_and_the_engine_are_all_that_is_copied(site: Path) -> None:
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.suffix in (".js", ".mjs", ".wasm")}

    engine = {"edge-infer.js", "vendor/onnxruntime-web/ort-wasm-simd-threaded.wasm"}
    models = {path for path in files if path.startswith("models/")}
    assert files - models - {"worker.js"} == engine | {"vendor/zstddec/zstddec.mjs", "vendor/jinja/index.js"}


@pytest.mark.parametrize("cpus", [2, 8])
@pytest.mark.parametrize("where", ["own", "another"])
def test_a_page_of_a_static_host_runs_it_with_threads(
    open_page: Open, host: StaticHost, cdn: StaticHost, where: str, cpus: int
) -> None:
    origin = host.url if where == "own" else cdn.url
    page = open_page(f"{host.url}/index.html")

    found = page.evaluate(_IN_PAGE, [f"{origin}/edge-infer.js", {"variant": "onnx/int8"}, cpus])

    # The worker sees the processors that there are.
    assert (found["engine"], found["threads"] >= 1) == ("ort-web", True)
    two = page.evaluate(_IN_PAGE, [f"{origin}/edge-infer.js", {"variant": "onnx/int8", "threads": 2}, cpus])
    assert (two["threads"], two["logits"]) == (2, found["logits"])


def test_a_page_that_is_not_isolated_runs_it(open_page: Open, cdn: StaticHost) -> None:
    page = open_page(f"{cdn.url}/index.html")

    found = page.evaluate(_IN_PAGE, [f"{cdn.url}/edge-infer.js", {"variant": "compiled/int8"}, 4])

    assert (found["engine"], found["threads"]) == ("compiled-web", 1)


@pytest.mark.parametrize("variant", ["onnx/int8", "compiled/int8"])
def test_a_service_worker_runs_it(open_page: Open, host: StaticHost, variant: str) -> None:
    found = open_page(f"{host.url}/index.html").evaluate(
        """async (options) => {
            await navigator.serviceWorker.register("/worker.js", { type: "module" });
            const { active } = await navigator.serviceWorker.ready;
            const { port1, port2 } = new MessageChannel();
            const answered = new Promise((resolve) => (port1.onmessage = ({ data }) => resolve(data)));
            active.postMessage(options, [port2]);
            return answered;
        }""",
        {"variant": variant},
    )

    assert found.get("variant") == variant, found


def test_the_service_worker_of_an_extension_runs_it(site: Path, tmp_path: Path) -> None:
    """Manifest V3, which lets an extension run no code but its own."""
    extension = tmp_path / "extension"
    shutil.copytree(site, extension)
    background: dict[str, Any] = {"service_worker": "worker.js", "type": "module"}
    policy = {"extension_pages": "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'"}
    manifest = {"manifest_version": 3, "name": "digits", "version": "1", "background": background}
    (extension / "manifest.json").write_text(json.dumps(manifest | {"content_security_policy": policy}))
    code = _SERVICE_WORKER + '\nglobalThis.digits = answer({ variant: "onnx/int8" });\n'
    (extension / "worker.js").write_text(code)

    from playwright.sync_api import sync_playwright

    flags = [f"--load-extension={extension}", f"--disable-extensions-except={extension}", "--no-sandbox"]
    flags.append("--disable-features=DisableLoadExtensionCommandLineSwitch")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"),
            executable_path=str(find_chromium()),
            args=[*flags, "--headless=new"],
            headless=False,
        )
        try:
            workers = context.service_workers or [context.wait_for_event("serviceworker", timeout=60_000)]
            found = workers[0].evaluate("() => globalThis.digits")
        finally:
            context.close()

    assert (found["engine"], found["variant"], len(found["logits"])) == ("ort-web", "onnx/int8", 10)
