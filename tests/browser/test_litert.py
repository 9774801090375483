"""`.tflite` variants in the page, through LiteRT.js: from JavaScript and from Python."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import EdgeInferError, InputError, UnsupportedError, UnsupportedModel
from tests.support import stateful_tflite, zoo
from tests.support.browser.pages import without_jspi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Request, Route

    from tests.support.browser.pages import BrowserPage, BrowserThread, PagePython

_OPEN = """async (options) => {
    const { load } = await import("/src/index.js");
    globalThis.session = await load("/models/digits", { backend: "litert", ...options });
    return session.report();
}"""
_RUN = """async (images) => {
    const image = { data: new Float32Array(images.flat(4)), shape: [images.length, 1, 8, 8] };
    const { logits } = await session.run({ image });
    return [...logits.data];
}"""
# Runs code with `engine`, a LiteRT.js engine in the page itself, and `model`, the bytes of a file.
_ENGINE = """async ([text, body]) => {
    const { startLiteRtEngine } = await import("/src/engines/litert.js");
    globalThis.engine ??= await startLiteRtEngine();
    const model = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return await eval(`async (engine, model) => {${body}}`)(engine, model);
}"""
DTYPES = ["float32", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool"]


def tflite(model: bytes) -> bytes:
    """Write an ONNX model of the tests as TFLite."""
    import onnx

    from edge_infer_converters.writers.tflite import write

    return write(onnx.load_from_string(model), "test").data


@pytest.fixture(scope="module")
def page(browser: BrowserThread, server: str) -> Iterator[BrowserPage]:
    from tests.support.browser.pages import BrowserPage

    page = BrowserPage(browser, f"{server}/blank.html")
    yield page
    page.close()


def on_engine(page: BrowserPage, model: bytes, body: str) -> Any:
    return page.evaluate(_ENGINE, [base64.b64encode(model).decode(), body])


def images(bundle: Path) -> tuple[list[Any], list[list[float]]]:
    """Give golden images, and what LiteRT makes of them natively."""
    with edge_infer.load(bundle, backend="litert", variant="tflite/fp32", arrays="tensor") as session:
        examples = [inputs["image"] for inputs, _ in session.bundle.examples()[:4]]
        return [one.tolist()[0] for one in examples], [
            session.run({"image": one})["logits"].tolist()[0] for one in examples
        ]


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.long), {"threads": 1}, {"threads": 2}],
    ids=["of the machine", "one thread", "two threads"],
)
def test_the_page_gives_the_numbers_of_native_litert(
    open_page: Callable[..., BrowserPage], server: str, digits_bundle: Path, options: dict[str, int]
) -> None:
    given, expected = images(digits_bundle)
    page = open_page(f"{server}/blank.html")

    half = page.evaluate("() => navigator.hardwareConcurrency >> 1")
    threads = options.get("threads", max(1, min(4, half)))

    report = page.evaluate(_OPEN, {"variant": "tflite/fp32", **options})
    found = page.evaluate(_RUN, given)

    assert (report["engine"], report["variant"], report["threads"]) == ("litert-web", "tflite/fp32", threads)
    assert found == pytest.approx([value for row in expected for value in row], abs=1e-4)


def test_a_browser_without_relaxed_simd_gets_the_compatible_build(
    open_page: Callable[..., BrowserPage], server: str, digits_bundle: Path
) -> None:
    def without(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body="WebAssembly.validate = () => false;\n" + response.text())

    given, expected = images(digits_bundle)
    page = open_page(f"{server}/blank.html")
    asked: list[str] = []
    page.do(lambda page: page.route("**/src/page/worker.js", without))
    page.do(lambda page: page.context.on("request", lambda request: asked.append(request.url)))

    report = page.evaluate(_OPEN, {"variant": "tflite/fp32", "threads": 2})
    found = page.evaluate(_RUN, given)

    assert any("litert_wasm_compat_internal.wasm" in url for url in asked)
    assert report["threads"] == 1, "that build has no threads"
    assert found == pytest.approx([value for row in expected for value in row], abs=1e-4)


def test_each_engine_is_fetched_for_its_own_format_only(open_page: Callable[..., BrowserPage], server: str) -> None:
    asked: list[str] = []

    def hear(request: Request) -> None:
        asked.append(request.url)

    for options in ({"backend": "litert"}, {"backend": "ort"}):
        page = open_page(f"{server}/blank.html")
        page.do(lambda page: page.context.on("request", hear))
        page.evaluate(_OPEN, options)
        foreign, own = ("onnxruntime-web", "litert")[:: 1 if options["backend"] == "litert" else -1]
        assert any(f"/vendor/{own}" in url for url in asked)
        assert not any(f"/vendor/{foreign}" in url for url in asked)
        asked.clear()


def test_an_onnx_variant_is_no_tflite_one(page: BrowserPage) -> None:
    with pytest.raises(InputError, match="`litert` reads tflite"):
        page.evaluate(_OPEN, {"variant": "onnx/fp32"})


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_of_the_engine_passes(page: BrowserPage, dtype: str) -> None:
    values: list[list[Any]] = (
        [[True, False, True], [False, False, True]] if dtype == "bool" else [[1, 2, 3], [100, 0, 7]]
    )

    found = on_engine(
        page,
        tflite(zoo.identity(dtype, ("n", 3))),
        f"""const session = engine.createSession(model);
            const {{ y }} = session.run({{ x: {str(values).lower()} }});
            session.close();
            return [y.dtype, y.shape, Array.from(y.data, Number)];""",
    )

    assert found == [dtype, [2, 3], [int(value) for row in values for value in row]]


def test_200_loads_and_runs_leave_the_memory_as_it_was(page: BrowserPage) -> None:
    grown = on_engine(
        page,
        tflite(zoo.mlp()),
        """const once = () => {
            const session = engine.createSession(model);
            for (const rows of [1, 3]) session.run({ x: { data: new Float32Array(64 * rows), shape: [rows, 64] } });
            const call = session.bind({ x: [2, 64] });
            call.run();
            call.close();
            session.close();
        };
        once();
        const before = engine.heap.size;
        for (let i = 0; i < 200; i++) once();
        return engine.heap.size - before;""",
    )

    assert grown == 0


def test_shapes_that_take_turns_are_compiled_once_each(page: BrowserPage) -> None:
    found = on_engine(
        page,
        tflite(zoo.mlp()),
        """const session = engine.createSession(model);
        const data = (count) => Float32Array.from({ length: 64 * count }, (_, i) => i % 7);
        const run = (count) => session.run({ x: { data: data(count), shape: [count, 64] } }).logits.data.join();
        const [one, two] = [run(1), run(2)];
        const programs = [...session.programs.values()].map((entry) => entry.program);
        const same = run(1) === one && run(2) === two;
        const kept = [...session.programs.values()].every((entry) => programs.includes(entry.program));
        for (const count of [3, 4, 5, 6]) run(count);
        const most = session.programs.size;
        session.close();
        return [same, kept, most];""",
    )

    assert found == [True, True, 2]


def test_no_memory_left_is_said_and_the_engine_goes_on(page: BrowserPage) -> None:
    body = """const session = engine.createSession(model);
        try {
            session.bind({ x: [300_000_000, 3] });
        } finally {
            globalThis.after = [...session.run({ x: [[1, 2, 3]] }).y.data];
            session.close();
        }"""

    with pytest.raises(EdgeInferError, match=r"no memory left|its memory holds") as caught:
        on_engine(page, tflite(zoo.identity()), body)

    assert "close sessions" in caught.value.hint
    assert page.evaluate("() => after") == [1, 2, 3]


def test_a_file_that_is_cut_short_is_refused(page: BrowserPage) -> None:
    model = tflite(zoo.mlp())

    for length in (0, 7, 300, len(model) // 2):
        with pytest.raises(UnsupportedModel, match=r"cannot load the model|to load the model") as caught:
            on_engine(page, model[:length], "engine.createSession(model)")
        assert "cut short" in caught.value.hint


def test_an_empty_batch_is_refused_before_the_engine_sees_it(page: BrowserPage) -> None:
    with pytest.raises(InputError, match="has no element"):
        on_engine(
            page,
            tflite(zoo.identity()),
            "engine.createSession(model).run({ x: { data: new Float32Array(), shape: [0, 3] } })",
        )


# -- from Python --


def run_model(python: PagePython, model: bytes, code: str, **names: Any) -> Any:
    return run_file(python, tflite(model), code, **names)


def run_file(python: PagePython, file: bytes, code: str, **names: Any) -> Any:
    setup = """
import base64
from pathlib import Path
import edge_infer
from edge_infer import Tensor
Path("model.tflite").write_bytes(base64.b64decode(model_text))
session = await edge_infer.load_async("model.tflite")
"""
    return python.run(setup + code.strip(), model_text=base64.b64encode(file).decode(), **names)


def test_python_runs_it_synchronously_without_jspi(python: PagePython, server: str, digits_bundle: Path) -> None:
    given, expected = images(digits_bundle)

    found = python.run(
        """
import edge_infer
with await edge_infer.load_async(url, variant="tflite/fp32") as session:
    results = [session.run({"image": [image]})["logits"].tolist()[0] for image in images]
    found = [results, session.report().engine, session.report().engine_version, edge_infer.platform.host.can_suspend()]
found
""",
        url=f"{server}/models/digits",
        images=given,
    )

    assert found[1:] == ["litert-web", "2.5.3", False]
    for here, there in zip(expected, found[0], strict=True):
        assert there == pytest.approx(here, abs=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_python_passes_every_element_type(python: PagePython, dtype: str) -> None:
    values: list[list[Any]] = [[True, False, True]] if dtype == "bool" else [[1, 100, 0]]

    found = run_model(
        python,
        zoo.identity(dtype, ("n", 3)),
        """
result = session.run({"x": values})["y"]
[str(result.dtype), result.tolist()]
""",
        values=values,
    )

    assert found == [dtype, values]


def test_a_prepared_call_and_into_use_their_buffers_again(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.mlp(),
        """
x = [[i / 64 for i in range(64)]]
expected = session.run({"x": x})["logits"].tolist()
target = Tensor(bytearray(40), "float32", (1, 10))
placed = session.run({"x": x}, into={"logits": target})["logits"] is target
kept = session.run({"x": x}, keep=["logits"])["logits"]
with session.prepare({"x": (1, 64)}) as call:
    first = call({"x": x})["logits"].tolist()
    memoryview(call.inputs["x"]).cast("B")[:] = bytes(256)
    blank = call()["logits"].tolist()
    again = call({"x": x})["logits"].tolist()
[target.tolist() == expected, placed, kept.location, first == expected, blank != expected, again == expected]
""",
    )

    assert found == [True, True, "host", True, True, True]


def test_a_synchronous_load_says_what_to_write_where_the_engine_has_not_started(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    from tests.support.browser.pages import PagePython

    fresh = PagePython(open_page(f"{server}/blank.html"))

    with pytest.raises(UnsupportedError) as caught:
        fresh.run("import edge_infer\nedge_infer.load(url, backend='litert-web')\n0", url=f"{server}/models/digits")

    assert "load_async" in caught.value.hint


def test_the_engine_may_be_started_with_python(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")
    asked: list[str] = []
    page.do(lambda page: page.context.on("request", lambda request: asked.append(request.url)))
    page.do(lambda page: page.route("**/src/page/python-worker.js", without_jspi))

    found = page.evaluate(
        """async (url) => {
            const { loadPython } = await import("/src/index.js");
            const python = await loadPython({ engines: ["litert"] });
            const code = "import edge_infer; edge_infer.load(url, backend='litert-web').report().engine";
            return [python.report().engine, await python.run(code, { url })];
        }""",
        f"{server}/models/digits",
    )

    assert found == ["litert-web", "litert-web"]
    assert not any("onnxruntime-web" in url for url in asked)


@pytest.mark.long
def test_verify_runs_it_in_a_browser(digits_bundle: Path) -> None:
    done = CliRunner().invoke(cli, ["verify", str(digits_bundle), "--backend", "litert-web", "--json"])

    assert done.exit_code == 0, done.output
    assert '"backend": "litert-web"' in done.output
    assert '"engine": "2.5.3"' in done.output


def test_many_shapes_and_sessions_with_two_threads_do_not_wait_for_threads_that_cannot_start(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    """Each compiled program has threads of its own; one that is made while the engine's thread is busy never starts."""
    shapes = open_page(f"{server}/blank.html").evaluate(
        """async () => {
            const { load } = await import("/src/index.js");
            const options = { backend: "litert", threads: 2 };
            const open = () => load("/models/digits", options);
            const sessions = await Promise.all([open(), open(), open(), open()]);
            const shapes = [];
            for (const batch of [1, 2, 3, 4]) {
                const image = { data: new Float32Array(64 * batch), shape: [batch, 1, 8, 8] };
                for (const session of sessions) shapes.push((await session.run({ image })).logits.shape[0]);
            }
            return shapes;
        }"""
    )

    assert shapes == [batch for batch in (1, 2, 3, 4) for _ in range(4)]


def test_hidden_state_starts_over_in_each_run_and_stays_in_a_stream(page: BrowserPage, python: PagePython) -> None:
    """LiteRT.js has resource variables; it refuses variable tensors."""
    body = """
        const session = engine.createSession(model);
        const [left, right] = [session.keepingState(), session.keepingState()];
        const sum = (one, value) => one.run({ x: { data: Float32Array.of(value), shape: [1] } }).y.data[0];
        return [1, 2, 2].flatMap((value) => [sum(session, value), sum(left, value), sum(right, 10 * value)]);
    """
    assert on_engine(page, stateful_tflite.in_resource(), body) == [11, 11, 20, 12, 13, 40, 12, 15, 60]

    code = """
with session.stream() as stream, session.prepare() as call:
    forms = (session.run, call, stream.step)
    found = [[float(form({"x": [value]})["y"][0]) for value in (1.0, 2.0, 2.0)] for form in forms]
[session.has_hidden_state, *found]
"""
    found = run_file(python, stateful_tflite.in_resource(), code)
    assert found == [True, [11, 12, 12], [11, 12, 12], [11, 13, 15]]
