"""Compiled models in the page: from JavaScript and from Python, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema

import edge_infer
from edge_infer.errors import EdgeInferError, InputError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer_converters.compilation import compile_file
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.compiled import page_files, writer
from edge_infer_converters.writers.tflite import reading
from edge_infer_converters.writers.tflite.graph import Graph, Quantization, Tensor
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
#: Run each model on the same bytes with both forms of its convolution, by the engine of a page and by the module that
#: `edge-infer compile --to page` writes, which both find the processor out by themselves.
_BOTH = """async (nets) => {
    const { CompiledEngine } = await import("/src/engines/compiled.js");
    const text = await (await fetch("/model.js")).text();
    const { load } = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    const { set } = WebAssembly.Table.prototype;
    const found = { engine: [], module: [], usual: [], exact: 0, taken: 0 };
    WebAssembly.Table.prototype.set = function (...given) { found.taken += 1; return set.apply(this, given); };
    for (const net of nets.map((bytes) => Uint8Array.from(bytes))) {
        const module = new WebAssembly.Module(net);
        const { customSections } = WebAssembly.Module;
        const [section, dot] = ["program", "dot"].map((name) => customSections(module, `edge_infer.${name}`)[0]);
        const { base, inputs: [x], outputs: [y] } = JSON.parse(new TextDecoder().decode(section));
        const { run, memory } = new WebAssembly.Instance(module).exports;
        if (WebAssembly.validate(dot)) {
            const { exports } = new WebAssembly.Instance(new WebAssembly.Module(dot), { env: { memory } });
            found.exact += exports.is_exact();
        }
        const kind = x.dtype === "int8" ? Int8Array : Uint8Array;
        const [given, made] = [x, y].map(({ shape, offset }) =>
            new kind(memory.buffer, base + offset, shape.reduce((a, b) => a * b)));
        const values = given.map((_, i) => i * 89 + (i >> 3) * 31);
        given.set(values);
        run();
        found.usual.push([...made]);
        found.engine.push([...new CompiledEngine().createSession(net).run({ x: values }).y.data]);
        found.module.push([...(await load(net)).run({ x: values }, { quantized: true }).y]);
    }
    WebAssembly.Table.prototype.set = set;
    return found;
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


def _convolution(rng: np.random.Generator) -> bytes:
    """A compiled convolution of 8 bits: its sizes, strides, pads and zero points drawn."""
    height, width, size = (int(rng.integers(1, high)) for high in (4, 5, 9))
    inputs, outputs, stride = int(rng.integers(1, 20)), int(rng.integers(1, 20)), int(rng.integers(1, 3))
    is_same = bool(rng.integers(2))
    options: Any = schema.Conv2DOptionsT()
    options.strideH = options.strideW = stride
    options.padding = 0 if is_same else 1
    tall, wide = size + 3, size + 4
    spans = [side if is_same else side - kernel + 1 for side, kernel in ((tall, height), (wide, width))]
    kind, zeros = (np.dtype(np.uint8), (0, 255)) if rng.integers(4) == 0 else (np.dtype(np.int8), (-128, 127))
    low, high = zeros

    def scaled(step: float, zero: int) -> Quantization:
        return Quantization(np.array([step], np.float32), zero)

    def tensor(name: str, shape: tuple[int, ...], step: float) -> Tensor:
        return Tensor(name, shape, shape, kind, None, scaled(step, int(rng.integers(low, high + 1))))

    filters = rng.integers(low, high + 1, (outputs, height, width, inputs)).astype(kind)
    sums = rng.integers(-3000, 3000, outputs).astype(np.int32)
    zero = int(rng.integers(256)) if low == 0 else 0
    weights = Tensor("w", filters.shape, filters.shape, kind, filters, scaled(0.02, zero))
    bias = Tensor("b", sums.shape, sums.shape, sums.dtype, sums, scaled(6e-4, 0))
    made = (1, *(-(-span // stride) for span in spans), outputs)
    x, y = tensor("x", (1, tall, wide, inputs), 0.03), tensor("y", made, 1.5)
    graph = Graph([x], [y])
    graph.add("CONV_2D", [x, weights, bias], [y], options, 1)
    return writer.write(graph).wasm


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

    def give(route: Route) -> None:
        route.fulfill(status=200, body=page_files()["model.js"], headers={"Content-Type": "text/javascript"})

    page.do(lambda page: page.context.route("**/model.wasm", answer))
    page.do(lambda page: page.context.route("**/model.js", give))
    yield page, answers.append
    page.do(lambda page: page.context.unroute("**/model.wasm"))
    page.do(lambda page: page.context.unroute("**/model.js"))


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


def test_the_form_with_a_dot_product_gives_the_same_bytes(
    served: tuple[BrowserPage, Callable[[bytes], None]],
) -> None:
    page, _ = served
    nets = [_convolution(np.random.default_rng(seed)) for seed in range(60)]

    found = page.evaluate(_BOTH, [[*net] for net in nets])

    assert found["engine"] == found["usual"], "bit for bit"
    assert found["module"] == found["usual"], "bit for bit"
    assert found["exact"] in (0, 60)
    assert found["taken"] == 2 * found["exact"], "it is called where it is exact"


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
