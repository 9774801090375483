"""A Hugging Face Hub of the tests: its list of files and its files, on loopback."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Files of at least so many bytes are stored as large ones are: with a sha256, and behind a redirect.
LARGE = 10_000


class Hub:
    """Serves one repository, `owner/name`; use it in a `with` statement.

    Args:
        files: Its files by path.
        token: What a request must bring; empty for a public repository.

    Attributes:
        listed: What the list says, to be changed.
        asked: The method, path and token of each request.
    """

    def __init__(self, files: dict[str, bytes], token: str = "") -> None:
        self.files = files
        self.token = token
        self.listed: list[dict[str, Any]] = [_entry(path, data) for path, data in files.items()]
        self.commit = COMMIT
        self.asked: list[tuple[str, str, str]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            def do_HEAD(self) -> None:
                hub.answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Another origin, as the Hub's store of large files is.
        self._store = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.store_url = f"http://127.0.0.1:{self._store.server_address[1]}"

    def __enter__(self) -> Self:
        for one in (self._server, self._store):
            threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._server, self._store):
            one.shutdown()
            one.server_close()

    def fetched(self) -> list[str]:
        """Return the files that were asked for."""
        found = set()
        for method, path, _ in self.asked:
            _, _, name = path.partition("/store/" if path.startswith("/store/") else f"/resolve/{COMMIT}/")
            if method == "GET" and name:
                found.add(unquote(name))
        return sorted(found)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request as the Hub does."""
        path, _, _ = request.path.partition("?")
        token = request.headers.get("Authorization", "")
        self.asked.append((request.command, path, token))
        if path.startswith("/store/"):
            self._send(request, 200, self.files[unquote(path.removeprefix("/store/"))], {})
            return
        if self.token and token != f"Bearer {self.token}":
            self._send(request, 401, b"{}", {})
        elif path in ("/api/models/owner/name/revision/main", f"/api/models/owner/name/revision/{COMMIT}"):
            said = {"id": "owner/name", "sha": self.commit, "siblings": self.listed}
            self._send(request, 200, json.dumps(said).encode(), {"Content-Type": "application/json"})
        elif path.startswith(f"/owner/name/resolve/{COMMIT}/"):
            name = unquote(path.removeprefix(f"/owner/name/resolve/{COMMIT}/"))
            self._file(request, name)
        else:
            self._send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _file(self, request: BaseHTTPRequestHandler, name: str) -> None:
        data = self.files[name]
        headers = {"X-Repo-Commit": COMMIT}
        entry = _entry(name, data)
        if "lfs" in entry:
            headers |= {"X-Linked-Etag": f'"{entry["lfs"]["sha256"]}"', "X-Linked-Size": str(len(data))}
            self._send(request, 302, b"", {**headers, "Location": f"{self.store_url}/store/{name}"})
        else:
            self._send(request, 200, data, {**headers, "ETag": f'"{entry["blobId"]}"'})

    def _send(self, request: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str]) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(data)


def folder_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their path in it."""
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def _entry(path: str, data: bytes) -> dict[str, Any]:
    git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git}
    if len(data) >= LARGE:
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry
