"""A model on a server over one WebSocket that threads share; answers are matched by number.

    edge_infer.load("ws://127.0.0.1:8080/v2/models/digits")

The frames are those of docs/guide/serve.md, "Streams"; only servers of edge-infer speak them.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from json import loads
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.backends.remote.reply import MAX_ANSWER_BYTES, Reply
from edge_infer.errors import BackendUnavailable, ExecutionError, FetchError, PayloadTooLarge
from edge_infer.formats.safetensors import FRAME

if TYPE_CHECKING:
    from websockets.http11 import Response
    from websockets.sync.client import ClientConnection

_OPEN_TIMEOUT_S = 30.0
_NUMBERS = 2**32
_OK, _REFUSED, _FAILED = 200, 400, 500
#: The close code of who was sent a message over its limit: RFC 6455 section 7.4.1.
_TOO_BIG = 1009


class _Waiting(NamedTuple):
    """A request that is not answered: the bytes of its message, and what becomes of it."""

    size: int
    answer: Future[Reply]


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
        self._waiting: dict[int, _Waiting] = {}
        self._connection: ClientConnection | None = None
        self._most: int | None = None  # the bytes that the server takes in a message, where it says so

    def post(self, _url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Reply:
        """Send a request and wait for its answer, as the remote backend's other ways do.

        A request that the connection was lost with is sent once more on a new one: the fault was another's, mostly.

        Returns:
            The answer; where the server opens no stream, its reason as HTTP gives it.

        Raises:
            FetchError: The server cannot be reached, or left before it answered.
            PayloadTooLarge: The server takes no message of that size.
        """
        from websockets.exceptions import InvalidStatus

        json_length = int(headers["Inference-Header-Content-Length"])
        try:
            with suppress(ConnectionAbortedError):
                return self._answered(body, json_length, timeout_s)
            return self._answered(body, json_length, timeout_s)
        except ConnectionAbortedError as error:
            raise self._lost(str(error)) from error
        except InvalidStatus as refused:
            return self._refusal(refused.response)

    def _answered(self, body: bytes, json_length: int, timeout_s: float) -> Reply:
        """Send a request and wait for its answer; `ConnectionAbortedError` where the connection ends before."""
        from websockets.exceptions import ConnectionClosed

        waiting = _Waiting(FRAME.size + len(body), Future())
        with self._lock:
            number = next(self._numbers) % _NUMBERS
            connection = self._opened()
            if self._most is not None and waiting.size > self._most:
                raise self._too_large(waiting.size)
            self._waiting[number] = waiting
        try:
            with suppress(ConnectionClosed):  # `_read` knows why
                # Sending is thread-safe; a server that reads no further makes this wait.
                connection.send(FRAME.pack(number, json_length, len(body) - json_length) + body)
            return waiting.answer.result(timeout_s)
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
                max_size=MAX_ANSWER_BYTES,
                open_timeout=_OPEN_TIMEOUT_S,
            ).__enter__()  # websockets 17.1 warns of any other use; what this returns is closed in `close`
        except InvalidStatus:  # `post` makes an answer of it
            raise
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise self._lost(str(error)) from error
        self._connection = connection
        announced = connection.response.headers.get("Max-Message-Bytes", "") if connection.response else ""
        self._most = int(announced) if announced.isdecimal() else None
        Thread(target=self._read, args=(connection,), name="edge-infer stream", daemon=True).start()
        return connection

    def _read(self, connection: ClientConnection) -> None:
        """Give each answer to who waits for it, until the connection ends."""
        from websockets.exceptions import ConnectionClosed

        reason, code = "the stream ended", None
        try:
            for message in connection:
                if not isinstance(message, bytes):
                    raise ExecutionError(f"{self._url} answered with text", hint="is it a server of edge-infer?")
                self._take(message)
        except ConnectionClosed as error:
            reason, code = str(error), error.rcvd.code if error.rcvd is not None else None
        except Exception as error:  # whatever it is, nobody may wait for ever
            reason = f"the answer cannot be read: {error}"
        with self._lock:
            if self._connection is connection:
                self._connection = None
            lost, self._waiting = self._waiting, {}
        connection.close()
        largest = max((one.size for one in lost.values()), default=0)
        for one in lost.values():
            if not one.answer.done():
                is_cause = code == _TOO_BIG and one.size == largest
                one.answer.set_exception(self._too_large(one.size) if is_cause else ConnectionAbortedError(reason))

    def _take(self, message: bytes) -> None:
        offset = 0
        while offset < len(message):
            number, json_length, tensor_length = FRAME.unpack_from(message, offset)
            start = offset + FRAME.size
            offset = start + json_length + tensor_length
            waiting = self._waiting.pop(number, None)
            if waiting is not None and not waiting.answer.done():
                waiting.answer.set_result(_reply(message[start:offset], json_length))

    def _lost(self, reason: str) -> FetchError:
        hint = "is the server running? `edge-infer serve`"
        return FetchError(f"{self._url} cannot be reached: {reason}", hint=hint, url=self._url)

    def _too_large(self, size: int) -> PayloadTooLarge:
        limit = f", the server takes {self._most}" if self._most is not None else ", more than the server takes"
        return PayloadTooLarge(
            f"The message has {size} bytes{limit}", hint="send smaller batches", expected=self._most, got=size
        )

    def _refusal(self, response: Response) -> Reply:
        """Return why the stream was not opened, as an answer of HTTP."""
        if response.status_code < _REFUSED:
            raise FetchError(
                f"{self._url} opens no stream: status {response.status_code}",
                hint="is it a server of edge-infer?",
                url=self._url,
                status=response.status_code,
            )
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        return Reply(response.status_code, headers, bytes(response.body or b""))

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
