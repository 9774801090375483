"""Firefox and WebKit: what Chromium does in the other tests, on its main paths, with the same numbers."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import UnsupportedError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.digits import make_digits_bundle
from tests.support.browser.fault_server import WEB, FaultServer, make_model
from tests.support.browser.other_browsers import LOOK_S, chromium, firefox, webkit
from tests.support.generation.bundles import write_bundle
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.browser.other_browsers import Driven

pytestmark = pytest.mark.long

_STARTS: dict[str, Callable[[], Any]] = {"firefox": firefox, "webkit": webkit}
_IMAGE = [(i % 7) / 7 for i in range(64)]
_RUN = """async ({ image, model, options }) => {
    const { load } = await import("/src/index.js");
    const session = await load(model, options);
    const { logits } = await session.run({ image: Float32Array.from(image) });
    const report = session.report();
    await session.dispose();
    const { threads, isolated, fromStorage } = report;
    return { logits: [...logits.data], threads, isolated, fromStorage };
}"""


@pytest.fixture(scope="module", params=list(_STARTS))
def other(request: pytest.FixtureRequest) -> Iterator[Driven]:
    with _STARTS[request.param]() as browser:
        yield browser


@pytest.fixture(scope="module", params=[*_STARTS, "chromium"])
def every(request: pytest.FixtureRequest) -> Iterator[Driven]:
    with (_STARTS | {"chromium": chromium})[request.param]() as browser:
        yield browser


@pytest.fixture(scope="module")
def faults() -> Iterator[FaultServer]:
    with FaultServer({"large": make_model(8, seed=1)}) as running:
        yield running


@pytest.fixture(scope="module")
def text_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("text") / "tiny.bundle")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits in all formats, compiled ones too."""
    return make_digits_bundle(tmp_path_factory.mktemp("all") / "digits.bundle")


@pytest.fixture(scope="module")
def isolated(digits: Path) -> Iterator[str]:
    with ServerThread(create_app({"digits": digits}, find_web_root())) as running:
        yield running.url


@pytest.fixture(scope="module")
def plain(digits: Path) -> Iterator[str]:
    with ServerThread(create_app({"digits": digits}, find_web_root(), isolated=False)) as running:
        yield running.url


@pytest.fixture(params=["isolated", "plain"])
def address(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def _files(bundle: Path) -> list[str]:
    """List what a page fetches of a bundle."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    model = next(str(variant["file"]) for variant in manifest["variants"] if variant["id"] == "onnx/int8")
    return ["manifest.json", str(manifest["labels"]), model]


def native(bundle: Path, variant: str) -> list[float]:
    with edge_infer.load(bundle, variant=variant) as session:
        image = np.array(_IMAGE, np.float32).reshape(1, 1, 8, 8)
        return [float(value) for value in np.ravel(session.run({"image": image})["logits"])]


@pytest.mark.parametrize("variant", ["onnx/fp32", "tflite/fp32", "compiled/fp32", "compiled/int8"])
def test_every_engine_gives_the_numbers_of_python(
    other: Driven, address: str, isolated: str, digits: Path, variant: str
) -> None:
    other.go(f"{address}/blank.html")

    found = other.call(_RUN, {"image": _IMAGE, "model": "/models/digits", "options": {"variant": variant}})

    assert found["isolated"] is (address == isolated)
    assert found["threads"] >= 1
    exact = variant == "compiled/int8"
    np.testing.assert_allclose(found["logits"], native(digits, variant), rtol=0, atol=0 if exact else 2e-5)


def test_threads_are_used_in_an_isolated_page(other: Driven, isolated: str) -> None:
    other.go(f"{isolated}/blank.html")

    ask = {"image": _IMAGE, "model": "/models/digits", "options": {"variant": "onnx/fp32", "threads": 2}}
    # Builds of WebKitGTK differ in it.
    if other.call("async () => typeof SharedArrayBuffer") == "undefined":
        with pytest.raises(UnsupportedError, match="cannot use 2 threads: the browser has no SharedArrayBuffer"):
            other.call(_RUN, ask)
    else:
        assert other.call(_RUN, ask)["threads"] == 2


def test_an_engine_of_another_origin_runs(other: Driven, isolated: str, elsewhere: str) -> None:
    other.go(f"{isolated}/blank.html")

    options = {"variant": "onnx/fp32", "root": f"{elsewhere}/"}
    found = other.call(_RUN, {"image": _IMAGE, "model": "/models/digits", "options": options})

    assert found["threads"] == 1


def test_python_runs_a_model_synchronously(other: Driven, address: str, digits: Path) -> None:
    other.go(f"{address}/blank.html")

    found = other.call(
        """async (code) => {
            const { loadPython } = await import("/src/index.js");
            const python = await loadPython({ keepImage: false });
            try { return JSON.parse(await python.run(code)); } finally { python.dispose(); }
        }""",
        f"""
import edge_infer, json
session = edge_infer.load("{address}/models/digits", variant="onnx/fp32")
result = session.run({{"image": [[[{_IMAGE[:8]}] * 8]]}})
json.dumps(result["logits"].tolist()[0])
""",
    )

    with edge_infer.load(digits, variant="onnx/fp32") as session:
        image = np.array([[[_IMAGE[:8]] * 8]], np.float32)
        expected = np.ravel(session.run({"image": image})["logits"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_the_tokens_are_those_of_cpython(other: Driven, text_bundle: Path) -> None:
    ways: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 1.2, "seed": 7}]
    with edge_infer.generate(text_bundle) as generator:
        expected = [generator.complete("Hello", max_tokens=24, **way).tokens for way in ways]
    with ServerThread(create_app({"tiny": text_bundle}, find_web_root())) as served:
        other.go(f"{served.url}/blank.html")
        found = other.call(
            """async (ways) => {
                const { generate } = await import("/src/index.js");
                const generator = await generate("/models/tiny");
                const answers = [];
                for (const way of ways) {
                    const { tokens } = await generator.complete("Hello", { maxTokens: 24, ...way });
                    answers.push([...tokens]);
                }
                await generator.dispose();
                return answers;
            }""",
            ways,
        )

    assert found == [list(tokens) for tokens in expected]


def test_a_kept_page_answers_without_its_server(other: Driven, digits: Path) -> None:
    ask = {"image": _IMAGE, "model": "/models/digits", "options": {"variant": "onnx/int8"}}
    with ServerThread(create_app({"digits": digits}, find_web_root())) as running:
        other.go(f"{running.url}/blank.html")
        first = other.call(_RUN, ask)
        # A private session of WebKit drops models with their worker, and its driver knows no other: they are named.
        again = other.call(_RUN, ask)
        files = [] if again["fromStorage"] else [f"/models/digits/{path}" for path in _files(digits)]
        kept = other.call('async (files) => (await import("/src/index.js")).keepOffline({ files })', files)
        assert kept["isKept"], kept["why"]
        # The first visit's own page is not controlled by the service worker in every browser.
        other.go(f"{running.url}/blank.html")
        url = running.url
    other.go(f"{url}/blank.html")

    assert other.call(_RUN, ask)["logits"] == first["logits"]


_LOAD = """async () => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/large", { variant: "onnx/fp32", threads: 1 });
    const { y } = await session.run({ x: Float32Array.of(0) });
    await session.dispose();
    return y.data[0];
}"""


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "whole"])
def test_a_model_and_an_engine_that_are_cut_go_on_where_they_were(
    every: Driven, faults: FaultServer, has_ranges: bool
) -> None:
    """Cut at their half, as a train enters a tunnel; with ranges at least 45 % of the bytes are not fetched again."""
    faults.reset()
    faults.has_ranges = has_ranges
    model = 8 * 2**20
    engine = (WEB / "vendor/onnxruntime-web/ort-wasm-simd-threaded.wasm").stat().st_size
    every.go(f"{faults.url}/blank.html")
    every.call('async () => (await import("/src/index.js")).clearModels()')
    faults.cuts.append(model // 2)
    faults.engine_cuts.append(engine // 2)

    total = every.call(_LOAD)

    assert total > 0
    assert [len(faults.asked), len(faults.engine_asked)] == [2, 2]
    assert faults.asked[1] >= 0.45 * model
    assert faults.engine_asked[1] >= 0.45 * engine


_BEGIN = """async (engine) => {
    const { load, loadPython } = await import("/src/index.js");
    await new Promise((arrived, failed) => {
        const onProgress = ({ file, loaded, total }) => file.endsWith(".wasm") && loaded > 0.49 * total && arrived();
        const options = { wheel: null, onProgress };
        (engine === "python" ? loadPython(options) : load("/models/large", options)).catch(failed);
    });
}"""


@pytest.mark.parametrize("engine", ["onnxruntime", "python"])
def test_a_page_left_while_its_engine_arrives_holds_up_no_other(
    every: Driven, faults: FaultServer, engine: str
) -> None:
    """Firefox keeps such a page; with two processors it compiled nothing more for the site."""
    faults.reset()
    faults.halted = ".wasm"
    every.go(f"{faults.url}/blank.html")
    every.call(_BEGIN, engine)
    every.go("about:blank")
    faults.halted = ""
    every.go(f"{faults.url}/blank.html")

    assert every.call(_LOAD) > 0


def test_a_page_with_threads_is_kept_at_once(every: Driven, isolated: str) -> None:
    """`keepOffline` gives up after ten seconds: threads that live held Firefox up for a minute once."""
    every.go(f"{isolated}/blank.html")

    kept = every.call("""async () => {
        const { keepOffline, load } = await import("/src/index.js");
        const session = await load("/models/digits", { variant: "onnx/fp32" });
        const kept = await keepOffline();
        await session.dispose();
        return kept;
    }""")

    assert kept["isKept"], kept["why"]


@pytest.mark.parametrize("way", ["module worker", "another origin with two threads"])
def test_a_worker_of_the_page_and_a_page_of_another_origin_load_models(
    every: Driven, isolated: str, elsewhere: str, way: str
) -> None:
    every.go(f"{isolated}/blank.html")
    if way == "module worker":
        found = every.call(_IN_WORKER)
    elif every.call("async () => typeof SharedArrayBuffer") == "undefined":
        pytest.skip("this build of WebKitGTK has no SharedArrayBuffer, and so no threads")
    else:
        options = {"variant": "onnx/fp32", "root": f"{elsewhere}/", "threads": 2}
        found = every.call(_RUN, {"image": _IMAGE, "model": "/models/digits", "options": options})
        assert found["threads"] == 2

    assert len(found["logits"]) == 10


_IN_WORKER = """async () => {
    const code = `
        import { load } from "${location.origin}/src/index.js";
        const session = await load("${location.origin}/models/digits", { variant: "onnx/fp32" });
        const { logits } = await session.run({ image: new Float32Array(64) });
        postMessage({ logits: [...logits.data] });`;
    const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), { type: "module" });
    return new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = ({ message }) => reject(new Error(message));
    });
}"""


def test_the_studio_recognises_its_drawing(other: Driven, address: str) -> None:
    other.go(f"{address}/")

    wait_until(
        lambda: other.call("async () => document.querySelector('.answer .big')?.textContent ?? ''").startswith("3,"),
        pause_s=LOOK_S,
    )

    assert other.call("async () => document.documentElement.scrollWidth <= innerWidth")


_MEDIANS = 'table.costs td[data-is="Median answer"]'


def test_the_studio_races_measures_shares_and_takes_a_dropped_bundle_in_firefox(
    digits: Path, text_bundle: Path, tmp_path: Path
) -> None:
    archive = shutil.make_archive(str(tmp_path / "dropped"), "zip", digits)
    with (
        ServerThread(create_app({"digits": digits, "tiny": text_bundle}, find_web_root())) as server,
        firefox() as page,
    ):

        def wait(condition: str) -> None:
            try:
                wait_until(lambda: page.call(f"async () => Boolean({condition})"), pause_s=LOOK_S)
            except TimeoutError as late:
                raise AssertionError(page.call("async () => document.body.innerText")) from late

        page.go(f"{server.url}/")
        wait("document.querySelector('.won')")
        said = page.call(
            "async () => [...document.querySelectorAll('.lanes li > .quiet')].map((one) => one.textContent)"
        )
        page.call("async () => { location.hash = '#/models/digits'; }")
        wait("document.querySelector('table.costs')")  # the first page has an answer too
        wait("document.querySelector('.answer .big')?.textContent.startsWith('3,')")
        page.call("async () => document.querySelector('table.costs').scrollIntoView()")
        # Each variant is measured in an engine that starts from nothing: 120 seconds for each.
        for row in range(page.call("async () => document.querySelectorAll('table.costs tbody tr').length")):
            wait(f"document.querySelectorAll('{_MEDIANS}')[{row}].textContent.endsWith('s')")  # ms, or s
        wait("document.body.textContent.includes('the median of 15 answers')")
        rows = page.call("async () => [...document.querySelectorAll('table')][0].textContent")
        page.call(
            "async () => [...document.querySelectorAll('button')].find((one) => /^Share/.test(one.textContent)).click()"
        )
        wait("document.querySelector('.qr path')")
        page.call("async () => { location.hash = '#/models/tiny'; }")
        wait("document.querySelector('.chat .go')?.disabled === false")
        page.call("""async () => {
            document.querySelector(".chat textarea").value = "abc";
            document.querySelector(".chat .go").click();
        }""")
        wait("document.querySelector('.log p:not(.you)')?.textContent")
        page.call("async () => { location.hash = '#/inspect'; }")
        wait("document.querySelector('input[type=file]')")
        page.call(
            """async (text) => {
                const given = new DataTransfer();
                const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
                given.items.add(new File([bytes], "dropped.zip"));
                const input = document.querySelector("input[type=file]");
                input.files = given.files;
                input.dispatchEvent(new Event("change"));
            }""",
            base64.b64encode(Path(archive).read_bytes()).decode(),
        )
        wait("document.querySelector('.answer .big')?.textContent.startsWith('3,')")

    assert len({one.split("”")[0] for one in said}) == 1, said
    assert "MB" in rows
    assert "NaN" not in rows
