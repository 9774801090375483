"""WebGPU on Chromium's software adapter: the right numbers, and every way in which a GPU is lost or missing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import BackendUnavailable, UnsupportedError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import SOFTWARE_WEBGPU
from tests.support import zoo
from tests.support.browser.pages import BrowserPage, BrowserThread, PagePython, without_jspi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Opens a session in the page itself, where a test can reach the GPU: `opener` and `session`.
_OPEN_HERE = """async (url) => {
    const { startEngine } = await import("/src/engines/open.js");
    const variant = { id: "onnx/fp32", format: "onnx", precision: "fp32", file: "" };
    globalThis.opener = await startEngine(variant, "webgpu", { root: new URL("/", location.href).href });
    const model = new Uint8Array(await (await fetch(url)).arrayBuffer());
    globalThis.session = await opener.open(model, variant);
    globalThis.x = { data: Float32Array.from({ length: 64 }, (_, i) => (i % 7) / 7), shape: [1, 64] };
    return opener.placement();
}"""
_RUN_HERE = "async () => [...(await session.run({ x }, {})).logits.data]"


@pytest.fixture(scope="module")
def gpu_browser() -> Iterator[BrowserThread]:
    with BrowserThread(*SOFTWARE_WEBGPU) as thread:
        yield thread


@pytest.fixture
def open_gpu_page(gpu_browser: BrowserThread) -> Iterator[Callable[[str], BrowserPage]]:
    pages: list[BrowserPage] = []

    def opened(url: str) -> BrowserPage:
        pages.append(BrowserPage(gpu_browser, url))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small net in fp32 and fp16: the adapter compiles every operator's program on the CPU, for seconds each."""
    folder = tmp_path_factory.mktemp("mlp")
    (folder / "mlp.onnx").write_bytes(zoo.mlp())
    target = folder / "mlp.bundle"
    options = ["--precision", "fp32,fp16", "--format", "onnx", "--keep-all", "--name", "mlp"]
    command = [sys.executable, "-m", "edge_infer", "convert", str(folder / "mlp.onnx"), "-o", str(target), *options]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[str]:
    with ServerThread(create_app({"mlp": bundle}, find_web_root())) as running:
        yield running.url


@pytest.fixture(scope="module")
def expected(bundle: Path) -> list[float]:
    """What the fp32 variant makes of the test's input, natively."""
    with edge_infer.load(bundle, variant="onnx/fp32", backend="onnxruntime", arrays="tensor") as session:
        row: list[float] = session.run({"x": [[i % 7 / 7 for i in range(64)]]})["logits"].tolist()[0]
        return row


def test_a_page_asks_for_webgpu_and_gets_the_right_numbers(
    open_gpu_page: Callable[[str], BrowserPage], server: str, expected: list[float]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")

    found = page.evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const session = await load("/models/mlp", { device: "webgpu" });
        const x = Float32Array.from({ length: 64 }, (_, i) => (i % 7) / 7);
        const { logits } = await session.run({ x });
        const { device, variant, fallbacks } = session.report();
        await session.dispose();
        return { device, variant, fallbacks, logits: [...logits.data] };
    }""")

    assert (found["device"], found["fallbacks"]) == ("webgpu", [])
    assert found["variant"] == "onnx/fp32", "this adapter computes no float16"
    assert found["logits"] == pytest.approx(expected, abs=1e-3)
    assert page.console == []


def test_a_browser_without_an_adapter_goes_on_with_wasm_and_says_so(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(f"{server}/blank.html")
    asked: list[str] = []
    page.do(lambda page: page.context.on("request", lambda request: asked.append(request.url)))

    report = page.evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const session = await load("/models/mlp", { device: "webgpu" });
        await session.run({ x: new Float32Array(64) });
        return session.report();
    }""")

    assert report["device"] == "wasm"
    assert report["fallbacks"] == ["webgpu: the browser offers no GPU adapter"]
    assert any("no GPU adapter; going on with wasm" in line for line in page.console)
    assert not any("jspi" in url or "asyncify" in url for url in asked), "the large builds are not fetched for nothing"


def test_a_gpu_that_is_lost_between_runs_is_replaced_by_wasm_once(
    open_gpu_page: Callable[[str], BrowserPage], server: str, expected: list[float]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    before = page.evaluate(_OPEN_HERE, f"{server}/models/mlp/onnx/model.onnx")
    page.evaluate(_RUN_HERE)

    page.evaluate("async () => { opener.gpu.destroy(); await opener.gpu.lost; }")
    first, second = page.evaluate(_RUN_HERE), page.evaluate(_RUN_HERE)
    after = page.evaluate("() => opener.placement()")

    assert (before["device"], after["device"]) == ("webgpu", "wasm")
    assert first == pytest.approx(expected, abs=1e-4)
    assert second == first
    assert len(after["fallbacks"]) == 1
    assert "the GPU was lost (destroyed)" in after["fallbacks"][0]
    assert sum("going on with wasm" in line for line in page.console) == 1


def test_a_gpu_that_is_lost_in_the_middle_of_a_run_still_answers_it(
    open_gpu_page: Callable[[str], BrowserPage], server: str, expected: list[float]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    page.evaluate(_OPEN_HERE, f"{server}/models/mlp/onnx/model.onnx")

    found = page.evaluate("""async () => {
        const run = session.run({ x }, {});
        opener.gpu.destroy();
        return { logits: [...(await run).logits.data], ...opener.placement() };
    }""")

    assert found["logits"] == pytest.approx(expected, abs=1e-4)
    assert found["device"] == "wasm"
    assert "lost" in found["fallbacks"][0]


def test_a_session_tells_in_its_report_that_the_gpu_went_away(
    open_gpu_page: Callable[[str], BrowserPage], server: str
) -> None:
    """The page's session is in a worker; the worker's GPU is destroyed by a line put into its script."""
    page = open_gpu_page(f"{server}/blank.html")
    spy = """const request = GPUAdapter.prototype.requestDevice;
        GPUAdapter.prototype.requestDevice = async function (...given) {
            const device = await request.apply(this, given);
            new BroadcastChannel("test").onmessage = () => device.destroy();
            return device;
        };
    """
    page.do(
        lambda page: page.route(
            "**/src/page/worker.js", lambda route: route.fulfill(response=(r := route.fetch()), body=spy + r.text())
        )
    )

    found = page.evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const session = await load("/models/mlp", { device: "webgpu" });
        const x = new Float32Array(64);
        await session.run({ x });
        const before = session.report().device;
        new BroadcastChannel("test").postMessage("lose it");
        do await session.run({ x }); while (session.report().device === "webgpu");
        return { before, ...session.report() };
    }""")

    assert (found["before"], found["device"]) == ("webgpu", "wasm")
    assert found["fallbacks"][0].startswith("webgpu: "), "either the loss or what it broke is told"
    assert len(found["fallbacks"]) == 1


def test_an_input_that_does_not_fit_is_no_failure_of_the_gpu(
    open_gpu_page: Callable[[str], BrowserPage], server: str
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    page.evaluate(_OPEN_HERE, f"{server}/models/mlp/onnx/model.onnx")

    said = page.evaluate("() => session.run({ x: new Float64Array(64) }, {}).catch((error) => error.code)")

    assert said == "input_error"
    assert page.evaluate("() => opener.placement()")["device"] == "webgpu"


# -- from Python --

_PYTHON = """
import warnings
import edge_infer
session = await edge_infer.load_async(url, device="webgpu", variant="onnx/fp32")
x = [[i % 7 / 7 for i in range(64)]]
"""


@pytest.mark.long
def test_python_without_jspi_waits_for_the_gpu_by_a_second_worker_or_says_what_to_write(
    open_gpu_page: Callable[[str], BrowserPage], server: str, expected: list[float]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    page.do(lambda page: page.context.route("**/waiting-worker.js", without_jspi))
    python = PagePython(page)

    found = python.run(
        _PYTHON
        + """
blocking = session.run({"x": x})["logits"].tolist()[0]
awaited = (await session.run_async({"x": x}))["logits"].tolist()[0]
with session.prepare({"x": (1, 64)}) as call:
    prepared = call({"x": x})["logits"].tolist()[0]
report = session.report()
[edge_infer.platform.host.can_suspend(), report.device, list(report.fallbacks), blocking, awaited, prepared]
""",
        url=f"{server}/models/mlp",
    )
    assert found[:3] == [False, "webgpu", []]
    for logits in found[3:]:
        assert logits == pytest.approx(expected, abs=1e-3)

    # In a page that is not isolated it cannot: there is no shared memory.
    found = python.run(
        """
import js
js.Object.defineProperty(js.globalThis, "crossOriginIsolated", js.JSON.parse('{"value": false}'))
"""
        + _PYTHON
        + """
(await session.run_async({"x": x}))["logits"].tolist()[0]
""",
        url=f"{server}/models/mlp",
    )
    with pytest.raises(UnsupportedError) as caught:
        python.run("""session.run({"x": x})\n0""")

    assert found == pytest.approx(expected, abs=1e-3)
    assert "run_async" in caught.value.hint


@pytest.mark.long
def test_python_waits_for_the_gpu_by_jspi_and_goes_on_with_wasm_when_it_is_lost(
    open_gpu_page: Callable[[str], BrowserPage], server: str, expected: list[float]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    code = (
        _PYTHON
        + """
on_gpu = session.run({"x": x})["logits"].tolist()[0]
session._runnable._js_session.session.gpu.destroy()
await session._runnable._js_session.session.gpu.lost
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    on_wasm = session.run({"x": x})["logits"].tolist()[0]
report = session.report()
[on_gpu, on_wasm, report.device, report.fallbacks[0], str(said[0].message)]
"""
    )

    found: list[Any] = page.evaluate(
        """async ([code, url]) => {
            const { loadPython } = await import("/src/index.js");
            return (await loadPython({ keepImage: false })).run(code, { url });
        }""",
        [code, f"{server}/models/mlp"],
    )

    assert found[0] == pytest.approx(expected, abs=1e-3)
    assert found[1] == pytest.approx(expected, abs=1e-4)
    assert found[2] == "wasm"
    assert "the GPU was lost (destroyed)" in found[3]
    assert "going on with wasm" in found[4]


@pytest.mark.long
def test_python_in_a_browser_without_webgpu_goes_on_with_wasm_or_strictly_raises(
    open_page: Callable[..., BrowserPage], server: str, expected: list[float]
) -> None:
    python = PagePython(open_page(f"{server}/blank.html"))

    found = python.run(
        """
import js, warnings
js.Object.defineProperty(js.navigator, "gpu", js.JSON.parse("{}"))
import edge_infer
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    session = await edge_infer.load_async(url, device="webgpu", variant="onnx/fp32")
report = session.report()
logits = session.run({"x": [[i % 7 / 7 for i in range(64)]]})["logits"].tolist()[0]
[report.device, report.fallbacks[0], str(said[0].message), logits]
""",
        url=f"{server}/models/mlp",
    )
    with pytest.raises(BackendUnavailable, match="Device `webgpu` is not used: webgpu: ") as caught:
        python.run("""await edge_infer.load_async(url, device="webgpu", strict=True)\n0""", url=f"{server}/models/mlp")

    assert caught.value.hint == "leave `strict` out"
    assert found[0] == "wasm"
    assert found[1].startswith("webgpu: ")
    assert found[1] in found[2]
    assert found[3] == pytest.approx(expected, abs=1e-4)


@pytest.mark.long
def test_verify_runs_on_webgpu_and_passes_over_what_the_adapter_lacks(bundle: Path) -> None:
    done = CliRunner().invoke(cli, ["verify", str(bundle), "--device", "webgpu", "--json"])

    assert done.exit_code == 0, done.output
    assert '"verdict": "skip"' in done.output, "the software adapter has no float16"
    assert '"verdict": "ok"' in done.output
