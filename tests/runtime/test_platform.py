"""What differs by place: fetching natively."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import FetchError, Unauthorized
from edge_infer.platform import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Seen(BaseHTTPRequestHandler):
    """Answers what it was sent as `Authorization`, sends elsewhere, refuses, or hangs up in the middle."""

    elsewhere = ""
    keys: list[str | None]
    refusal = b""

    def do_GET(self) -> None:
        self.keys.append(self.headers.get("Authorization"))
        if self.path.startswith("/refused"):
            self.send_response(401)
            self.send_header("Content-Length", str(len(self.refusal)))
            self.end_headers()
            self.wfile.write(self.refusal)
            return
        place = {
            "/away": f"{self.elsewhere}/here",
            "/near": "/here",
            "/moved/manifest.json": f"{self.elsewhere}/refused",
        }.get(self.path)
        body = (self.headers.get("Authorization") or "nothing").encode()
        missing = 500 if self.path == "/short" else 0
        self.send_response(302 if place else 200)
        if place:
            self.send_header("Location", place)
        self.send_header("Content-Length", str(len(body) + missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def servers() -> Iterator[list[str]]:
    """Two servers: the first one's `/away` leads to the second."""
    made = [ThreadingHTTPServer(("127.0.0.1", 0), Seen) for _ in range(2)]
    threads = [Thread(target=server.serve_forever, args=(0.05,)) for server in made]
    for thread in threads:
        thread.start()
    urls = [f"http://127.0.0.1:{server.server_port}" for server in made]
    Seen.elsewhere, Seen.keys = urls[1], []
    yield urls
    for server, thread in zip(made, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_key_goes_with_a_redirect_of_the_same_server_and_to_no_other(servers: list[str]) -> None:
    key = {"Authorization": "Bearer SECRET"}

    assert fetch.fetch(f"{servers[0]}/near", headers=key) == b"Bearer SECRET"
    assert fetch.fetch(f"{servers[0]}/away", headers=key) == b"nothing"


def test_an_answer_that_breaks_off_is_refused(servers: list[str]) -> None:
    with pytest.raises(FetchError, match=r"cannot be reached: .*7 bytes read, 500 more expected"):
        fetch.fetch(f"{servers[0]}/short")


def test_the_key_of_the_environment_goes_to_no_server_but_one_of_ours_that_asks_for_it(
    servers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_INFER_API_KEY", "SECRET")

    Bundle.open(f"{servers[0]}/net.onnx")
    with pytest.raises(FetchError, match="status 401"):
        Bundle.open(f"{servers[0]}/refused")
    assert Seen.keys == [None, None]
    monkeypatch.setattr(Seen, "refusal", b'{"error": "no key", "code": "unauthorized", "hint": ""}')
    with pytest.raises(Unauthorized, match="no key"):
        Bundle.open(f"{servers[0]}/refused")
    assert Seen.keys[2:] == [None, "Bearer SECRET"]
    with pytest.raises(Unauthorized):
        Bundle.open(f"{servers[0]}/moved")
    assert Seen.keys[4:] == [None, None, "Bearer SECRET", None], "the server that it was sent on to gets none"
