"""A server that stops while models hang, load and answer streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from websockets.exceptions import ConnectionClosed

from edge_infer.formats.safetensors import FRAME
from edge_infer.server.app import Application, Limits, create_app
from edge_infer.server.execution import lifecycle
from edge_infer.server.execution.repository import ServedModel
from edge_infer.server.http.connections import Connections
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.listener import listen, url_of
from edge_infer.server.http.server import Server
from edge_infer.server.http.websocket import WebSocket
from edge_infer.server.ingestion.memory_budget import BodyMemory
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, row
from tests.support.server.streams import UPGRADE, masked, opened_by_who_never_reads, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server.gate import Gate

WORKERS = 4
FAREWELL = b"\x88\x82\0\0\0\0" + (1000).to_bytes(2, "big")


def test_one_grace_and_one_wait_are_all_that_what_hangs_costs(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, release = Event(), Event()
    load = ServedModel.loaded

    def hang(self: ServedModel, *place: Any) -> Any:
        if self.name == "slow":
            loading.set()
            assert release.wait(60)
        return load(self, *place)

    def ask(name: str) -> None:
        with suppress(OSError, HTTPException):  # its connection is cut in the end
            Client(url)(f"/v2/models/{name}/infer", "POST", row(1.0), content_type="application/octet-stream")

    monkeypatch.setattr(ServedModel, "loaded", hang)
    monkeypatch.setattr(lifecycle, "CLOSE_S", 0.5)
    models = {name: write_bundle(tmp_path / name, bundle_files(name)) for name in ("tiny", "slow")}
    app = create_app(models, limits=Limits(WORKERS, BatchLimits(max_batch_size=1, max_wait_ms=1e6)))
    ready = Event()
    server = Server(app, ready.set, grace_s=1)
    listening = listen("127.0.0.1", 0)
    url = url_of(listening)
    serving = Thread(target=server.run, args=[listening], daemon=True)
    serving.start()
    assert ready.wait(60)
    with ThreadPoolExecutor(WORKERS + 1) as threads, stream(url) as connection:
        for name in ("slow", *["tiny"] * WORKERS):
            threads.submit(ask, name)
        connection.send(raw(1, 1.0))
        assert loading.wait(60)
        wait_until(lambda: len(gate.sizes) >= WORKERS)
        (model,) = app.engine.active()
        server.stop()
        serving.join(15)  # 5 s for each worker and the load would be much more
        assert not serving.is_alive()
        assert "on closed" not in repr(model.session)  # it computes still
        with pytest.raises(ConnectionClosed):
            connection.recv()
        gate.open.set()
        release.set()


def test_a_client_that_said_farewell_and_reads_no_answers_ends_no_drain(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_left, is_closing = Event(), Event()
    feed, shut = WebSocket.feed, Connections.shutdown

    def note_farewell(self: WebSocket, data: bytes) -> None:
        feed(self, data)
        if data[0] == FAREWELL[0]:
            has_left.set()

    def note_shutdown(self: Connections) -> None:
        shut(self)
        is_closing.set()

    monkeypatch.setattr(WebSocket, "feed", note_farewell)
    monkeypatch.setattr(Connections, "shutdown", note_shutdown)
    app = create_app(
        {"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=Limits(batch=BatchLimits(max_rows=0))
    )
    gate.open.set()
    with ThreadPoolExecutor(1) as threads, ServerThread(app) as server:
        send = Client(server.url)
        send("/v2/models/tiny/ready")
        with opened_by_who_never_reads(server.url) as connection:
            connection.settimeout(60)
            connection.sendall(UPGRADE)
            assert b" 101 " in connection.recv(4096)
            connection.sendall(masked(FRAME.pack(1, 0, 3_600_000) + row(1.0, 300_000)))
            wait_until(lambda: app.engine.active()[0].statistics.requests)
            connection.sendall(FAREWELL)
            assert has_left.wait(60)
            gate.open.clear()
            octets = {"content_type": "application/octet-stream"}
            asked = threads.submit(send, "/v2/models/tiny/infer", "POST", row(2.0), **octets)
            wait_until(lambda: 2.0 in gate.values)
            server.server.stop()
            assert is_closing.wait(60)
            gate.open.set()
            assert asked.result().body == row(2.0)


def stopping(app: Application, drain_delay_s: float) -> tuple[Server, str, Thread]:
    """Start a server and tell it to stop."""
    ready = Event()
    server = Server(app, ready.set, drain_delay_s=drain_delay_s)
    listening = listen("127.0.0.1", 0)
    serving = Thread(target=server.run, args=[listening], daemon=True)
    serving.start()
    assert ready.wait(60)
    server.stop()
    wait_until(lambda: server.connections.is_stopping)
    return server, url_of(listening), serving


def test_a_stopping_server_answers_new_connections_for_a_while(tmp_path: Path) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    server, url, serving = stopping(app, drain_delay_s=60.0)

    for path, method, body in (("/readyz", "GET", b""), ("/v2/models/tiny/infer", "POST", row(1.0))):
        answer = Client(url)(path, method, body, content_type="application/octet-stream")
        assert (answer.status, answer.headers["connection"]) == (503, "close")

    server.stop()  # the second time is for now
    serving.join(30)
    assert not serving.is_alive()


def test_after_its_delay_a_stopping_server_ends(tmp_path: Path) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    _, url, serving = stopping(app, drain_delay_s=0.2)
    serving.join(30)
    assert not serving.is_alive()
    with pytest.raises(OSError, match="refused"):
        Client(url)("/readyz")


def test_a_stream_whose_closing_fails_ends_no_drain() -> None:
    carrier: Any = Mock()
    carrier.shared.after.return_value = 0.0
    socket = WebSocket(carrier, UPGRADE, BodyMemory(), 1000, Counter())
    asyncio.run(socket.accept([]))
    carrier.transport.write.side_effect = AssertionError
    carrier.transport.is_closing.return_value = False
    socket.shutdown()
    carrier.transport.abort.assert_called_once()
