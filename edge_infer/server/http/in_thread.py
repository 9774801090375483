"""A server in a thread of this process, on a free port of the loopback address: for tests and for driven browsers."""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import TYPE_CHECKING

from edge_infer.errors import ServingError
from edge_infer.server.http.listener import listen, url_of
from edge_infer.server.http.server import Server

if TYPE_CHECKING:
    from typing import Self

    from edge_infer.server.http.listener import Tls
    from edge_infer.server.http.server import Served

log = logging.getLogger(__name__)
_TIMEOUT_S = 30.0


class ServerThread:
    """Serves an application while the context lasts.

    Args:
        app: The application.
        tls: The certificate; None for unencrypted.

    Attributes:
        url: Where it answers: `http://127.0.0.1:PORT`, without a `/` at its end.
        server: The server.

    >>> with ServerThread(create_app({})) as server:
    ...     urlopen(f"{server.url}/health").read()
    b'OK'
    """

    def __init__(self, app: Served, tls: Tls | None = None) -> None:
        self._app = app
        self._tls = tls
        self._ready = Event()
        self.url = ""

    def __enter__(self) -> Self:
        self.server = Server(self._app, self._ready.set, tls=self._tls)
        self._socket = listen("127.0.0.1", 0)
        self.url = url_of(self._socket, "http" if self._tls is None else "https")
        self._thread = Thread(target=self._run, name="edge-infer server", daemon=True)
        self._thread.start()
        if not self._ready.wait(_TIMEOUT_S) or not self.server.is_started:
            self.__exit__()
            raise ServingError("The server did not start", hint="see the log")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self._thread.join(_TIMEOUT_S)
        self._socket.close()

    def _run(self) -> None:
        try:
            self.server.run(self._socket)
        except Exception:
            log.exception("The server failed")
        finally:
            self._ready.set()
