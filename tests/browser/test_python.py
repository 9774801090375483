"""Python in the page, in a browser without JSPI and without numpy."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import EdgeInferError, InputError, UnsupportedError, UnsupportedModel
from tests.support import zoo
from tests.support.browser.digits import digits_app
from tests.support.conformance.cases import CASES, Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage, PagePython


def run_model(python: PagePython, model: bytes, code: str, **names: Any) -> Any:
    """Run code with `session`, a session over a model's bytes."""
    setup = """
import base64
from pathlib import Path
import edge_infer
from edge_infer import Tensor
Path("model.onnx").write_bytes(base64.b64decode(model_text))
session = edge_infer.load("model.onnx")
"""
    return python.run(setup + code.strip(), model_text=base64.b64encode(model).decode(), **names)


def test_there_is_no_jspi_and_no_numpy(python: PagePython) -> None:
    found = python.run("""
import js
from importlib.util import find_spec
from edge_infer.platform import host
[hasattr(js.WebAssembly, "Suspending"), find_spec("numpy") is not None, host.can_suspend()]
""")

    assert found == [False, False, False]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_engine_computes_what_is_right(case: Case, python: PagePython) -> None:
    results = run_model(
        python,
        case.model,
        "{name: value.tolist() for name, value in session.run(inputs).items()}",
        inputs=case.inputs,
    )

    assert results == case.expected


def test_the_digits_model_runs_synchronously_from_a_url(python: PagePython, server: str) -> None:
    found = python.run(
        """
import edge_infer
with edge_infer.load(url) as session:
    result = session.run({"image": [[[[0.5] * 8] * 8] * 1] * 3})
    found = [list(result["logits"].shape), str(session.report().engine), session.report().variant]
found
""",
        url=f"{server}/models/digits",
    )

    assert found == [[3, 10], "ort-web", "onnx/int8"]


def test_the_bundle_proves_itself_in_the_page(python: PagePython, server: str) -> None:
    variants = python.run(
        """
import edge_infer
bundle = edge_infer.Bundle.open(url)
names = [variant.id for variant in bundle.manifest.variants if variant.format == "onnx"]
for name in names:
    edge_infer.load(bundle, variant=name, self_test=True).close()
names
""",
        url=f"{server}/models/digits",
    )

    assert "onnx/fp32" in variants


@pytest.mark.parametrize("variant", ["onnx/fp32", "onnx/fp16", "onnx/int8"])
def test_the_same_file_gives_the_same_digits_natively(
    python: PagePython, server: str, digits_bundle: Path, variant: str
) -> None:
    """`examples/digits_app.py`, unmodified, with every variant of the bundle."""
    app = digits_app()
    app._session = app.edge_infer.load(digits_bundle, variant=variant, backend="onnxruntime")
    natively = [app.classify(*app.drawing(text)) for text in app.DRAWINGS.values()]

    python.page.evaluate("(url) => python.importModule(url)", "/vendor/examples/digits_app.py")
    in_page = python.run(
        """
import digits_app, edge_infer
digits_app._session = edge_infer.load(url, variant=variant)
[digits_app.classify(*digits_app.drawing(text)) for text in digits_app.DRAWINGS.values()]
""",
        url=f"{server}/models/digits",
        variant=variant,
    )

    assert [found["digit"] for found in in_page] == [found["digit"] for found in natively]
    for here, there in zip(natively, in_page, strict=True):
        assert here["image"] == there["image"], "the pre-processing is exact"
        assert there["scores"] == pytest.approx(here["scores"], abs=2e-2 if variant == "onnx/int8" else 1e-3)


def test_a_kept_lstm_state_gives_the_numbers_of_a_copied_one(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.lstm_cell(),
        """
zeros = Tensor(bytes(16), "float32", (1, 1, 4))
kept = {"h_out": zeros, "c_out": zeros}
copied = dict(kept)
for step in range(6):
    x = [[[step, 1.0, -step]]]
    before = kept
    kept = session.run({"x": x, "h_in": kept["h_out"], "c_in": kept["c_out"]}, keep=["h_out", "c_out"])
    copied = session.run({"x": x, "h_in": copied["h_out"], "c_in": copied["c_out"]})
    for tensor in before.values():
        tensor.close()
places = [kept["h_out"].location, kept["y"].location, copied["h_out"].location]
[places, kept["h_out"].to_host().tolist() == copied["h_out"].tolist(), kept["y"].tolist() == copied["y"].tolist()]
""",
    )

    assert found == [["engine", "host", "host"], True, True]


def test_a_cache_grows_in_the_engine(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.kv_step(),
        """
cache = Tensor(b"", "float32", (1, 0, 2))
for step in range(8):
    before = cache
    results = session.run({"key": [[[float(step), 1.0]]], "past": cache}, keep=["present"])
    cache = results["present"]
    before.close()
[cache.location, list(cache.shape), float(results["total"]), cache.tolist()[0][-1]]
""",
    )

    assert found == ["engine", [1, 8, 2], 36.0, [7.0, 1.0]]


def test_a_stream_carries_its_state(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.lstm_cell(),
        """
with session.stream(state={"h_out": "h_in", "c_out": "c_in"}) as stream:
    steps = [stream.step({"x": [[[1.0, 2.0, 3.0]]]})["y"].tolist() for _ in range(3)]
steps[0] != steps[1] != steps[2]
""",
    )

    assert found is True


def test_into_writes_where_it_is_told(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.identity("float32", ("n", 3)),
        """
target = Tensor(bytearray(12), "float32", (1, 3))
result = session.run({"x": [[1, 2, 3]]}, into={"y": target})
kept = session.run({"x": [[4, 5, 6]]}, keep=["y"])["y"]
placed = session.run({"x": [[7, 8, 9]]}, into={"y": kept})["y"]
[result["y"] is target, target.tolist(), placed is kept, kept.tolist()]
""",
    )

    assert found == [True, [[1, 2, 3]], True, [[7, 8, 9]]]


def test_a_buffer_that_does_not_fit_is_refused(python: PagePython) -> None:
    with pytest.raises(InputError, match="buffer for output `y` is"):
        run_model(
            python,
            zoo.identity("float32", ("n", 3)),
            """session.run({"x": [[1, 2, 3]]}, into={"y": Tensor(bytearray(16), "float32", (1, 4))})""",
        )


def test_a_closed_tensor_is_not_fed(python: PagePython) -> None:
    with pytest.raises(InputError, match="closed"):
        run_model(
            python,
            zoo.identity("float32", ("n", 3)),
            """
kept = session.run({"x": [[1, 2, 3]]}, keep=["y"])["y"]
kept.close()
session.run({"x": kept})
""",
        )


def test_a_prepared_call_uses_its_buffers_again(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.mlp(),
        """
x = [[i / 64 for i in range(64)]]
expected = session.run({"x": x})["logits"].tolist()
with session.prepare({"x": (1, 64)}) as call:
    first = call({"x": x})["logits"].tolist()
    memoryview(call.inputs["x"]).cast("B")[:] = bytes(256)
    blank = call()["logits"].tolist()
    again = call({"x": x})["logits"].tolist()
[first == expected, blank != expected, again == expected]
""",
    )

    assert found == [True, True, True]


def test_a_prepared_call_survives_that_pythons_memory_moves(python: PagePython) -> None:
    """Its buffer is shared with JavaScript, whose view of it ends when the memory grows."""
    found = run_model(
        python,
        zoo.mlp(),
        """
import js
x = [[i / 64 for i in range(64)]]
expected = session.run({"x": x})["logits"].tolist()
with session.prepare({"x": (1, 64)}) as call:
    call({"x": [[0.0] * 64]})
    grown = bytearray(200_000_000)
    same = [call({"x": x})["logits"].tolist() == expected for _ in range(3)]
    rerun = call()["logits"].tolist() == expected
del grown
[*same, rerun, session.run({"x": x})["logits"].tolist() == expected]
""",
    )

    assert found == [True] * 5


def test_results_of_runs_do_not_share_memory(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.identity("float32", ("n", 3)),
        """
results = [session.run({"x": [[float(i), 0.0, 0.0]]})["y"] for i in range(4)]
target = Tensor(bytearray(12), "float32", (1, 3))
session.run({"x": [[9, 8, 7]]}, into={"y": target})
[[float(y[0][0]) for y in results], target.tolist()]
""",
    )

    assert found == [[0, 1, 2, 3], [[9, 8, 7]]]


def test_a_prepared_call_gives_outputs_whose_shape_depends_on_the_data(python: PagePython) -> None:
    found = run_model(
        python,
        zoo.nonzero(),
        """
with session.prepare() as call:
    rows = [call({"x": x})["where"].tolist() for x in ([0, 1, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0])]
rows
""",
    )

    assert found == [[[1, 3]], [[0, 1, 3]], [[]]]


def test_shapes_may_change_from_run_to_run(python: PagePython) -> None:
    sizes = run_model(
        python,
        zoo.identity("float32", ("n", 3)),
        "[session.run({'x': Tensor(bytes(12 * n), 'float32', (n, 3))})['y'].shape[0] for n in sizes]",
        sizes=[1, 5, 2, 0, 9, 3, 7, 1],
    )

    assert sizes == [1, 5, 2, 0, 9, 3, 7, 1]


def test_loading_200_times_leaves_the_memory_as_it_was(python: PagePython) -> None:
    grown = run_model(
        python,
        zoo.mlp(),
        """
import js
def once():
    with edge_infer.load("model.onnx") as one:
        one.run({"x": Tensor(bytes(512), "float32", (2, 64))}, keep=["logits"])["logits"].close()
for _ in range(3):
    once()
before = js.edgeInferOrtEngine.heap.size
for _ in range(200):
    once()
js.edgeInferOrtEngine.heap.size - before
""",
    )

    assert grown == 0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (b"", "No graph"),
        (b"not a model at all", "protobuf"),
        (zoo.unknown_operator(), "Frobnicate"),
        (zoo.future_opset(), "opset|version"),
        (zoo.mlp()[:500], "protobuf|cannot load"),
    ],
    ids=["empty", "text", "unknown_operator", "future_opset", "truncated"],
)
def test_a_bad_model_is_refused_as_it_is_natively(python: PagePython, model: bytes, said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        run_model(python, model, "session.inputs[0].name")


def test_a_host_without_a_started_engine_says_what_to_write(python: PagePython) -> None:
    """As in a notebook that we do not control: no engine, no JSPI."""
    python.run("import js\nengine, js.edgeInferOrtEngine = js.edgeInferOrtEngine, None\nTrue")
    try:
        with pytest.raises(UnsupportedError, match="cannot wait") as caught:
            run_model(python, zoo.identity(), "1")
        assert "await edge_infer.load_async" in caught.value.hint
        name = python.run("session = await edge_infer.load_async('model.onnx')\nsession.report().engine")
    finally:
        python.run("js.edgeInferOrtEngine = engine\nTrue")

    assert name == "ort-web"


def test_an_error_of_the_users_code_comes_with_its_traceback(python: PagePython) -> None:
    with pytest.raises(EdgeInferError, match="ZeroDivisionError") as caught:
        python.run("def divide():\n    return 1 / 0\ndivide()")

    assert "in divide" in caught.value.details["traceback"]


@pytest.mark.long
def test_micropip_installs_the_wheel_in_a_page_of_someone_else(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    """Without `loadPython`: Pyodide on the main thread, micropip and the dev server's index are enough."""
    code = """
import micropip
await micropip.install("edge-infer", index_urls=f"{server}/simple/{{package_name}}/")
import edge_infer, sys
session = await edge_infer.load_async(f"{server}/models/digits")
result = session.run({"image": edge_infer.Tensor(bytes(256), "float32", (1, 1, 8, 8))})
f"{edge_infer.__version__} {session.report().engine} {result['logits'].shape} {'numpy' in sys.modules}"
"""
    page = open_page(f"{server}/blank.html")

    said = page.evaluate(
        """async ([server, code]) => {
            const { loadPyodide } = await import(`${server}/vendor/pyodide/pyodide.mjs`);
            const pyodide = await loadPyodide({ indexURL: `${server}/vendor/pyodide/` });
            await pyodide.loadPackage("micropip");
            pyodide.globals.set("server", server);
            return pyodide.runPythonAsync(code);
        }""",
        [server, code],
    )

    assert said == "0.1.0 ort-web (1, 10) False"


@contextmanager
def _hanging_up() -> Iterator[str]:
    """Run a server whose answer breaks off as soon as it is asked for `/now`."""
    now = Event()

    class HangsUp(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
            self.send_header("Content-Length", "0" if self.path == "/now" else "100000")
            self.end_headers()
            if self.path == "/now":
                now.set()
            else:
                self.wfile.write(b"x" * 500)
                now.wait(60)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), HangsUp)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_that_breaks_off_is_an_error_of_ours(python: PagePython) -> None:
    with _hanging_up() as url:
        code, message = python.run(
            """
import edge_infer
import pyodide.http

fetch = pyodide.http.pyfetch

async def fetch_and_break(address, **options):
    response = await fetch(address, **options)
    await fetch(f"{url}/now")
    return response

pyodide.http.pyfetch = fetch_and_break
try:
    await edge_infer.load_async(f"{url}/model.onnx")
except edge_infer.EdgeInferError as error:
    said = [error.code, error.message]
finally:
    pyodide.http.pyfetch = fetch
said
""",
            url=url,
        )

    assert code == "fetch_error"
    assert "model.onnx cannot be reached: TypeError: " in message


def test_an_address_that_javascript_cannot_read_is_an_error_of_ours(python: PagePython) -> None:
    said = python.run(
        """
import edge_infer

said = []
for load in (edge_infer.load, edge_infer.load_async):
    try:
        loading = load(url)
        await loading
    except edge_infer.EdgeInferError as error:
        said.append([error.code, error.message])
said
""",
        url="http://127.0.0.1:99999/model.onnx",
    )

    assert [code for code, _ in said] == ["fetch_error", "fetch_error"]
    assert all("model.onnx cannot be reached: " in message for _, message in said)
