"""A web server over a store, well or badly behaved."""

from __future__ import annotations

import contextlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Host:
    """A web server over a folder; a test sets how it behaves.

    Attributes:
        url: Where it answers.
        asked: The path and the Range header of each request.
        ranges: Whether it knows ranges.
        change: Changes the answer of a path: takes the status, headers and body, returns them.
    """

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, str]] = []
        self.ranges = True
        self.change: Callable[[str, Answer], Answer] = lambda _path, answer: answer
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, wanted = self.path.lstrip("/"), self.headers.get("Range", "")
                host.asked.append((path, wanted))
                answer = host.answer(folder, path, wanted)
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                with contextlib.suppress(ConnectionError):  # a client that gave up
                    self.end_headers()
                    self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, folder: Path, path: str, wanted: str) -> Answer:
        if not (folder / path).is_file():
            return self.change(path, Answer(404, {}, b""))
        body = (folder / path).read_bytes()
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            said = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
            return self.change(path, Answer(206, said, body[start:]))
        return self.change(path, Answer(200, {}, body))


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
