"""Requests in any pieces and pipelines get the answers that uvicorn gives for the same application."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from http.client import HTTPResponse
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.listener import listen, url_of
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, row
from tests.support.server.streams import answer, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.server.app import Application

INFER = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


#: Each request with its method, which tells whether its answer has a body.
REQUESTS: list[tuple[str, bytes]] = [
    ("GET", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("HEAD", b"HEAD /v2/models/tiny HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("GET", b"GET /v2/models/tiny?a=%20b HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("GET", b"GET /nothing/%C3%A9 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("PUT", b"PUT /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"),
    ("POST", INFER + b"Content-Length: 12\r\n\r\n" + row(1.0)),
    ("POST", INFER + b"Content-Length: 12000\r\n\r\n" + row(2.0, 1000)),
    ("POST", INFER + b"Content-Length: 11\r\n\r\n" + row(3.0)[:11]),
    ("POST", INFER + b"Content-Length: 0\r\n\r\n"),
    ("POST", INFER + b"Expect: 100-continue\r\nContent-Length: 12\r\n\r\n" + row(4.0)),
    ("POST", INFER + CHUNKED + chunked(row(5.0, 20), 7)),
    ("POST", INFER + CHUNKED + chunked(row(6.0, 9000), 4000)),
    ("POST", INFER.replace(b"/tiny/", b"/none/") + b"Content-Length: 12\r\n\r\n" + row(1.0)),
    ("POST", INFER.replace(b"octet-stream", b"json") + b"Content-Length: 2\r\n\r\n{}"),
]
#: What ends a connection.
LAST: list[tuple[str, bytes]] = [
    ("GET", b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    ("GET", b"GET /health HTTP/1.0\r\n\r\n"),
    ("POST", INFER + b"Connection: close\r\nContent-Length: 12\r\n\r\n" + row(8.0)),
]


@contextmanager
def served_by_uvicorn(app: Application) -> Iterator[int]:
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, http="httptools", server_header=False))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield int(url_of(listening).rpartition(":")[2])
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Those of our server and of uvicorn."""
    tiny = write_bundle(tmp_path_factory.mktemp("oracle") / "tiny", bundle_files())
    limits = Limits(batch=BatchLimits(max_rows=0))
    with (
        ServerThread(create_app({"tiny": tiny}, limits=limits)) as ours,
        served_by_uvicorn(create_app({"tiny": tiny}, limits=limits)) as theirs,
    ):
        Client(ours.url)("/v2/models/tiny/ready")
        Client(f"http://127.0.0.1:{theirs}")("/v2/models/tiny/ready")
        yield int(ours.url.rpartition(":")[2]), theirs


class Kept:
    """A connection's file that `HTTPResponse` does not close with the last byte of an answer."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def makefile(self, _mode: str) -> Kept:
        return self

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "close" else getattr(self.file, name)


def test_streams_and_refused_handshakes_are_those_of_any_asgi_server(ports: tuple[int, int]) -> None:
    for port in ports:
        url = f"http://127.0.0.1:{port}"
        with stream(url) as connection:
            connection.send(raw(1, 2.0))
            assert answer(connection.recv(30)) == (1, None, row(2.0))
            connection.send("a text")
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
        for path, code in (("/v2/models/none/stream", "model_not_found"), ("/nothing", "not_found")):
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://127.0.0.1:{port}{path}")
            assert refused.value.response.status_code == 404
            assert json.loads(bytes(refused.value.response.body or b""))["code"] == code


def answers(port: int, methods: list[str], pieces: list[bytes]) -> list[tuple[int, dict[str, str], bytes]]:
    """Send the pieces on one connection; read one answer for each method, and the end of the connection."""
    found = []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender = Thread(target=lambda: list(map(connection.sendall, pieces)), daemon=True)
        sender.start()
        file = Kept(connection.makefile("rb"))
        for method in methods:
            response = HTTPResponse(file, method=method)  # type: ignore[arg-type]
            response.begin()
            body = response.read()
            headers = {name.lower(): value for name, value in response.getheaders()}
            for name in ("date", "server-timing"):
                headers.pop(name, None)
            found.append((response.status, headers, body))
        assert file.read(1) == b""
        file.file.close()
        sender.join(30)
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_pipeline_in_any_pieces_is_answered_as_by_uvicorn(ports: tuple[int, int], data: st.DataObject) -> None:
    requests = [*data.draw(st.lists(st.sampled_from(REQUESTS), max_size=6)), data.draw(st.sampled_from(LAST))]
    sent = b"".join(request for _, request in requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True) if a < b]
    methods = [method for method, _ in requests]
    ours, theirs = (answers(port, methods, pieces) for port in ports)
    assert ours == theirs
