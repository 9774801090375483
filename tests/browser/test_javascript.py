"""The JavaScript module in a page: load, run, progress, errors, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

import edge_infer
from edge_infer.errors import BackendUnavailable, ExecutionError, FetchError, InputError, IntegrityError, ManifestError
from edge_infer.formats.safetensors import write_examples
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tensors.drawn import draw
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.picked import pick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Route

    from tests.support.browser.pages import BrowserPage, BrowserThread
    from tests.support.model_files import WriteBundle

_OPEN = """async (url) => {
    const { load } = await import("/src/index.js");
    globalThis.session = await load(url);
}"""


@pytest.fixture(scope="module")
def page(browser: BrowserThread, server: str) -> Iterator[BrowserPage]:
    """A page with a session of the digits model."""
    from tests.support.browser.pages import BrowserPage

    page = BrowserPage(browser, f"{server}/blank.html")
    page.evaluate(_OPEN, "/models/digits")
    yield page
    page.close()


def test_a_session_tells_what_it_is(page: BrowserPage) -> None:
    found = page.evaluate("() => ({ inputs: session.inputs, labels: session.labels, report: session.report() })")

    assert found["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    assert found["labels"] == [str(digit) for digit in range(10)]
    assert (found["report"]["variant"], found["report"]["engine"]) == ("onnx/int8", "ort-web")
    assert found["report"]["bytesLoaded"] > 14_000_000


def test_nested_arrays_and_typed_arrays_are_the_same(page: BrowserPage) -> None:
    same = page.evaluate("""async () => {
        const values = Array.from({ length: 64 }, (_, i) => i / 64);
        const rows = Array.from({ length: 8 }, (_, y) => values.slice(8 * y, 8 * y + 8));
        const flat = Float32Array.from(values);
        const [one, other, third] = await Promise.all([
            session.run({ image: [[rows]] }),
            session.run({ image: flat }),
            session.run({ image: { data: flat, dtype: "float32", shape: [1, 1, 8, 8] } }),
        ]);
        const wanted = one.logits.data.join();
        return flat.length === 64 && [other, third].every(({ logits }) => logits.data.join() === wanted);
    }""")

    assert same is True


def test_the_page_gives_the_numbers_of_python(page: BrowserPage, digits_bundle: Path) -> None:
    with edge_infer.load(digits_bundle, variant="onnx/int8", backend="onnxruntime", arrays="tensor") as session:
        examples = session.bundle.examples()[:8]
        expected = [session.run(inputs)["logits"].tolist() for inputs, _ in examples]
    images = [inputs["image"].tolist() for inputs, _ in examples]

    found = page.evaluate(
        """(images) => Promise.all(images.map(async (image) => {
            const { logits } = await session.run({ image });
            return [[...logits.data]];
        }))""",
        images,
    )

    for here, there in zip(expected, found, strict=True):
        assert there[0] == pytest.approx(here[0], abs=0.2)
        assert there[0].index(max(there[0])) == here[0].index(max(here[0]))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("{}", "`image` is missing"),
        ("{ picture: [1] }", "`picture` is not known"),
        ("{ image: new Float32Array(63) }", "does not follow from its length"),
        ("{ image: new Float64Array(64) }", "expected a Float32Array"),
        ("{ image: [[[1, 2]]] }", r"expected \(batch, 1, 8, 8\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(page: BrowserPage, inputs: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        page.evaluate(f"() => session.run({inputs})")


def test_a_closed_session_says_so(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")
    page.evaluate(_OPEN, "/models/digits")
    page.evaluate("() => session.dispose()")
    page.evaluate("() => session.dispose()")

    with pytest.raises(InputError, match="closed"):
        page.evaluate("() => session.run({ image: new Float32Array(64) })")


def test_progress_ends_where_the_file_ends(open_page: Callable[..., BrowserPage], server: str) -> None:
    news = open_page(f"{server}/blank.html").evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const last = {};
        await load("/models/digits", { onProgress: (news) => (last[news.file] = news) });
        return last;
    }""")

    engine = news["ort-wasm-simd-threaded.wasm"]
    assert (engine["phase"], engine["loaded"]) == ("engine", engine["total"])
    assert news["model_int8.onnx"]["loaded"] == news["model_int8.onnx"]["total"]


def test_a_bundle_that_is_not_there_can_be_tried_again(page: BrowserPage) -> None:
    with pytest.raises(FetchError, match="status 404") as caught:
        page.evaluate(_OPEN.replace("globalThis.session =", ""), "/models/no-such-model")

    assert "edge-infer convert" in caught.value.hint


def test_a_changed_model_file_is_refused(open_page: Callable[..., BrowserPage], server: str) -> None:
    def change(route: Route) -> None:
        body = bytearray(route.fetch().body())
        body[len(body) // 2] ^= 1
        route.fulfill(status=200, body=bytes(body))

    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/*.onnx", change))

    with pytest.raises(IntegrityError, match="the manifest says"):
        page.evaluate(_OPEN, "/models/digits")


def test_a_manifest_that_leaves_the_bundle_is_refused(open_page: Callable[..., BrowserPage], server: str) -> None:
    def change(route: Route) -> None:
        manifest = route.fetch().json()
        manifest["files"][0]["path"] = "../../secret"
        route.fulfill(status=200, body=json.dumps(manifest))

    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/manifest.json", change))

    with pytest.raises(ManifestError, match="leaves the bundle"):
        page.evaluate(_OPEN, "/models/digits")


@pytest.mark.parametrize("body", [b"", b"\0asm\1\0\0\0"], ids=["missing", "another version"])
def test_an_engine_file_that_does_not_fit_names_the_version(
    open_page: Callable[..., BrowserPage], server: str, body: bytes
) -> None:
    page = open_page(f"{server}/blank.html")
    status = 200 if body else 404
    headers = {"Content-Type": "application/wasm"}
    page.do(lambda page: page.route("**/*.wasm", lambda r: r.fulfill(status=status, body=body, headers=headers)))

    with pytest.raises(BackendUnavailable, match=r"1\.30\.0" if body else "404") as caught:
        page.evaluate(_OPEN, "/models/digits")

    assert "edge-infer[web]" in caught.value.hint
    page.do(lambda page: page.unroute("**/*.wasm"))
    page.evaluate(_OPEN, "/models/digits")


def test_an_engine_file_of_a_wrong_media_type_works_or_names_the_file(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    """A server that knows neither `.wasm` nor `.mjs`: the first is compiled, browsers refuse the second."""

    def mislabel(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, headers={**response.headers, "content-type": "text/plain"})

    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/*.wasm", mislabel))
    page.evaluate(_OPEN, "/models/digits")
    page.evaluate("() => session.dispose()")

    page.do(lambda page: page.unroute("**/*.wasm"))
    page.do(lambda page: page.route("**/*.mjs", mislabel))
    with pytest.raises(BackendUnavailable, match=r"ort-wasm-simd-threaded\.mjs cannot be loaded") as caught:
        page.evaluate(_OPEN, "/models/digits")
    assert "edge-infer-files" in caught.value.hint


def test_a_model_that_wants_more_memory_than_there_is_fails_and_can_run_again(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    """WebAssembly has 4 GiB at most; the model makes as many zeros as it is told to."""
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("ConstantOfShape", ["count"], ["zeros"]),
            onnx.helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
        ],
        "zeros",
        [onnx.helper.make_tensor_value_info("count", onnx.TensorProto.INT64, [1])],
        [onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, [])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/zeros.onnx", lambda route: route.fulfill(body=model.SerializeToString())))
    page.evaluate(_OPEN, "/zeros.onnx")

    with pytest.raises(ExecutionError, match=r"(?i)alloc|memory"):
        page.evaluate("() => session.run({ count: BigInt64Array.of(2n ** 30n - 2n ** 10n) })")
    assert page.evaluate("async () => (await session.run({ count: BigInt64Array.of(8n) })).sum.data[0]") == 0


def test_a_missing_pyodide_says_what_to_install(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")
    page.do(lambda page: page.route("**/pyodide.mjs", lambda route: route.fulfill(status=404)))

    with pytest.raises(BackendUnavailable, match="Pyodide") as caught:
        page.evaluate("""async () => { await (await import("/src/index.js")).loadPython(); }""")

    assert "edge-infer[web]" in caught.value.hint


_MANY = """async (options) => {
    const { load } = await import("/src/index.js");
    globalThis.session = await load("/models/digits", options);
    globalThis.batch = (count) => ({ image: { data: new Float32Array(64 * count), shape: [count, 1, 8, 8] } });
}"""


@pytest.mark.parametrize("backend", ["ort", "litert"])
def test_closing_in_the_middle_of_runs_answers_them_first(
    open_page: Callable[..., BrowserPage], server: str, backend: str
) -> None:
    page = open_page(f"{server}/blank.html")
    page.evaluate(_MANY, {"backend": backend})

    found = page.evaluate("""async () => {
        const runs = [session.run(batch(2000)), session.run(batch(1))];
        const closing = session.dispose();
        const late = session.run(batch(1)).catch((error) => error.message);
        const shapes = (await Promise.all(runs)).map(({ logits }) => logits.shape);
        await closing;
        return [shapes, await late];
    }""")

    assert found == [[[2000, 10], [1, 10]], "The session is closed"]


def test_a_run_that_is_given_up_is_not_begun_and_those_behind_it_are_answered(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(f"{server}/blank.html")
    page.evaluate(_MANY, {})

    found = page.evaluate("""async () => {
        const posted = [];
        const post = Worker.prototype.postMessage;
        Worker.prototype.postMessage = function (message, ...rest) {
            if (message.kind === "run") posted.push(message.inputs.image.shape[0]);
            return post.call(this, message, ...rest);
        };
        const given = new AbortController();
        const first = session.run(batch(2000));
        const second = session.run(batch(2), { signal: given.signal });
        const third = session.run(batch(3), { signal: new AbortController().signal });
        given.abort(new Error("enough"));
        const said = await second.catch((error) => error.message);
        const early = posted.slice();
        const shapes = [(await first).logits.shape[0], (await third).logits.shape[0]];
        return { said, early, posted, shapes };
    }""")

    assert found == {"said": "enough", "early": [2000], "posted": [2000, 3], "shapes": [2000, 3]}


def test_a_run_that_is_given_up_while_it_computes_is_rejected_at_once(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(f"{server}/blank.html")
    page.evaluate(_MANY, {})

    found = page.evaluate("""async () => {
        const given = new AbortController();
        let isAnswered = false;
        const other = session.run(batch(1)).then(() => session.run(batch(2000))).then(() => (isAnswered = true));
        await session.run(batch(1));
        const run = session.run(batch(3), { signal: given.signal });
        given.abort();
        const name = await run.catch((error) => error.name);
        const wasEarly = !isAnswered;
        await other;
        const after = (await session.run(batch(1))).logits.shape[0];
        const again = await session.run(batch(1), { signal: given.signal }).catch((error) => error.name);
        return [name, wasEarly, after, again];
    }""")

    assert found == ["AbortError", True, 1, "AbortError"]


def test_a_load_that_is_given_up_leaves_room_for_the_next(open_page: Callable[..., BrowserPage], server: str) -> None:
    page = open_page(f"{server}/blank.html")

    found = page.evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const given = new AbortController();
        const loading = load("/models/digits", { signal: given.signal });
        given.abort();
        const name = await loading.catch((error) => error.name);
        const session = await load("/models/digits");
        return [name, (await session.run({ image: new Float32Array(64) })).logits.shape];
    }""")

    assert found == ["AbortError", [1, 10]]


def test_a_bundle_that_names_its_state_streams_and_proves_itself_on_drawn_examples(
    open_page: Callable[..., BrowserPage], write_bundle: WriteBundle
) -> None:
    """`total_out = total_in + x`; its golden example has a drawn input, and of an output every third element."""
    info = [onnx.helper.make_tensor_value_info(name, 1, [1, 7]) for name in ("x", "total_in", "total_out")]
    node = onnx.helper.make_node("Add", ["x", "total_in"], ["total_out"])
    graph = onnx.helper.make_graph([node], "sum", info[:2], info[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x, total = draw(DType.FLOAT32, (1, 7), 3), draw(DType.FLOAT32, (1, 7), 10)
    right = pick(np.asarray(x) + np.asarray(total), (1, 3))
    golden = write_examples([({"x": x, "total_in": total}, {"total_out": right})])
    bundle = write_bundle(
        {"onnx/fp32": model.SerializeToString()}, extra={"golden.safetensors": golden}, examples="golden.safetensors"
    )
    place = bundle / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["variants"][0]["state"] = [{"kind": "pair", "out": "total_out", "in": "total_in"}]
    place.write_text(json.dumps(manifest))

    with ServerThread(create_app({"sum": bundle}, find_web_root())) as server:
        found = open_page(f"{server.url}/blank.html").evaluate("""async () => {
            const { load } = await import("/src/index.js");
            const session = await load("/models/sum", { selfTest: true });
            const stream = session.stream();
            for (const value of [1, 2, 3]) await stream.step({ x: new Float32Array(7).fill(value) });
            return [...stream.state().total_in.data];
        }""")

    assert found == [6] * 7
