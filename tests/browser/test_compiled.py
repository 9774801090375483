"""Compiled models in the page: from JavaScript and from Python, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import edge_infer
from edge_infer.errors import EdgeInferError, InputError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer_converters.compilation import compile_file
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import writer
from edge_infer_converters.writers.tflite import reading
from tests.support import stateful_tflite
from tests.support.browser.pages import BrowserPage, PagePython
from tests.support.converters import small_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Request, Route

    from tests.support.browser.pages import BrowserThread

_OPEN = """async (options) => {
    const { load } = await import("/src/index.js");
    globalThis.session = await load("/model.wasm", options);
    return { ...session.report(), inputs: session.inputs, outputs: session.outputs };
}"""
_RUN = """async (inputs) => {
    const feeds = Object.fromEntries(Object.entries(inputs).map(([name, values]) => [name, Float32Array.from(values)]));
    const results = await session.run(feeds);
    return Object.fromEntries(Object.entries(results).map(([name, { data }]) => [name, [...data]]));
}"""
_PYTHON = """
import edge_infer
with open("model.wasm", "wb") as file:
    file.write(bytes(content))
session = edge_infer.load("model.wasm", arrays="tensor")
shapes = {spec.name: (1, *spec.shape[1:]) for spec in session.inputs}
feeds = {name: edge_infer.Tensor.from_list(values, "float32").reshape(shapes[name]) for name, values in given.items()}
runs = [session.run(feeds) for _ in range(3)]
report = session.report()
flat = [{name: value.reshape(-1).tolist() for name, value in results.items()} for results in runs]
[report.engine, report.device, report.threads, flat]
"""
_STEPS = """
import edge_infer
with open("sum.wasm", "wb") as file:
    file.write(bytes(content))
session = edge_infer.load("sum.wasm", arrays="tensor")
with session.stream() as stream:
    forms = (session.run, stream.step)
    found = [[float(form({"x": [value]})["y"][0]) for value in (1.0, 2.0, 2.0)] for form in forms]
found
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional net, compiled."""
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(small_models.ds_cnn()))
    file = tmp_path_factory.mktemp("compiled") / "model.wasm"
    file.write_bytes(writer.write(reading.read(tflite.write(graph).data, "net").graph).wasm)
    return file


@pytest.fixture(scope="module")
def expected(model: Path) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Inputs, and what the same file gives natively."""
    with edge_infer.load(model) as session:
        rng = np.random.default_rng(7)
        shapes = {spec.name: [int(dim) for dim in (1, *spec.shape[1:])] for spec in session.inputs}
        feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        results = session.run(feeds)
    return {name: one.ravel().tolist() for name, one in feeds.items()}, {
        name: np.asarray(one).ravel().tolist() for name, one in results.items()
    }


@pytest.fixture
def served(
    open_page: Callable[..., BrowserPage], server: str, model: Path
) -> Iterator[tuple[BrowserPage, Callable[[bytes], None]]]:
    """A page of the server that answers `/model.wasm` with the model, and what sets another answer."""
    page = open_page(f"{server}/blank.html")
    answers = [model.read_bytes()]

    def answer(route: Route) -> None:
        route.fulfill(status=200, body=answers[-1], headers={"Content-Type": "application/wasm"})

    page.do(lambda page: page.context.route("**/model.wasm", answer))
    yield page, answers.append
    page.do(lambda page: page.context.unroute("**/model.wasm"))


def test_the_page_gives_the_numbers_of_native_kernels_and_fetches_no_engine(
    served: tuple[BrowserPage, Callable[[bytes], None]],
    expected: tuple[dict[str, list[float]], dict[str, list[float]]],
) -> None:
    page, _ = served
    feeds, want = expected
    asked: list[str] = []

    def hear(request: Request) -> None:
        asked.append(request.url)

    page.do(lambda page: page.context.on("request", hear))

    report = page.evaluate(_OPEN, {})
    first, again = page.evaluate(_RUN, feeds), page.evaluate(_RUN, feeds)

    assert (report["engine"], report["device"], report["threads"]) == ("compiled-web", "wasm", 1)
    assert report["engineVersion"] == edge_infer.__version__
    assert first == again == want, "bit for bit"
    assert not [url for url in asked if "/vendor/" in url]


def test_the_gpu_is_said_to_be_left_out(served: tuple[BrowserPage, Callable[[bytes], None]]) -> None:
    report = served[0].evaluate(_OPEN, {"device": "webgpu"})

    assert report["fallbacks"] == ["webgpu: compiled models run on wasm here; WebGPU runs ONNX and TFLite variants"]


def test_wrong_values_are_told_and_a_damaged_file_is_refused(
    served: tuple[BrowserPage, Callable[[bytes], None]], model: Path
) -> None:
    page, answer = served
    page.evaluate(_OPEN, {})
    with pytest.raises(InputError):
        page.evaluate(_RUN, {"nobody": [1.0]})
    content = model.read_bytes()
    for damaged in (content[:1000], b"\0asm\1\0\0\0", b"<html>", content.replace(b'"version":1', b'"version":9')):
        answer(damaged)
        with pytest.raises(EdgeInferError, match="not a compiled model that can run here") as caught:
            page.evaluate(_OPEN, {})
        assert caught.value.code == "unsupported_model"


def test_python_in_the_page_runs_it_without_an_engine(
    browser: BrowserThread, model: Path, expected: tuple[dict[str, list[float]], dict[str, list[float]]]
) -> None:
    feeds, want = expected
    with ServerThread(create_app({}, find_web_root())) as running:
        page = BrowserPage(browser, f"{running.url}/blank.html")
        try:
            python = PagePython(page, engines=["compiled"])
            content: Any = list(model.read_bytes())
            engine, device, threads, runs = python.run(_PYTHON, content=content, given=feeds)
        finally:
            page.close()

    assert (engine, device, threads) == ("compiled-web", "wasm", 1)
    assert runs == [want] * 3, "the later ones cross by a shared buffer"


def test_variables_stay_in_a_stream_of_the_page(
    served: tuple[BrowserPage, Callable[[bytes], None]], browser: BrowserThread
) -> None:
    page, answer = served
    content = compile_file(stateful_tflite.in_resource(), "sum").model.wasm
    answer(content)
    page.evaluate(_OPEN, {})
    script = """async () => {
        const sum = async (step, value) => (await step({ x: [value] })).y.data[0];
        const [left, right] = [session.stream(), session.stream()];
        const found = [];
        for (const value of [1, 2, 2]) {
            found.push(await sum((x) => session.run(x), value), await sum((x) => left.step(x), value));
            found.push(await sum((x) => right.step(x), 10 * value));
        }
        left.close();
        right.close();
        return found;
    }"""
    assert page.evaluate(script) == [11, 11, 20, 12, 13, 40, 12, 15, 60]

    with ServerThread(create_app({}, find_web_root())) as running:
        other = BrowserPage(browser, f"{running.url}/blank.html")
        try:
            steps = PagePython(other, engines=["compiled"]).run(_STEPS, content=list(content))
        finally:
            other.close()
    assert steps == [[11, 12, 12], [11, 13, 15]]
