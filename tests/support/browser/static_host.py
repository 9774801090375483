"""A host of static files, as anybody has one: it knows nothing of models."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

#: What makes a page cross-origin isolated.
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
#: What lets pages of other origins have the files.
SHARED = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}


class StaticHost:
    """Serves a folder on this machine, while the context lasts.

    Args:
        folder: What lies at `/`.
        headers: What is sent with each file.

    Attributes:
        url: Its origin.
        asked: The paths that were asked for.
    """

    def __init__(self, folder: Path, headers: dict[str, str] | None = None) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def end_headers(self) -> None:
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                super().end_headers()

            def log_message(self, *_: Any) -> None:
                outer.asked.append(self.path)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
