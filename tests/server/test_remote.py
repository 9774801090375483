"""`edge_infer.load(URL of a model on a server)`: the same Session, over the wire."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from websockets.sync.server import serve

import edge_infer
from edge_infer.backends.remote.http import RemoteModel
from edge_infer.backends.remote.reply import Reply
from edge_infer.backends.remote.websocket import StreamConnection
from edge_infer.errors import (
    BackendUnavailable,
    BundleError,
    ExecutionError,
    FetchError,
    InputError,
    ModelNotFound,
    PayloadTooLarge,
    QueueFull,
)
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from websockets.sync.server import ServerConnection


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("remote")
    models = {
        "neg": write_bundle(root / "neg", bundle_files("neg", onnx_model("Neg"))),
        "text": write_bundle(root / "text", bundle_files("text", dtype=DType.STRING, shape=("n",))),
        "half": write_bundle(root / "half", bundle_files("half", dtype=DType.FLOAT16, shape=("n",))),
    }
    with ServerThread(create_app(models)) as server:
        yield f"{server.url}/v2/models"


def test_a_model_on_a_server_runs_as_one_here_does(url: str) -> None:
    session = edge_infer.load(f"{url}/neg")
    assert [(spec.name, spec.dtype, spec.shape) for spec in session.inputs] == [("x", "float32", ("batch", 3))]
    result = session.run({"x": numpy.array([[1, 2, 3]], "float32")})
    assert result["y"].tolist() == [[-1, -2, -3]]
    assert session.run({"x": [[4.0, 5.0, 6.0]]})["y"].tolist() == [[-4, -5, -6]]
    report = session.report()
    assert (report.engine, report.engine_version, report.device) == ("remote", "v2", "remote")
    assert report.providers == (f"{url}/neg",)


async def run_async(url: str) -> Any:
    session = await edge_infer.load_async(f"{url}/neg/versions/1", arrays="tensor")
    return await session.run_async({"x": [[1.0, 2.0, 3.0]]})


def test_asynchronously_and_without_numpy(url: str) -> None:
    import asyncio

    result = asyncio.run(run_async(url))
    assert isinstance(result["y"], Tensor)
    assert result["y"].tolist() == [[-1, -2, -3]]


def test_texts_halves_prepared_calls_and_buffers(url: str) -> None:
    assert edge_infer.load(f"{url}/text", arrays="tensor").run({"x": ["a", "ü"]})["y"].tolist() == ["a", "ü"]
    half = numpy.array([0.5, -2], "float16")
    numpy.testing.assert_array_equal(edge_infer.load(f"{url}/half").run({"x": half})["y"], half)
    session = edge_infer.load(f"{url}/neg")
    with session.prepare({"x": (2, 3)}) as call:
        assert call({"x": numpy.ones((2, 3), "float32")})["y"].tolist() == [[-1] * 3] * 2
    target = numpy.zeros((1, 3), "float32")
    session.run({"x": [[1.0, 2.0, 3.0]]}, into={"y": target})
    assert target.tolist() == [[-1, -2, -3]]


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_stream_of_steps_carries_its_state_here(url: str, scheme: str) -> None:
    session = edge_infer.load(f"{url}/neg".replace("http", scheme, 1))
    with session.stream({"y": "x"}, initial={"x": [[1.0, 2.0, 3.0]]}) as stream:
        assert stream.step({}) == {}
        assert stream.state()["x"].tolist() == [[-1, -2, -3]]
        stream.step({})
        assert stream.state()["x"].tolist() == [[1, 2, 3]]
    kept = session.run({"x": [[1.0, 2.0, 3.0]]}, keep=["y"])["y"]
    assert session.run({"x": kept})["y"].tolist() == [[1, 2, 3]]
    session.close()


def test_a_buffer_may_be_empty_and_must_have_the_shape_of_the_result(url: str) -> None:
    session = edge_infer.load(f"{url}/neg")
    nothing = numpy.empty((0, 3), "float32")

    assert session.run({"x": nothing}, into={"y": nothing.copy()})["y"].shape == (0, 3)
    with pytest.raises(InputError, match=r"is float32\[3, 3\], expected float32\[1, 3\]"):
        session.run({"x": [[1.0, 2.0, 3.0]]}, into={"y": numpy.empty((3, 3), "float32")})


def test_without_websockets_the_error_says_what_to_install_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)

    with pytest.raises(BackendUnavailable) as caught:
        StreamConnection("ws://127.0.0.1:1/v2/models/neg")

    assert caught.value.hint == "pip install websockets"


def test_errors_arrive_as_the_class_that_they_left_as(url: str) -> None:
    model = RemoteModel(f"{url}/neg")
    with pytest.raises(InputError, match="expected FP32"):
        model.run({"x": numpy.ones((1, 3), "float64")}, ["y"], {}, ())
    gone = RemoteModel(f"{url}/neg")
    gone._url = f"{url}/none"
    with pytest.raises(ModelNotFound, match="`none` is not served"):
        gone.run({"x": numpy.ones((1, 3), "float32")}, ["y"], {}, ())
    with pytest.raises(FetchError, match="status 404"):
        edge_infer.load(f"{url}/none")
    with pytest.raises(FetchError, match="cannot be reached"):
        edge_infer.load("http://127.0.0.1:1/v2/models/none")


def test_an_address_that_is_no_model_is_told_what_to_write(url: str) -> None:
    server = url.removesuffix("/v2/models")
    for address in (server, f"{server}/"):
        with pytest.raises(FetchError, match="status 404") as caught:
            edge_infer.load(address)
        assert caught.value.hint.startswith(f"{server}/models/NAME ")
        assert f"{server}/v2/models/NAME " in caught.value.hint
    with pytest.raises(FetchError, match="status 404") as caught:
        edge_infer.load(f"{server}/models/none")
    assert "NAME" not in caught.value.hint
    with pytest.raises(BundleError, match="over a WebSocket models run there") as told:
        edge_infer.load(f"{server}/models/neg".replace("http", "ws", 1))
    assert "/v2/models/NAME" in told.value.hint


def test_a_full_server_is_asked_again_when_it_says(url: str) -> None:
    model = RemoteModel(f"{url}/neg")
    real, refusals = model._post, [Reply(503, {"retry-after": "7"}, b""), Reply(503, {}, b"")]
    waited: list[float] = []

    def busy(*arguments: Any) -> Reply:
        return refusals.pop(0) if refusals else real(*arguments)

    model._post, model._pause = busy, waited.append
    result = model.run({"x": numpy.ones((1, 3), "float32")}, ["y"], {}, ())
    assert result["y"].tolist() == [[-1, -1, -1]]
    assert waited == [7.0, 1.0]


def test_a_server_that_stays_full_is_an_error(url: str) -> None:
    model = RemoteModel(f"{url}/neg")
    waited: list[float] = []
    model._post = lambda *_: Reply(503, {"retry-after": "1"}, b'{"error": "full"}')
    model._pause = waited.append
    with pytest.raises(QueueFull, match="full"):
        model.run({"x": numpy.ones((1, 3), "float32")}, ["y"], {}, ())
    assert len(waited) == 4


def test_a_connection_that_the_server_closed_is_opened_again(tmp_path: Any) -> None:
    models = {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}
    with ServerThread(create_app(models)) as server:
        model = RemoteModel(f"{server.url}/v2/models/tiny")
        feeds = {"x": numpy.ones((1, 3), "float32")}
        model.run(feeds, ["y"], {}, ())
        (connection,) = model._connections._idle  # type: ignore[union-attr]
        assert connection.sock is not None
        connection.sock.shutdown(SHUT_RDWR)
        assert model.run(feeds, ["y"], {}, ())["y"].tolist() == [[1, 1, 1]]


def test_a_stream_carries_the_requests_of_many_threads_at_once(url: str) -> None:
    session = edge_infer.load(f"{url}/neg".replace("http", "ws", 1))
    with ThreadPoolExecutor(8) as threads:
        rows = [numpy.full((1, 3), i, "float32") for i in range(200)]
        results = list(threads.map(lambda one: session.run({"x": one})["y"], rows))
    assert all(numpy.array_equal(result, -one) for result, one in zip(results, rows, strict=True))
    assert session.report().providers == (f"{url}/neg",)
    session.close()


def test_a_stream_brings_texts_and_errors_of_the_same_class(url: str) -> None:
    session = edge_infer.load(f"{url}/text".replace("http", "ws", 1))
    assert session.run({"x": Tensor(["a", "\u00e4"], DType.STRING, (2,))})["y"].tolist() == ["a", "\u00e4"]
    model = StreamConnection(f"{url}/neg".replace("http", "ws", 1))
    reply = model.post("", b"{}", {"Inference-Header-Content-Length": "2"}, 10)
    assert reply.status == 400
    assert b"input_error" in reply.body
    model.close()


def test_a_message_over_the_limit_of_a_stream_is_refused_and_harms_no_other(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": folder}, limits=Limits(max_body_bytes=2**16))) as server:
        session = edge_infer.load(f"{server.url}/v2/models/tiny".replace("http", "ws", 1))
        row, large = numpy.ones((1, 3), "float32"), numpy.ones((2**16, 3), "float32")
        with ThreadPoolExecutor(8) as threads:
            small = [threads.submit(session.run, {"x": row}) for _ in range(200)]
            for _ in range(3):
                with pytest.raises(PayloadTooLarge, match="the server takes 65536") as caught:
                    session.run({"x": large})
            assert caught.value.hint == "send smaller batches"
            assert all(one.result()["y"].tolist() == [[1, 1, 1]] for one in small)
        session.close()


@contextmanager
def scripted(first: Callable[[ServerConnection], None]) -> Iterator[str]:
    """Start a server of streams whose first connection is a test's own; the next ones return what they are sent."""
    connections: list[ServerConnection] = []

    def handle(connection: ServerConnection) -> None:
        connections.append(connection)
        if len(connections) == 1:
            first(connection)
        else:
            for message in connection:
                connection.send(message)

    with serve(handle, "127.0.0.1", 0) as server:
        running = Thread(target=server.serve_forever)
        running.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/v2/models/tiny"
    running.join()


@pytest.mark.parametrize("has_close_frame", [True, False])
def test_the_requests_that_a_stream_was_lost_with_are_sent_again(has_close_frame: bool) -> None:
    def cut(connection: ServerConnection) -> None:
        connection.recv()
        if has_close_frame:
            connection.close(1013)
        else:
            connection.socket.shutdown(SHUT_RDWR)

    with scripted(cut) as url:
        stream = StreamConnection(url)
        assert stream.post("", b"abc", {"Inference-Header-Content-Length": "0"}, 60).body == b"abc"
        stream.close()


def test_where_a_server_names_no_limit_the_largest_message_is_blamed_for_what_it_closed() -> None:
    def refuse(connection: ServerConnection) -> None:
        connection.recv()
        connection.recv()
        connection.close(1009, "message too big")

    headers = {"Inference-Header-Content-Length": "0"}
    with scripted(refuse) as url, ThreadPoolExecutor(2) as threads:
        stream = StreamConnection(url)
        small = threads.submit(stream.post, "", b"abc", headers, 60)
        large = threads.submit(stream.post, "", b"abc" * 100, headers, 60)
        with pytest.raises(PayloadTooLarge, match="The message has 312 bytes"):
            large.result()
        assert small.result().body == b"abc"
        stream.close()


def test_a_stream_for_which_there_is_no_place_waits_as_a_full_server_asks(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    app = create_app({"tiny": folder}, limits=Limits(max_streams=1))
    with ServerThread(app) as server:
        url = f"{server.url}/v2/models/tiny".replace("http", "ws", 1)
        feeds = {"x": numpy.ones((1, 3), "float32")}
        first, waited = RemoteModel(url), []
        first.run(feeds, ["y"], {}, ())

        def pause(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 4:
                first.close()
                wait_until(lambda: not app._streams._places)

        second = RemoteModel(url, pause=pause)
        assert second.run(feeds, ["y"], {}, ())["y"].tolist() == [[1, 1, 1]]
        assert waited == [1.0] * 4
        with pytest.raises(QueueFull, match="1 streams are open") as caught:
            RemoteModel(url, pause=lambda _: None).run(feeds, ["y"], {}, ())
        assert caught.value.hint == "send many requests over one stream"
        second.close()


def test_a_stream_that_was_lost_is_opened_again_and_one_that_cannot_be_says_so(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": folder})) as server:
        session = edge_infer.load(f"{server.url}/v2/models/tiny".replace("http", "ws", 1))
        connections: Any = session._runnable._connections  # type: ignore[union-attr]
        assert session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[1, 2, 3]]
        connections._connection.close()
        wait_until(lambda: connections._connection is None)
        assert session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[1, 2, 3]]
    with pytest.raises(FetchError, match="cannot be reached"):
        session.run({"x": [[1.0, 2.0, 3.0]]})
    session.close()


class _Liar(BaseHTTPRequestHandler):
    """A server of one model whose answers are what a test says: its status, headers and the body's bytes."""

    answer: tuple[int, dict[str, str], bytes]
    seen: list[str | None]

    def do_GET(self) -> None:
        spec = [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
        self._send(200, {}, json.dumps({"name": "m", "inputs": spec, "outputs": [{**spec[0], "name": "y"}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(*self.answer)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _liar(answer: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[str | None]]]:
    seen: list[str | None] = []
    kind = type("Liar", (_Liar,), {"answer": answer, "seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2/models/m", seen
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((200, {"Content-Length": str(2**40)}, b"{}"), FetchError, "more than 1073741824 bytes"),
        ((200, {"Content-Length": "100"}, b"{}"), FetchError, "broke off after 2 of 100 bytes"),
        ((200, {"Inference-Header-Content-Length": "9" * 5000}, b"{}"), ExecutionError, "not v2"),
        ((200, {}, b"[" * 200_000), ExecutionError, "not JSON"),
        ((200, {}, b'{"outputs": ["y"]}'), ExecutionError, "not v2"),
        (
            (200, {}, b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": [1]}]}'),
            ExecutionError,
            "not v2",
        ),
        ((503, {"Retry-After": "nan"}, b"[" * 200_000), QueueFull, "status 503"),
    ],
)
def test_an_answer_that_no_server_may_give_is_an_error_of_ours(
    answer: tuple[int, dict[str, str], bytes], kind: type[Exception], said: str
) -> None:
    with _liar(answer) as (url, _):
        model = RemoteModel(url, pause=lambda seconds: None if seconds >= 0 else pytest.fail("a wait back in time"))
        try:
            with pytest.raises(kind, match=said):
                model.run({"x": numpy.ones((1, 3), "float32")}, ["y"], {}, ())
        finally:
            model.close()


def test_an_answer_without_a_length_is_read_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_infer.backends.remote.http.MAX_ANSWER_BYTES", 1000)
    headers = {"Content-Length": "", "Transfer-Encoding": "chunked"}
    with _liar((200, headers, b"400\r\n" + bytes(1024) + b"\r\n0\r\n\r\n")) as (url, _):
        model = RemoteModel(url)
        with pytest.raises(FetchError, match="more than 1000 bytes"):
            model.run({"x": numpy.ones((1, 3), "float32")}, ["y"], {}, ())
        model.close()
