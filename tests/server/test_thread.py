from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, NoReturn
from urllib.request import urlopen

import pytest

from edge_infer.errors import ServingError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.client import Client

if TYPE_CHECKING:
    from pathlib import Path


def test_a_server_answers_inside_its_block_and_is_gone_after_it() -> None:
    before = set(threading.enumerate())  # other tests keep a server for their whole session
    with ServerThread(create_app({})) as server, urlopen(f"{server.url}/health") as response:
        assert response.read() == b"OK"
    assert not [thread for thread in threading.enumerate() if thread not in before]
    host, _, port = server.url.removeprefix("http://").partition(":")
    with pytest.raises(OSError), socket.create_connection((host, int(port)), timeout=5):
        pass


def test_two_servers_live_side_by_side() -> None:
    with ServerThread(create_app({})) as first, ServerThread(create_app({})) as second:
        assert first.url != second.url
        assert Client(first.url)("/health").body == Client(second.url)("/health").body == b"OK"


def test_an_open_connection_does_not_keep_a_server_alive() -> None:
    with ServerThread(create_app({})) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        idle = socket.create_connection((host, int(port)))
    with idle:
        assert idle.recv(1) == b""


def test_a_server_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> NoReturn:
        raise RuntimeError("no")

    app = create_app({})
    monkeypatch.setattr(app, "lifespan", broken)
    with pytest.raises(ServingError, match="did not start"), ServerThread(app):
        pass


def test_pages_are_found_without_being_told(web_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_infer.server.app.find_web_root", lambda: web_root)
    with ServerThread(create_app({})) as server:
        assert Client(server.url)("/src/index.js").status == 200
