"""The shortest way of a request, beside that through the application: both give the same answers, and none is lost."""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import DeviceLost
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http import fast_path
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.http.reader import RequestReader
from edge_infer.server.ingestion.infer import InferEndpoint
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Answer, Client, row
from tests.support.server.gate import Gate, limits, queued, wait_until_queued
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OCTETS = "application/octet-stream"
PATH = "/v2/models/tiny/infer"
BIG = 30_000


def request(count: int = 1, **more: object) -> bytes:
    entry = {"name": "x", "shape": [count, 3], "datatype": "FP32", "data": [1.5, 2, 3] * count}
    return json.dumps({"inputs": [entry], **more}).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    tiny = write_bundle(tmp_path_factory.mktemp("direct") / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(batch=BatchLimits(max_rows=0)))) as running:
        Client(running.url)("/v2/models/tiny/ready")
        yield running


@pytest.fixture
def through_application(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that the application was asked for."""
    seen: list[str] = []
    answer = InferEndpoint.__call__

    async def note(self: InferEndpoint, scope: dict[str, str], receive: object, send: object, target: object) -> None:
        seen.append(scope["path"])
        await answer(self, scope, receive, send, target)  # type: ignore[arg-type]

    monkeypatch.setattr(InferEndpoint, "__call__", note)
    return seen


def same(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    """What must not depend on the way."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "connection")}
    if "server-timing" in headers:
        headers["server-timing"] = ""
    return answer.status, headers, answer.body


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (row(2.0), {"content_type": OCTETS}),
        (row(2.0, 3), {"content_type": OCTETS, "x_request_id": "a-1", "traceparent": "00-1"}),
        (request(), {"content_type": "application/json"}),
        (request(id="7", parameters={"priority": 3, "timeout": 9_000_000}), {}),
        (request(parameters={"binary_data_output": True}), {"accept_encoding": "gzip"}),
        (request(BIG // 3), {"accept_encoding": "gzip"}),
        (b"{}" + row(1.0), {"inference_header_content_length": "2"}),
        (row(1.0), {"inference_header_content_length": "0"}),
        (b"{", {}),
        (b"", {}),
        (b"", {"content_type": OCTETS}),
        (row(1.0)[:-1], {"content_type": OCTETS}),
        (row(1.0), {"content_type": "text/html"}),
        (request(outputs=[{"name": "none"}]), {}),
    ],
)
def test_both_ways_give_the_same_answer(
    server: ServerThread, through_application: list[str], body: bytes, headers: dict[str, str]
) -> None:
    send = Client(server.url)
    send("/v2/models/tiny/ready")  # which model is meant is asked twice a second, by the application
    short = send(PATH, "POST", body, **headers)
    long = send(PATH, "POST", body, **headers, connection="close")
    assert same(short) == same(long)
    assert long.headers["connection"] == "close"
    is_short = len(body) < 65536
    assert through_application.count(PATH) in ((1, 2) if is_short else (2,))


def test_common_requests_do_not_pass_the_application(server: ServerThread, through_application: list[str]) -> None:
    send = Client(server.url)
    for i in range(50):
        assert send(PATH, "POST", row(float(i)), content_type=OCTETS).body == row(float(i))
    assert len(through_application) < 25  # but the first of each half second


def test_what_is_not_common_passes_it(server: ServerThread, through_application: list[str]) -> None:
    import gzip

    send = Client(server.url)
    assert send(PATH, "POST", gzip.compress(request()), content_encoding="gzip").status == 200
    assert send(f"{PATH}?a=b", "POST", request()).status == 200
    assert send(PATH, "POST", request(), x_priority="no number").status == 400
    assert send("/v2/models/none/infer", "POST", request()).status == 404
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(request()), request())
    assert send(PATH, "POST", chunked, transfer_encoding="chunked").status == 200
    assert len(through_application) == 5


def test_pieces_pipelines_and_another_request_on_the_same_connection(server: ServerThread) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n".encode()
    health = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (head[:20], head[20:], row(1.0)[:5], row(1.0)[5:]):
            connection.sendall(piece)
        # Three at once: the answers come in the order of the requests.
        connection.sendall(head + row(2.0) + health + head + row(3.0))
        text = b""
        while text.count(b"HTTP/1.1 200 OK") < 4 or not text.endswith(row(3.0)):
            text += connection.recv(65536)
    places = [text.index(one) for one in (row(1.0), row(2.0), b"\r\n\r\nOK", row(3.0))]
    assert places == sorted(places)


def test_a_head_unlike_the_last_one_of_its_connection_is_read_anew(server: ServerThread) -> None:
    def post(body: bytes, kind: str, path: str = PATH, more: str = "") -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    Client(server.url)("/v2/models/tiny/ready")
    text = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [7.0] * 3}]}).encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        for request, status, end in (
            (post(row(1.0), OCTETS), 200, row(1.0)),
            (post(row(2.0), OCTETS), 200, row(2.0)),
            (post(row(3.0, 2), OCTETS), 200, row(3.0, 2)),
            (post(text, "application/json"), 200, b"}"),
            (post(row(4.0), OCTETS, more="X-Request-Id: a\r\n"), 200, row(4.0)),
            (post(row(4.0), OCTETS, more="X-Request-Id: b\r\n"), 200, row(4.0)),
            (post(row(4.0), OCTETS, more="X-Priority: much\r\n"), 400, b"}"),
            (post(row(5.0), OCTETS, "/v2/models/none/infer"), 404, b"}"),
            (post(row(6.0), OCTETS, "/v2/models/tiny/versions/1/infer"), 200, row(6.0)),
        ):
            connection.sendall(request)
            answer = connection.recv(65536)
            assert (int(answer[9:12]), answer.endswith(end)) == (status, True)
            if b"X-Request-Id: b" in request:
                assert b"x-request-id: b\r\n" in answer


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The targets of the heads that were parsed."""
    seen: list[bytes] = []
    note_target = RequestReader.on_url

    def note(self: RequestReader, url: bytes) -> None:
        seen.append(url)
        note_target(self, url)

    monkeypatch.setattr(RequestReader, "on_url", note)
    return seen


def exchanged(connection: socket.socket, piece: bytes, end: bytes) -> bytes:
    connection.sendall(piece)
    text = b""
    while not text.endswith(end):
        more = connection.recv(65536)
        assert more, text
        text += more
    return text


def test_a_head_that_comes_again_with_its_body_is_not_parsed_again(server: ServerThread, heads: list[bytes]) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n".encode()
    Client(server.url)(PATH, "POST", row(1.0), content_type=OCTETS)
    heads.clear()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(1, 5):
            assert exchanged(connection, head + row(number), row(number)).startswith(b"HTTP/1.1 200 OK\r\n")
        assert len(heads) == 1
        text = exchanged(connection, head + row(5.0) + head + row(6.0), row(6.0))  # two at once are parsed
        assert text.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert row(5.0) in text
        assert len(heads) == 3
        assert exchanged(connection, head + row(7.0), row(7.0)).count(b"HTTP/1.1 200 OK\r\n") == 1
        connection.sendall(head + row(8.0)[:5])  # a body in pieces
        assert exchanged(connection, row(8.0)[5:], row(8.0)).startswith(b"HTTP/1.1 200 OK\r\n")
        assert exchanged(connection, head + row(9.0), row(9.0)).startswith(b"HTTP/1.1 200 OK\r\n")
        other = head.replace(b"Host: x", b"Host: y")
        assert exchanged(connection, other + row(10.0), row(10.0)).startswith(b"HTTP/1.1 200 OK\r\n")
        twice = head.replace(b"Host: x", b"Host: x\r\nHost: x")
        assert exchanged(connection, twice + row(1.0), b"}").startswith(b"HTTP/1.1 400 ")


def test_a_wrong_body_behind_a_head_that_comes_again_is_told_so_and_the_next_is_answered(server: ServerThread) -> None:
    sound, wrong = request(), request().replace(b"FP32", b"FP99")
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sound)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        for body, status in ((sound, 200), (sound, 200), (wrong, 400), (sound, 200), (wrong, 400), (wrong, 400)):
            answer = exchanged(connection, head + body, b"}")
            assert int(answer[9:12]) == status


def test_a_failure_behind_a_head_that_comes_again_is_answered(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        for number in (1.0, 2.0):
            exchanged(connection, head + row(number), row(number))

        def fail(*_: object) -> None:
            raise RuntimeError("there is a mistake")

        monkeypatch.setattr(fast_path.DirectEndpoint, "begin", fail)
        answer = exchanged(connection, head + row(3.0), b"}")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert connection.recv(1) == b""
    monkeypatch.undo()
    assert Client(server.url)(PATH, "POST", row(4.0), content_type=OCTETS).body == row(4.0)


def test_a_refusal_comes_before_the_body_which_is_thrown_away(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    app = create_app({"tiny": tiny}, limits=limits(max_queue_size=1))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n".encode()
    with ServerThread(app) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        Client(server.url)("/v2/models/tiny/ready")
        with socket.create_connection(address, 30) as one, socket.create_connection(address, 30) as two:
            one.sendall(head + row(1.0))
            assert gate.entered.wait(60)
            two.sendall(head + row(2.0))
            wait_until_queued(server, 1)
            with socket.create_connection(address, 30) as refused:
                refused.sendall(head)
                text = refused.recv(65536)
                assert text.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 1\r\n" in text
                refused.sendall(row(9.0))
                gate.open.set()
                assert two.recv(65536).endswith(row(2.0))
                refused.sendall(head + row(3.0))  # the connection goes on
                assert refused.recv(65536).endswith(row(3.0))
        metrics = Client(server.url)("/metrics").body.decode()
    assert 9.0 not in gate.values
    assert 'edge_infer_rejections_total{code="queue_full",model="tiny",pool="default",version="1"} 1.0' in metrics


def test_a_flood_lets_the_threads_of_models_on_while_one_runs(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(fast_path, "sleep", naps.append)
    monkeypatch.setattr(fast_path, "_LET_ON_EVERY_S", 0.0)
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=limits(max_queue_size=1))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n".encode()
    with ServerThread(app) as server:
        address, ask = ("127.0.0.1", int(server.url.rpartition(":")[2])), Client(server.url)
        ask("/v2/models/tiny/ready")
        with socket.create_connection(address, 30) as one, socket.create_connection(address, 30) as two:
            one.sendall(head + row(1.0))
            assert gate.entered.wait(60)
            assert naps == []  # nothing ran when it came
            two.sendall(head + row(2.0))
            wait_until_queued(server, 1)
            assert [ask(PATH, "POST", row(3.0), content_type=OCTETS).status for _ in range(3)] == [503] * 3
            gate.open.set()
            assert two.recv(65536).endswith(row(2.0))
    assert naps == [0] * 4


def test_a_client_that_leaves_before_its_body_gives_the_model_back(server: ServerThread) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n1234".encode()
    send = Client(server.url)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(head)
    state = json.loads(send("/dashboard/state.json").body)["models"][0]
    while state["in_flight"]:
        state = json.loads(send("/dashboard/state.json").body)["models"][0]
    assert send(PATH, "POST", row(4.0), content_type=OCTETS).body == row(4.0)


def test_a_client_that_does_not_read_its_answers_is_left_to_the_application(
    server: ServerThread, through_application: list[str]
) -> None:
    """It waits for the client; what is written directly would pile up."""
    get = Client(server.url)
    body = row(1.0, 300_000)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        before = _answered(get)
        for count in (1, 2):
            get("/v2/models/tiny/ready")  # which model is meant is asked twice a second, by the application
            through_application.clear()
            connection.sendall(head + body)
            wait_until(lambda: _answered(get) >= before + count)  # noqa: B023
        assert through_application == [PATH]
        answers = bytearray()
        while answers.count(b"HTTP/1.1 200 OK") < 2 or not answers.endswith(body):
            answers += connection.recv(1 << 20)


def _answered(get: Client) -> int:
    models = json.loads(get("/v2/models/tiny/stats").body)["model_stats"]
    return int(models[0]["inference_stats"]["success"]["count"])


def test_a_refused_body_that_trickles_in_is_hung_up_on(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    door = DoorLimits(body_timeout_s=0.3)
    app = create_app({"tiny": tiny}, limits=limits(max_queue_size=1)._replace(door=door))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 12\r\n\r\n".encode()
    with ServerThread(app) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        Client(server.url)("/v2/models/tiny/ready")
        with socket.create_connection(address, 30) as one, socket.create_connection(address, 30) as two:
            one.sendall(head + row(1.0))
            assert gate.entered.wait(60)
            two.sendall(head + row(2.0))
            wait_until_queued(server, 1)
            with socket.create_connection(address, 30) as slow:
                slow.sendall(head + b"1")
                assert slow.recv(65536).startswith(b"HTTP/1.1 503 ")
                assert slow.recv(65536) == b""  # it is closed, though its body never ends
            gate.open.set()
            assert one.recv(65536).endswith(row(1.0))
        assert queued(server) == 0


def test_each_request_is_one_line_in_the_log(server: ServerThread, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edge_infer.server.access"):
        Client(server.url)(PATH, "POST", row(1.0), content_type=OCTETS)
        Client(server.url)(PATH, "POST", b"1", content_type=OCTETS)
        lines: list[str] = []
        while len(lines) < 2:  # an answer is sent before its line is written
            lines = [record.getMessage() for record in caplog.records if record.name == "edge_infer.server.access"]
    assert [line.rpartition(" B ")[0].rpartition(" ")[0] for line in lines] == [f"POST {PATH} 200", f"POST {PATH} 400"]


def test_a_cache_and_a_page_of_another_server_are_the_applications(
    tmp_path: Path, through_application: list[str]
) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(cache_bytes=2**20))) as server:
        assert Client(server.url)(PATH, "POST", row(1.0), content_type=OCTETS).status == 200
        assert Client(server.url)(PATH, "POST", row(1.0), content_type=OCTETS).status == 200
        assert b"edge_infer_cache_hits_total" in Client(server.url)("/metrics").body
    with ServerThread(create_app({"tiny": tiny}, cors_origins=["https://shop.example"])) as server:
        send = Client(server.url)
        send("/v2/models/tiny/ready")
        answer = send(PATH, "POST", row(1.0), content_type=OCTETS, origin="https://shop.example")
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert len(through_application) == 3


def test_large_bodies_in_pieces_and_what_follows_them(server: ServerThread) -> None:
    body, health = row(5.0, BIG), b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in (0, 1, 40_000, len(body) - 40_000, len(body) - 1):
            connection.sendall((head % len(body)).encode() + body[:cut])
            Client(server.url)("/health")  # the first part has come by itself
            # What is behind the body belongs to other requests: one short, one to another path, one large again.
            connection.sendall(
                body[cut:] + (head % 12).encode() + row(6.0) + health + (head % len(body)).encode() + body
            )
            answers = bytearray()
            while answers.count(b"HTTP/1.1 200 OK") < 4 or not answers.endswith(body):
                answers += connection.recv(1 << 20)
            parts = answers.split(b"HTTP/1.1 200 OK\r\n")[1:]
            assert [part.partition(b"\r\n\r\n")[2] for part in parts] == [body, row(6.0), b"OK", body]


def test_the_large_body_of_a_refused_request_is_thrown_away(tmp_path: Path, gate: Gate) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    app = create_app({"tiny": tiny}, limits=limits(max_queue_size=1))
    body = row(9.0, BIG)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: %d\r\n\r\n"
    with ServerThread(app) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        Client(server.url)("/v2/models/tiny/ready")
        with socket.create_connection(address, 30) as one, socket.create_connection(address, 30) as two:
            one.sendall((head % 12).encode() + row(1.0))
            assert gate.entered.wait(60)
            two.sendall((head % 12).encode() + row(2.0))
            wait_until_queued(server, 1)
            with socket.create_connection(address, 30) as refused:
                for _ in range(3):
                    refused.sendall((head % len(body)).encode() + body)
                    assert refused.recv(65536).startswith(b"HTTP/1.1 503 ")
                gate.open.set()
                assert two.recv(65536).endswith(row(2.0))
                refused.sendall((head % 12).encode() + row(3.0))
                assert refused.recv(65536).endswith(row(3.0))
        assert [model.in_flight for model in app.engine.active()] == [0]
    assert 9.0 not in gate.values


@pytest.mark.parametrize("path", [PATH, f"{PATH}?a=b", "/v2/models/tiny/infer_stream"])
def test_a_model_that_runs_nothing_refuses_before_the_body_is_sent(tmp_path: Path, path: str) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    with ServerThread(app) as server:
        send = Client(server.url)
        assert send(PATH, "POST", row(1.0), content_type=OCTETS).status == 200
        app.engine.dispatchers["default"].lost = DeviceLost("gone")
        refused = send(path, "POST", b"", content_length="12", content_type=OCTETS)
        assert (refused.status, json.loads(refused.body)["code"]) == (503, "device_lost")
        (model,) = app.engine.active()
        assert model.statistics.rejections == {"device_lost": 1}


def test_a_log_that_fails_loses_no_request_and_gives_back_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        lost.append(OSError("No space left on device"))
        raise lost[-1]

    lost: list[OSError] = []
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    with caplog.at_level(logging.INFO, "edge_infer.server.access"), ServerThread(app) as server:
        send = Client(server.url)
        assert send(PATH, "POST", row(1.0), content_type=OCTETS).status == 200
        monkeypatch.setattr(fast_path, "log_access", fail)
        for body, status in ((row(1.0), 200), (b"1", 400)):
            assert [send(PATH, "POST", body, content_type=OCTETS).status for _ in range(3)] == [status] * 3
        send("/livez")  # the loop is done with them
        assert lost
        (model,) = app.engine.active()
        assert (model.in_flight, app.direct.context.memory.taken) == (0, 0)
        assert (model.statistics.requests, model.statistics.failures) == (4, {"input_error": 3})


def test_a_client_that_leaves_within_a_large_body_gives_the_model_back(server: ServerThread) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 360000\r\n\r\n".encode()
    get = Client(server.url)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(head + bytes(100_000))
            get("/health")
            connection.sendall(bytes(100_000))
    wait_until(lambda: not json.loads(get("/dashboard/state.json").body)["models"][0]["in_flight"])


def test_a_large_body_that_stops_coming_is_hung_up_on(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    app = create_app({"tiny": tiny}, limits=limits()._replace(door=DoorLimits(body_timeout_s=0.3, min_body_rate=1e9)))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 360000\r\n\r\n".encode()
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(head + bytes(100_000))
            assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
            assert connection.recv(65536) == b""
        wait_until(lambda: not any(model.in_flight for model in app.engine.active()))


def test_a_length_beside_chunks_is_refused(server: ServerThread) -> None:
    """Two ways to tell where a body ends would hide a request in another's body."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: 360000\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\nc\r\n" + row(1.0) + b"\r\n0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
