"""A model on a server over one WebSocket: threads send as they like, answers find their way back by number.

    edge_infer.load("ws://127.0.0.1:8080/v2/models/digits")

The frames are those of docs/guide/serve.md, "Streams"; only servers of edge-infer speak them.
"""

from __future__ import annotations

from concurrent.futures import Future
from itertools import count
from json import loads
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from edge_infer.backends.remote import Reply
from edge_infer.codec import FRAME
from edge_infer.errors import BackendUnavailable, ExecutionError, FetchError

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_OPEN_TIMEOUT_S = 30.0
_NUMBERS = 2**32
_OK, _FAILED = 200, 500


class StreamConnection:
    """A connection that many threads share; it is opened again when it was lost, and stays open until it is closed.

    Args:
        url: `ws://HOST/v2/models/NAME` or `wss://…`, with or without `/versions/VERSION`.
        headers: What the handshake carries.

    Raises:
        BackendUnavailable: The package `websockets` is not installed.
    """

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        try:
            import websockets.sync.client  # noqa: F401
        except ImportError as error:
            raise BackendUnavailable(
                "Streams need the package websockets, which is not installed here", hint="pip install websockets"
            ) from error
        self._url = f"{url}/stream"
        self._headers = headers or {}
        self._lock = Lock()
        self._numbers = count()
        self._waiting: dict[int, Future[Reply]] = {}
        self._connection: ClientConnection | None = None

    def post(self, _url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Reply:
        """Send a request and wait for its answer, as the remote backend's other ways do.

        Raises:
            FetchError: The server cannot be reached, or left before it answered.
        """
        from websockets.exceptions import ConnectionClosed

        json_length = int(headers["Inference-Header-Content-Length"])
        future: Future[Reply] = Future()
        with self._lock:
            number = next(self._numbers) % _NUMBERS
            connection = self._opened()
            self._waiting[number] = future
        try:
            # Sending is thread-safe; a server that reads no further makes this wait.
            connection.send(FRAME.pack(number, json_length, len(body) - json_length) + body)
            return future.result(timeout_s)
        except ConnectionClosed as error:
            raise self._lost(str(error)) from error
        except TimeoutError as error:
            raise self._lost(f"no answer within {timeout_s:.0f} s") from error
        finally:
            self._waiting.pop(number, None)

    def _opened(self) -> ClientConnection:
        from websockets.exceptions import InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        if self._connection is not None:
            return self._connection
        try:
            connection = connect(
                self._url,
                additional_headers=self._headers,
                compression=None,
                max_size=None,
                open_timeout=_OPEN_TIMEOUT_S,
            ).__enter__()  # websockets 17.1 warns of any other use; what this returns is closed in `close`
        except InvalidStatus as error:
            raise self._lost(f"status {error.response.status_code}") from error
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise self._lost(str(error)) from error
        self._connection = connection
        Thread(target=self._read, args=(connection,), name="edge-infer stream", daemon=True).start()
        return connection

    def _read(self, connection: ClientConnection) -> None:
        """Give each answer to who waits for it, until the connection ends."""
        from websockets.exceptions import ConnectionClosed

        reason = "the stream ended"
        try:
            for message in connection:
                if not isinstance(message, bytes):
                    raise ExecutionError(f"{self._url} answered with text", hint="is it a server of edge-infer?")
                self._take(message)
        except ConnectionClosed as error:
            reason = str(error)
        except Exception as error:  # whatever it is, nobody may wait for ever
            reason = f"the answer cannot be read: {error}"
        with self._lock:
            if self._connection is connection:
                self._connection = None
            lost, self._waiting = self._waiting, {}
        connection.close()
        for future in lost.values():
            if not future.done():
                future.set_exception(self._lost(reason))

    def _take(self, message: bytes) -> None:
        offset = 0
        while offset < len(message):
            number, json_length, tensor_length = FRAME.unpack_from(message, offset)
            start = offset + FRAME.size
            offset = start + json_length + tensor_length
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(_reply(message[start:offset], json_length))

    def _lost(self, reason: str) -> FetchError:
        hint = "is the server running? `edge-infer serve`"
        return FetchError(f"{self._url} cannot be reached: {reason}", hint=hint, url=self._url)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _reply(body: bytes, json_length: int) -> Reply:
    """Return an answer in the form of HTTP: an error carries its status."""
    status = _OK
    if json_length == len(body):
        document: Any = loads(body)
        if isinstance(document, dict) and "error" in document:
            status = int(document.get("status", _FAILED))
    return Reply(status, {"inference-header-content-length": str(json_length)}, body)
