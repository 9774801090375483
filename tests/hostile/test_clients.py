"""Patient clients that mean harm: they announce, trickle, never read or flood, and others are served all the same."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from time import sleep
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import QueueFull
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings
from edge_infer.server.http import connections, websocket
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.http.websocket import WebSocket
from edge_infer.server.ingestion.infer_websocket import Stream
from edge_infer.server.ingestion.memory_budget import BodyMemory
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.server.scheduling.shares import Tenant
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask, refusals, row
from tests.support.server.streams import UPGRADE, answers_of, opened_by_who_never_reads, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.server.app import Application

HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
PATHS = (b"/v2/models/tiny/infer", b"/v2/models/tiny/infer?a=b")
#: A client's frames with the mask 0: an empty fragment, a fragment of a byte, a ping.
EMPTY, BYTE, PING = b"\x00\x80\0\0\0\0", b"\x00\x81\0\0\0\0a", b"\x89\x80\0\0\0\0"
BEGIN = b"\x02\x80\0\0\0\0"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("clients") / "tiny", bundle_files())


@contextmanager
def served(tiny: Path, door: DoorLimits | None = None) -> Iterator[tuple[ServerThread, Application]]:
    """A server whose bodies may take 1 MiB together."""
    limits = Limits(batch=BatchLimits(max_rows=0, max_wait_ms=1e6), max_bodies_bytes=2**20, door=door or DoorLimits())
    app = create_app({"tiny": tiny}, limits=limits)
    with ServerThread(app) as server:
        assert ask(server).status == 200
        yield server, app


def connected(server: ServerThread) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 30)


#: Connections are looked at ten times a second, which is what their clock shows.
QUICK_SWEEP = DoorLimits(header_timeout_s=0.4)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow clients may be let go after a second."""
    monkeypatch.setattr(connections, "_SLOW_S", 1.0)


def holds(memory: BodyMemory, size: int) -> bool:
    return memory.taken == size


# -- bodies --


@pytest.mark.parametrize("path", PATHS, ids=["direct", "application"])
def test_bodies_that_are_announced_take_no_memory(tiny: Path, path: bytes) -> None:
    with served(tiny) as (server, app), ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connected(server)).sendall(HEAD % (path, 900_000) + b"\0" * 10_000)
        memory = app.direct.context.memory
        wait_until(lambda: memory.taken == 80_000)
        assert {ask(server, 1.0).status for _ in range(20)} == {200}


@pytest.mark.parametrize("path", PATHS, ids=["direct", "application"])
def test_slow_bodies_go_first_where_memory_is_full(tiny: Path, path: bytes, impatient: None) -> None:
    with served(tiny, QUICK_SWEEP) as (server, app), ExitStack() as stack:
        memory = app.direct.context.memory
        held = [stack.enter_context(connected(server)) for _ in range(4)]
        for number, connection in enumerate(held):
            connection.sendall(HEAD % (path, 262_000) + b"\0" * 261_000)
            wait_until(partial(holds, memory, (number + 1) * 261_000))
        sleep(1.5)
        body = row(1.0, 5000)
        answer = Client(server.url)(path.decode(), "POST", body, content_type="application/octet-stream")
        assert answer.body == body
        answers = []
        for connection in held:
            connection.settimeout(0.2)
            try:
                answers.append(connection.recv(4096)[:12])
            except TimeoutError:
                answers.append(b"")
        assert sorted(answers) == [b"", b"", b"", b"HTTP/1.1 503"]  # no more of them than it takes
        assert refusals(server) == {"queue_full": 1}


def test_who_does_not_read_goes_first_where_memory_is_full(tiny: Path, impatient: None) -> None:
    body = row(1.0, 2_000_000)
    with served(tiny, QUICK_SWEEP) as (server, app), opened_by_who_never_reads(server.url) as connection:
        memory = app.direct.context.memory
        connection.settimeout(30)
        connection.sendall(HEAD % (PATHS[0], len(body)) + body)  # alone it is more than all may have together
        wait_until(lambda: memory.taken > 2**20 and not any(m.in_flight for m in app.engine.active()))
        sleep(1.5)
        assert ask(server).status == 200
        wait_until(lambda: not memory.taken)


def test_quick_clients_are_not_let_go(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SLOW_S", 60.0)  # however slow this machine is
    with served(tiny) as (server, app), connected(server) as one, connected(server) as other:
        memory = app.direct.context.memory
        for connection, count in ((one, 1), (other, 2)):
            connection.sendall(HEAD % (PATHS[0], 312_000) + b"\0" * 300_000)
            wait_until(partial(holds, memory, count * 300_000))
        assert ask(server, 1.0).status == 200
        refused = Client(server.url)(
            PATHS[0].decode(), "POST", row(1.0, 40_000), content_type="application/octet-stream"
        )
        assert refused.status == 503
        one.sendall(b"\0" * 12_000)
        assert one.recv(12) == b"HTTP/1.1 200"


def test_a_tenant_fills_no_more_than_its_part() -> None:
    memory = BodyMemory(800)
    memory.take(300, "a")
    assert memory.refusal(50, "a") is None  # less than half is taken
    memory.take(200, "b")
    told = memory.refusal(50, "a")
    assert isinstance(told, QueueFull)
    assert "`a`" in told.message
    assert memory.refusal(50, "c") is None
    memory.take(-300, "a")
    assert memory.refusal(100, "a") is None
    assert BodyMemory(800).refusal(9000, "a") is None  # who is alone has room


def test_a_tenants_bodies_are_counted_by_its_key(tiny: Path) -> None:
    settings = Settings(tenants={Tenant(name): [sha256(name.encode()).digest()] for name in ("a", "b")})
    limits = Limits(batch=BatchLimits(max_rows=0, max_wait_ms=1e6), max_bodies_bytes=2**20)
    app = create_app({"tiny": tiny}, limits=limits, settings=settings)
    with ServerThread(app) as server:
        ask(server, x_api_key="b")
        head = HEAD.replace(b"Host: x", b"Host: x\r\nX-Api-Key: a")
        memory = app.direct.context.memory
        with ExitStack() as stack:
            for number in range(2):
                connection = stack.enter_context(connected(server))
                connection.sendall(head % (PATHS[0], 240_000) + b"\0" * 200_000)
                wait_until(partial(holds, memory, (number + 1) * 200_000))
            statuses = {
                key: Client(server.url)(
                    PATHS[0].decode(), "POST", row(1.0, 5400), content_type="application/octet-stream", x_api_key=key
                ).status
                for key in ("a", "b")
            }
        assert statuses == {"a": 503, "b": 200}


# -- WebSockets --


@contextmanager
def streaming(server: ServerThread) -> Iterator[socket.socket]:
    with connected(server) as connection:
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(65536)
        yield connection


def close_code(connection: socket.socket) -> int:
    """The code of the close that the server sends, behind its answers to pings."""
    data = b""
    while b"\x88" not in data[-130:] or len(data) < 4:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    at = data.rindex(b"\x88")
    return int.from_bytes(data[at + 2 : at + 4], "big")


@pytest.mark.parametrize(
    ("frames", "code"),
    [(BEGIN + EMPTY * 5000, 1008), (BEGIN + BYTE * 5000, 1008), (PING * 5000, 1008)],
    ids=["empty fragments", "fragments of a byte", "pings"],
)
def test_a_flood_of_tiny_frames_ends_its_stream(tiny: Path, frames: bytes, code: int) -> None:
    with served(tiny) as (server, _), streaming(server) as connection:
        connection.sendall(frames)
        assert close_code(connection) == code
        assert refusals(server) == {"input_error": 1}


def test_a_message_in_many_pieces_is_one_message(tiny: Path) -> None:
    body = row(1.0, 30_000)[:-12] + row(2.0)
    data = FRAME.pack(1, 0, len(body)) + body
    pieces = [data[at : at + 1004] for at in range(0, len(data), 1004)]
    with served(tiny) as (server, _), streaming(server) as connection:
        for number, piece in enumerate(pieces):
            first = (0x02 if number == 0 else 0x00) | (0x80 if number == len(pieces) - 1 else 0)
            connection.sendall(bytes([first, 0xFE]) + len(piece).to_bytes(2, "big") + b"\0\0\0\0" + piece)
        got = b""
        while len(got) < len(data):
            got += connection.recv(1 << 20)
        assert got.endswith(body)


def test_a_message_of_empty_fragments_has_a_time(tiny: Path) -> None:
    with served(tiny, DoorLimits(body_timeout_s=0.3)) as (server, _), streaming(server) as connection:
        connection.sendall(BEGIN + EMPTY)
        assert close_code(connection) == 1008
        assert refusals(server) == {"request_timeout": 1}


def test_a_flood_is_read_in_short_turns(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of one stream the event loop looks at all others."""
    sizes: list[int] = []
    turns = [0]
    parse, take_turn = WebSocket._parse, WebSocket._take_turn

    def noted(self: WebSocket, data: bytes) -> None:
        sizes.append(len(data))
        parse(self, data)

    def counted(self: WebSocket) -> None:
        turns[0] += 1
        take_turn(self)

    monkeypatch.setattr(WebSocket, "_parse", noted)
    monkeypatch.setattr(WebSocket, "_take_turn", counted)
    monkeypatch.setattr(websocket, "_MAX_PINGS", 1e9)
    monkeypatch.setattr(websocket, "_TURN_S", 0.0)
    with served(tiny) as (server, _), streaming(server) as connection:
        connection.sendall(PING * 50_000)
        got = 0
        while got < 100_000:  # a pong has two bytes
            got += len(connection.recv(65536))
    assert max(sizes) <= 8192
    assert sum(sizes) == 300_000
    assert turns[0] >= 10


def test_pings_whose_answers_nobody_reads_are_not_read(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_MAX_PINGS", 1e9)
    ping = b"\x89\xfd\0\0\0\0" + b"a" * 125
    with served(tiny) as (server, app), opened_by_who_never_reads(server.url) as connection:
        connection.settimeout(30)
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(4096)
        connection.settimeout(3)
        rest = memoryview(ping * 200_000)
        with pytest.raises(TimeoutError):  # nothing more is taken; a slow server takes a little each time
            while rest:
                rest = rest[connection.send(rest) :]
        assert app.direct.context.memory.taken < 10 * 2**20
        assert ask(server).status == 200


def test_a_stream_begins_few_requests_in_a_pass_of_the_loop(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, begin = [0], Stream._begin
    begun: list[int] = []

    def count() -> None:
        passes[0] += 1
        asyncio.get_running_loop().call_soon(count)

    def noted(self: Stream, *frame: Any) -> None:
        if not begun:
            count()
        begun.append(passes[0])
        begin(self, *frame)

    monkeypatch.setattr(Stream, "_begin", noted)
    batch = BatchLimits(max_queue_size=10_000, max_wait_ms=1e6)
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(batch=batch))) as server, stream(server.url) as flooding:
        flooding.send(b"".join(raw(number, number) for number in range(200)))
        assert len(answers_of(flooding, 200)) == 200
    assert max(map(begun.count, begun)) <= 32


def test_nothing_is_begun_of_who_left(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, begin = [0], Stream._begin

    def leaving(self: Stream, *frame: Any) -> None:
        begun[0] += 1
        begin(self, *frame)
        self._leave()

    monkeypatch.setattr(Stream, "_begin", leaving)
    with served(tiny) as (server, _), stream(server.url) as left:
        left.send(b"".join(raw(number, number) for number in range(20)))
        wait_until(lambda: begun[0] > 0)
        assert ask(server).status == 200  # the loop is through with what arrived
    assert begun == [1]
