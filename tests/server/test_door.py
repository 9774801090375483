"""What a connection may take: its number, its headers, its time; TLS, and pages of other servers."""

from __future__ import annotations

import json
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from threading import Event
from time import perf_counter, sleep
from typing import TYPE_CHECKING
from unittest.mock import Mock
from urllib.request import urlopen

import pytest
from websockets.exceptions import InvalidStatus

import edge_infer
from edge_infer.errors import FetchError, InputError, QueueFull, ServingError
from edge_infer.formats.safetensors import FRAME
from edge_infer.platform.systemd import answers
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.connection import Connection
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.http.listener import Tls
from edge_infer.server.http.progress import UnreadAnswers
from edge_infer.server.ingestion.infer_websocket import Stream
from edge_infer.server.ingestion.memory_budget import BodyMemory
from edge_infer.server.ingestion.origins import parse_origin
from edge_infer.server.ingestion.websocket_handshake import MAX_IN_FLIGHT
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask, refusals, row
from tests.support.server.streams import UPGRADE, masked, opened_by_who_never_reads, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server.gate import Gate

ANY_ROWS = Limits(batch=BatchLimits(max_wait_ms=1e6, max_rows=0))  # a large request is not refused for the wait
LIMITS = DoorLimits(max_connections=6, max_header_bytes=4096, header_timeout_s=0.3, body_timeout_s=0.3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("door") / "tiny", bundle_files())


@pytest.fixture(scope="module")
def server(tiny: Path) -> Iterator[ServerThread]:
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(door=LIMITS))) as running:
        yield running


@pytest.fixture(scope="module")
def few(tiny: Path) -> Iterator[ServerThread]:
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(door=DoorLimits(max_connections=6)))) as running:
        yield running


def opened(server: ServerThread) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answer(connection: socket.socket) -> tuple[int, str]:
    """The status and the code of an answer, once the server has hung up."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["code"]


UPGRADE_WITHOUT_HOST = (
    b"GET /v2/models/tiny/stream HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
POST = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (
            b"GET /v2/models/tiny/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX: "
            + b"a" * 5000
            + b"\r\n\r\n",
            431,
            "headers_too_large",
        ),
        (b"", 408, "request_timeout"),
        (b"GET /hea", 408, "request_timeout"),
        (POST, 408, "request_timeout"),
        (POST + b"Content-Length: 12\r\n\r\n1234", 408, "request_timeout"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n", 408, "request_timeout"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n", 431, "headers_too_large"),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, "headers_too_large"),
        (b"\x16\x03\x01\x02\x00 TLS without http", 400, "input_error"),
        (b"GET /health HTTP/9.9\r\n\r\n", 400, "input_error"),
        (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1", 400, "input_error"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "input_error"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400, "input_error"),
        (b"GET /health HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", 400, "input_error"),
        (UPGRADE_WITHOUT_HOST, 400, "input_error"),
    ],
    ids=[
        "upgrade",
        "nothing",
        "half a line",
        "half the headers",
        "half a body",
        "half a chunk",
        "long",
        "many",
        "long path",
        "another protocol",
        "another version",
        "a length beside chunks",
        "without a host",
        "two hosts",
        "two hosts of an older version",
        "a WebSocket without a host",
    ],
)
def test_what_takes_too_long_or_too_much_is_hung_up_on(
    server: ServerThread, sent: bytes, status: int, code: str
) -> None:
    before = refusals(server).get(code, 0)
    with opened(server) as connection:
        connection.sendall(sent)
        assert answer(connection) == (status, code)
    assert ask(server).body == row(1.0)
    assert refusals(server)[code] == before + 1


def test_the_first_version_of_http_needs_no_host(server: ServerThread) -> None:
    with opened(server) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_one_connection_too_many_is_refused_and_the_others_go_on(few: ServerThread) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    kept = [opened(few) for _ in range(6)]
    try:
        for connection in kept:
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with opened(few) as another:
            assert answer(another) == (503, "queue_full")
        for connection in kept:
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in kept:
            connection.close()


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERED = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ",
        ANSWERED + b"GET /health HTTP/1.1\r\nX-Long: ",
        POST + b"Content-Length: 12\r\n\r\n" + row(1.0) + b"GET /",
        CHUNKED + b"c\r\n" + row(1.0) + b"\r\n0\r\nX-Behind: ",
        CHUNKED + b"c;a=",
    ],
    ids=["path", "value", "behind a head", "behind a body", "behind the chunks", "in a chunk's head"],
)
def test_what_comes_of_a_head_without_end_is_bounded(server: ServerThread, begun: bytes) -> None:
    before = refusals(server).get("headers_too_large", 0)
    with opened(server) as connection, suppress(OSError):  # it is cut while it sends
        connection.sendall(begun + b"a" * 2**20)
        while connection.recv(65536):
            pass
    assert refusals(server).get("headers_too_large", 0) == before + 1


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_is_bounded_by_no_limit_of_headers(server: ServerThread, path: str, is_chunked: bool) -> None:
    body = row(1.0, 1000)
    head = POST.replace(b"/v2/models/tiny/infer", path.encode())
    if is_chunked:
        pieces = b"".join(b"c\r\n" + body[at : at + 12] + b"\r\n" for at in range(0, len(body), 12))
        request = head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
    else:
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with opened(server) as connection:
        for pieces_of in (1, 2, 7):  # whole, and with a boundary in the body and in the next head
            size = -(-len(request) // pieces_of)
            for at in range(0, len(request), size):
                connection.sendall(request[at : at + size])
            data = b""
            while not data.endswith(body):
                data += connection.recv(65536)
            assert data.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
@pytest.mark.parametrize(
    ("behind", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nX: " + b"a" * 5000 + b"\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (UPGRADE, 101),
        (b"GET /hea", 408),
        (b"nonsense\r\n\r\n", 400),
    ],
    ids=["long", "long and another", "upgrade", "half a line", "nonsense"],
)
def test_what_comes_behind_a_request_harms_it_not_and_is_answered_after_it(
    tiny: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, path: str, behind: bytes, status: int
) -> None:
    late, check = Event(), Connection.check

    def note(self: Connection, now: float) -> None:
        check(self, now)
        late.set()

    monkeypatch.setattr(Connection, "check", note)
    app = create_app({"tiny": tiny}, limits=Limits(workers=1, door=LIMITS))
    head = POST.replace(b"/v2/models/tiny/infer", path.encode()) + b"Content-Length: 12\r\n\r\n"
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with opened(server) as connection:
            connection.sendall(head + row(1.0) + behind)
            assert gate.entered.wait(60)
            if status == 408:
                assert late.wait(60)
            gate.open.set()
            data = b""
            while b" 101 " not in data and (chunk := connection.recv(65536)):
                data += chunk
        answers = data.split(b"HTTP/1.1 ")
        assert [int(one[:3]) for one in answers[1:]] == [200, status]
        assert answers[1].endswith(row(1.0))
        assert gate.values == [1.0]
        assert [model.in_flight for model in app.engine.active()] == [0]


def test_a_body_that_the_server_itself_does_not_read_yet_is_not_too_slow(
    tiny: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, check = Event(), Connection.check

    def note(self: Connection, now: float) -> None:
        check(self, now)
        late.set()

    monkeypatch.setattr(Connection, "check", note)
    app = create_app({"tiny": tiny}, limits=ANY_ROWS._replace(door=DoorLimits(body_timeout_s=2, min_body_rate=1e9)))
    body = row(2.0, 300_000)
    behind = POST.replace(b"/infer", b"/infer?a=b") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with ServerThread(app) as server, ThreadPoolExecutor(1) as threads:
        Client(server.url)("/v2/models/tiny/ready")
        with opened(server) as connection:
            sent = threads.submit(connection.sendall, POST + b"Content-Length: 12\r\n\r\n" + row(1.0) + behind)
            assert gate.entered.wait(60)
            assert late.wait(60)
            gate.open.set()
            data = bytearray()
            while not data.endswith(body):
                data += connection.recv(1 << 20)
            sent.result()
        assert [int(one[:3]) for one in data.split(b"HTTP/1.1 ")[1:]] == [200, 200]


def sender_of(server: ServerThread) -> Connection:
    """The connection whose body arrives."""
    while True:
        for found in list(server.server.connections.open):
            if isinstance(found, Connection) and found.body.received:
                return found


def let_time_pass(server: ServerThread, sender: Connection) -> None:
    """Let the time for the next piece of its body be over."""
    checked = Event()

    def check() -> None:
        sender.check(sender.since + sender.patience + 1)
        checked.set()

    assert server.server.loop is not None
    server.server.loop.call_soon_threadsafe(check)
    assert checked.wait(60)


@pytest.mark.parametrize(
    ("path", "size"),
    [("/infer", 1200), ("/infer", 120_000), ("/infer?a=b", 1200), ("/infer?a=b", 0)],
    ids=["direct", "direct and large", "application", "chunks"],
)
@pytest.mark.parametrize("end", ["arrives", "stops", "is too slow"])
def test_a_body_may_take_as_long_as_it_comes(tiny: Path, path: str, size: int, end: str) -> None:
    how = b"Content-Length: %d\r\n\r\n" % size if size else b"Transfer-Encoding: chunked\r\n\r\n"
    rows = row(1.0, 25)
    piece, last = (rows, b"") if size else (b"12c\r\n%b\r\n" % rows, b"0\r\n\r\n")
    door = DoorLimits(body_timeout_s=60.0, min_body_rate=100.0 if end == "is too slow" else 1e-3)
    app = create_app({"tiny": tiny}, limits=ANY_ROWS._replace(door=door))
    with ServerThread(app) as server, opened(server) as connection:
        Client(server.url)("/v2/models/tiny/ready")
        connection.sendall(POST.replace(b"/infer", path.encode()) + how + piece)
        sender = sender_of(server)
        for count in (2, 3):
            connection.sendall(piece)
            wait_until(lambda: sender.body.received >= count * len(rows))  # noqa: B023
            let_time_pass(server, sender)
            if end == "is too slow":
                break
        if end == "arrives":
            left = (size or 1200) // 300 - 3
            connection.sendall(piece * left + last)
            data = b""
            while not data.endswith(row(1.0, 25 * (left + 3))):
                data += connection.recv(65536)
            return
        if end == "is too slow":
            connection.sendall(piece)
            wait_until(lambda: sender.body.received >= 3 * len(rows))
        let_time_pass(server, sender)
        assert answer(connection) == (408, "request_timeout")
        assert refusals(server) == {"request_timeout": 1}
        wait_until(
            lambda: not app.direct.context.memory.taken and not any(model.in_flight for model in app.engine.active())
        )


def test_slow_clients_hold_up_nobody(server: ServerThread) -> None:
    with opened(server) as one, opened(server) as two:
        one.sendall(POST)
        two.sendall(POST + b"Content-Length: 12\r\n\r\n")
        assert {ask(server, float(i)).body == row(float(i)) for i in range(10)} == {True}


# -- clients that do not read --


def unread_of(unsent: int, memory: BodyMemory) -> tuple[UnreadAnswers, Mock]:
    """The answers of a client that has so many bytes to read, and what tells how many are left."""
    transport = Mock()
    transport.get_write_buffer_size.return_value = unsent
    limits = DoorLimits(read_timeout_s=60.0, min_body_rate=1.0)
    return UnreadAnswers(transport, memory, limits), transport.get_write_buffer_size


def test_a_slow_client_is_let_go_only_when_it_takes_nothing() -> None:
    unread, left = unread_of(100, BodyMemory())
    assert unread.begin(0.0)
    for count in (99, 50, 49):
        left.return_value = count
        assert not unread.is_too_slow()
        unread.begin(0.0)
    assert unread.is_too_slow()


def test_a_client_that_has_taken_all_is_watched_no_more() -> None:
    memory = BodyMemory()
    unread, left = unread_of(100, memory)
    unread.begin(0.0)
    assert memory.taken == 100
    unread.end()
    assert memory.taken == 0
    unread.begin(0.0)
    left.return_value = 0
    assert not unread.is_too_slow()
    assert not unread.begin(0.0)
    assert memory.taken == 0


@pytest.mark.parametrize(
    ("unsent", "most", "is_cut"),
    [((1000, 999), 1000, True), ((1000, 999), 10_000, False), ((1000, 900), 1000, False), ((50, 49), 60, False)],
    ids=["slow where memory is short", "slow", "quicker", "little"],
)
def test_a_slow_client_is_let_go_where_memory_is_short(unsent: tuple[int, int], most: int, is_cut: bool) -> None:
    unread, left = unread_of(unsent[0], BodyMemory(most))
    unread.begin(0.0)
    left.return_value = unsent[1]
    assert unread.is_too_slow() is is_cut


def test_an_answer_counts_whole_until_all_of_it_is_read() -> None:
    memory = BodyMemory()
    unread, left = unread_of(100, memory)
    unread.last = 1000  # the system has taken 900 of them
    unread.begin(0.0)
    left.return_value = 1
    unread.begin(60.0)
    assert memory.taken == 1000
    assert unread.load(70.0).size == 1000
    left.return_value = 0
    unread.begin(120.0)
    assert memory.taken == 0


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such bound")
def test_the_system_takes_little_of_what_a_client_does_not_read(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, limits=ANY_ROWS)
    body = row(1.0, 700_000)
    with ServerThread(app) as server, opened_by_who_never_reads(server.url) as connection:
        Client(server.url)("/v2/models/tiny/ready")
        connection.settimeout(60)
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        opened = server.server.connections.open
        wait_until(lambda: any(isinstance(one, Connection) and one.is_unread for one in opened))
        (door,) = [one for one in opened if isinstance(one, Connection) and one.is_unread]
        assert door.transport.get_write_buffer_size() > len(body) - 2**20


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
@pytest.mark.parametrize("is_read", [True, False])
def test_an_answer_that_nobody_reads_takes_memory_until_it_is_read_or_let_go(
    tiny: Path, path: str, is_read: bool
) -> None:
    app = create_app({"tiny": tiny}, limits=ANY_ROWS._replace(max_bodies_bytes=100_000))
    body = row(1.0, 300_000)
    head = POST.replace(b"/v2/models/tiny/infer", path.encode()) + b"Content-Length: %d\r\n\r\n" % len(body)
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with opened_by_who_never_reads(server.url) as connection:
            connection.settimeout(60)
            connection.sendall(head + body)  # alone it is more than all may have together
            (model,) = app.engine.active()
            wait_until(lambda: model.statistics.requests)
            wait_until(lambda: ask(server).status == 503)  # it was sent in the meantime
            if is_read:
                data = bytearray()
                while not data.endswith(body):
                    data += connection.recv(1 << 20)
        wait_until(lambda: not app.direct.context.memory.taken)
        assert ask(server).status == 200


def test_an_answer_behind_one_that_nobody_reads_takes_memory_too(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, limits=ANY_ROWS)
    memory = app.direct.context.memory
    body = row(1.0, 300_000)
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with opened_by_who_never_reads(server.url) as connection:
            connection.settimeout(60)
            connection.sendall((POST + b"Content-Length: %d\r\n\r\n" % len(body) + body) * 2)
            (model,) = app.engine.active()
            wait_until(lambda: model.statistics.requests == 2 and not model.in_flight)
            assert memory.taken > len(body)  # all of the second, and the rest of the first
        wait_until(lambda: not memory.taken)


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
def test_a_client_that_never_reads_its_answer_is_let_go(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, path: str, more: bytes
) -> None:
    gone, lost = Event(), Connection.connection_lost

    def note(self: Connection, exc: Exception | None) -> None:
        is_it = self.is_unread
        lost(self, exc)
        if is_it:
            gone.set()

    app = create_app({"tiny": tiny}, limits=ANY_ROWS._replace(door=DoorLimits(read_timeout_s=0.2)))
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        monkeypatch.setattr(Connection, "connection_lost", note)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
            body = row(1.0, 300_000)
            head = POST.replace(b"/v2/models/tiny/infer", path.encode()) + more
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert gone.wait(30)
        assert [model.in_flight for model in app.engine.active()] == [0]
        assert ask(server).status == 200


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_stream_whose_client_never_reads_counts_in_the_memory_and_is_let_go(tiny: Path, is_cut: bool) -> None:
    door = DoorLimits(read_timeout_s=0.3 if is_cut else 60.0)
    app = create_app({"tiny": tiny}, limits=ANY_ROWS._replace(door=door))
    memory = app.direct.context.memory
    asked = masked(FRAME.pack(1, 0, 120_000) + row(1.0, 10_000))
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with opened_by_who_never_reads(server.url) as connection, ThreadPoolExecutor(1) as threads:
            connection.settimeout(60)
            connection.sendall(UPGRADE)
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")  # the last that it reads
            sent = threads.submit(connection.sendall, asked * 1000)
            wait_until(lambda: is_cut or memory.taken > 120_000)  # what is not sent counts, too
            if not is_cut:
                connection.shutdown(socket.SHUT_RDWR)
            with pytest.raises(ConnectionError):  # of the client, or of the server that lets go of it
                sent.result()
        wait_until(
            lambda: (
                not len(app._streams) and not memory.taken and not any(model.in_flight for model in app.engine.active())
            )
        )
        assert ask(server).status == 200


def test_what_a_client_sent_before_it_left_is_not_looked_at(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests whose answers nobody reads stop the reading; a message of many behind them is not worth a turn."""
    begun, begin = [0], Stream._begin

    def count(self: Stream, number: int, body: bytes, json_length: int) -> None:
        begun[0] += 1
        begin(self, number, body, json_length)

    monkeypatch.setattr(Stream, "_begin", count)
    app = create_app({"tiny": tiny}, limits=ANY_ROWS)
    large = masked(FRAME.pack(1, 0, 120_000) + row(1.0, 10_000))
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with opened_by_who_never_reads(server.url) as connection:
            connection.settimeout(60)
            connection.sendall(UPGRADE)
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
            connection.settimeout(1.0)
            with pytest.raises(TimeoutError):
                connection.sendall(large * 3 + masked(FRAME.pack(1, 0, 0) * 100_000) + large * 500)
            looked_at = begun[0]
            connection.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not len(app._streams) and not app.direct.context.memory.taken)
        assert MAX_IN_FLIGHT < begun[0] <= looked_at + MAX_IN_FLIGHT < 50_000


def test_a_stream_behind_an_answer_that_nobody_reads_waits_until_it_is_read(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_told, pause = Event(), Connection.pause_writing

    def note(self: Connection) -> None:
        pause(self)
        is_told.set()

    monkeypatch.setattr(Connection, "pause_writing", note)
    body = row(1.0, 300_000)
    with ServerThread(create_app({"tiny": tiny}, limits=ANY_ROWS)) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with opened_by_who_never_reads(server.url) as connection:
            connection.settimeout(30)
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + UPGRADE)
            assert is_told.wait(30)
            data = bytearray()
            while b" 101 " not in data:
                data += connection.recv(1 << 20)


@pytest.mark.parametrize("is_in_fragments", [False, True])
def test_a_message_that_does_not_come_ends_its_stream(tiny: Path, is_in_fragments: bool) -> None:
    app = create_app({"tiny": tiny}, limits=Limits(door=DoorLimits(body_timeout_s=0.3, min_body_rate=1e9)))
    half = masked(b"a" * 50_000, None if is_in_fragments else 100_000)
    with ServerThread(app) as server, opened(server) as connection:
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(65536)
        connection.sendall(b"\x02" + half[1:] if is_in_fragments else half)
        wait_until(lambda: app.direct.context.memory.taken >= 50_000)
        data = connection.recv(65536)
        assert data[:4] == bytes([0x88, len(data) - 2]) + (1008).to_bytes(2, "big")
        assert connection.recv(65536) == b""
        wait_until(lambda: not app.direct.context.memory.taken and not len(app._streams))
        assert refusals(server) == {"request_timeout": 1}


def test_messages_that_come_in_pieces_are_answered(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, limits=Limits(door=DoorLimits(body_timeout_s=0.7, min_body_rate=1e9)))
    asked = masked(FRAME.pack(1, 0, 12) + row(1.0))
    with ServerThread(app) as server, opened(server) as connection:
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(65536)
        sent, got = asked[:20], b""
        for _ in range(10):  # together longer than one may take, and never is there none begun
            connection.sendall(sent)
            sleep(0.1)
            sent = asked[20:] + asked[:20]
        while got.count(row(1.0)) < 9:
            got += connection.recv(65536)
        assert app.refusals == {}


def test_a_longer_field_of_length_than_needed_counts_for_nothing(tiny: Path) -> None:
    app = create_app({"tiny": tiny})
    message = FRAME.pack(1, 0, 12) + row(1.0)
    long = b"\x82\xff" + len(message).to_bytes(8, "big") + bytes(4) + message
    with ServerThread(app) as server, opened(server) as connection:
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(65536)
        for _ in range(20):
            connection.sendall(long)
            assert row(1.0) in connection.recv(65536)
        wait_until(lambda: not app.direct.context.memory.taken)


def test_half_a_message_for_which_there_is_no_room_ends_its_stream(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, limits=Limits(max_bodies_bytes=300_000))
    with ServerThread(app) as server, opened(server) as one, opened(server) as two:
        for connection in (one, two):
            connection.sendall(UPGRADE)
            assert b" 101 " in connection.recv(65536)
        one.sendall(masked(b"a" * 200_000, 400_000))
        wait_until(lambda: app.direct.context.memory.taken >= 200_000)
        with suppress(ConnectionError):
            two.sendall(masked(b"a" * 200_000, 400_000))
            data = two.recv(65536)
            assert data[2:4] == (1013).to_bytes(2, "big")
        wait_until(lambda: len(app._streams) == 1)
        assert 200_000 <= app.direct.context.memory.taken < 200_100  # with the head of its frame
        assert refusals(server) == {"queue_full": 1}


# -- pages of other servers --


def test_pages_of_allowed_servers_may_ask_and_read_our_headers(tiny: Path) -> None:
    app = create_app({"tiny": tiny}, cors_origins=["HTTPS://Shop.example/"])
    with ServerThread(app) as server:
        preflight = Client(server.url)(
            "/v2/models/tiny/infer",
            "OPTIONS",
            origin="https://shop.example",
            access_control_request_method="POST",
            access_control_request_headers="content-type,x-api-key",
        )
        assert preflight.status == 200
        assert "x-api-key" in preflight.headers["access-control-allow-headers"]
        allowed = ask(server, origin="https://shop.example")
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        assert "Server-Timing" in allowed.headers["access-control-expose-headers"]
        assert "access-control-allow-origin" not in ask(server, origin="https://evil.example").headers


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://shop.example", "https://shop.example"),
        ("HTTPS://Shop.example:443/", "https://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("http://[::1]:80", "http://[::1]"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("null", "null"),
        ("*", "*"),
    ],
)
def test_an_origin_is_kept_as_browsers_write_it(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("shop.example", "https://shop.example"),
        ("shop.example:8443", "https://shop.example:8443"),
        ("https://shop.example/cart?id=1", "https://shop.example"),
        ("https://name:word@shop.example", "https://shop.example"),
        *(
            (text, "https://shop.example")
            for text in ("", "https://", "https://*.shop.example", "http://a b", "http://a:b")
        ),
    ],
)
def test_what_is_no_origin_is_refused_at_the_start(tiny: Path, text: str, hint: str) -> None:
    with pytest.raises(InputError, match="is not an origin") as caught:
        create_app({"tiny": tiny}, cors_origins=["https://one.example", text])
    assert caught.value.hint == f"--cors-origin {hint}"


def test_a_page_of_another_server_opens_no_stream(tiny: Path) -> None:
    with ServerThread(create_app({"tiny": tiny}, cors_origins=["https://shop.example"])) as server:
        with pytest.raises(InvalidStatus) as caught:
            stream(server.url, origin="https://evil.example")
        assert caught.value.response.status_code == 403
        for origin in ("https://shop.example", server.url, None):
            with stream(server.url, origin=origin):
                pass


@pytest.mark.parametrize("what", ["load", "unload", "canary"])
def test_a_page_of_another_server_changes_no_model(tiny: Path, what: str) -> None:
    with ServerThread(create_app({"tiny": tiny}, cors_origins=["https://shop.example"])) as server:
        path = f"/v2/repository/models/tiny/{what}"
        for origin in ("https://evil.example", "null", "http://["):
            refused = Client(server.url)(path, "POST", b"", origin=origin, content_type="text/plain")
            assert (refused.status, json.loads(refused.body)["code"]) == (403, "origin_refused"), origin
        assert ask(server).status == 200
        for origin in ("https://shop.example", server.url):
            assert Client(server.url)(path, "POST", b"", origin=origin).status == 200


# -- TLS --


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate of 127.0.0.1, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "edge-infer test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    return Tls(folder / "cert.pem", folder / "key.pem")


def test_with_a_certificate_requests_travel_encrypted(tiny: Path, certificate: Tls) -> None:
    trusted = ssl.create_default_context(cafile=certificate.certificate)
    with ServerThread(create_app({"tiny": tiny}), certificate) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with urlopen(f"{server.url}/health", context=trusted) as response:
            assert response.read() == b"OK"
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urlopen(f"{server.url}/health")
        # Not by `websockets.sync`: its two threads share one object of OpenSSL, which Python 3.11 does not lock.
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        with (
            socket.create_connection(address, 30) as plain,
            trusted.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(UPGRADE)
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")


def test_a_session_says_what_is_wrong_with_tls_and_takes_the_certificate_of_the_environment(
    tiny: Path, certificate: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with ServerThread(create_app({"tiny": tiny}), certificate) as server, ServerThread(create_app({})) as plain:
        encrypted = server.url.removeprefix("https://")
        for path in ("models/tiny", "v2/models/tiny"):
            with pytest.raises(FetchError, match="CERTIFICATE_VERIFY_FAILED") as caught:
                edge_infer.load(f"{server.url}/{path}")
            assert caught.value.hint.startswith("SSL_CERT_FILE=chain.pem")
            with pytest.raises(FetchError, match="cannot be reached") as caught:
                edge_infer.load(f"http://{encrypted}/{path}")
            assert f"https://{encrypted}/{path}" in caught.value.hint
            with pytest.raises(FetchError, match="cannot be reached") as caught:
                edge_infer.load(f"{plain.url.replace('http', 'https', 1)}/{path}")
            assert f" {plain.url}/{path}" in caught.value.hint
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        for url in (f"{server.url}/models/tiny", f"{server.url}/v2/models/tiny", f"wss://{encrypted}/v2/models/tiny"):
            with edge_infer.load(url) as session:
                assert session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[1, 2, 3]]


def test_the_watchdog_asks_whatever_name_the_certificate_has(tiny: Path, certificate: Tls) -> None:
    with ServerThread(create_app({"tiny": tiny}), certificate) as server:
        assert answers(f"{server.url}/v2/health/live")
        assert not answers(f"{server.url}/v2/nothing")


def test_a_certificate_that_is_none_is_one_clear_error(tiny: Path, certificate: Tls, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    none = tmp_path / "none.pem"
    for tls, message in (
        (Tls(wrong, certificate.key), "The certificate or its key cannot be used"),
        (Tls(none, certificate.key), f"`{none}` cannot be read: No such file"),
        (Tls(certificate.certificate, none), f"`{none}` cannot be read: No such file"),
    ):
        with pytest.raises(ServingError, match=message), ServerThread(create_app({"tiny": tiny}), tls):
            pass


@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
def test_an_idle_connection_is_closed_and_one_in_use_is_not(tiny: Path, gate: Gate, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 12\r\n\r\n"
    gate.open.set()
    with (
        ServerThread(create_app({"tiny": tiny}, limits=Limits(door=DoorLimits(keep_alive_s=1.5)))) as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 30) as connection,
    ):
        for _ in range(4):  # together longer than the time
            connection.sendall(head.encode() + row(1.0))
            assert connection.recv(65536).endswith(row(1.0))
            sleep(0.5)
        gate.open.clear()
        connection.sendall(head.encode() + row(2.0))
        sleep(2)  # it waits for its answer: that is not idle
        start = perf_counter()
        gate.open.set()
        assert connection.recv(65536).endswith(row(2.0))
        assert connection.recv(65536) == b""
        assert perf_counter() - start > 1


REFUSED = b"POST /v2/models/none/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
OFFERED = POST + b"Content-Length: %d\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "behind"),
    [
        (ANSWERED, b"\r\n"),
        (REFUSED % 10, b"0123456789"),
        (OFFERED % 12, row(1.0)),
        (OFFERED % 120_000, row(1.0, 10_000)),
    ],
    ids=["an empty line", "a body", "a body for the model", "a body that is read past the parser"],
)
def test_what_is_no_request_keeps_no_connection(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes, behind: bytes
) -> None:
    """An empty line behind an answer, or a body that was refused before it came: the connection is idle still."""
    app = create_app({"tiny": tiny}, limits=Limits(door=DoorLimits(keep_alive_s=0.3)))
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        (model,) = app.engine.active()
        monkeypatch.setattr(model.batcher, "refusal", lambda *_: QueueFull("full"))
        with opened(server) as connection:
            connection.sendall(request_)
            data = connection.recv(65536)
            assert int(data[9:12]) in (200, 404, 503)
            connection.settimeout(10)
            sleep(0.1)  # a packet of its own, as far as that can be had
            with suppress(ConnectionError):
                connection.sendall(behind)
                while connection.recv(65536):
                    pass
