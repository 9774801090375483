"""A model on a server, over the Open Inference Protocol v2: the same Session, computed elsewhere.

    edge_infer.load("http://127.0.0.1:8080/v2/models/digits")

`ws://` in the place of `http://` sends all requests over one WebSocket, many at once (`remote_stream`). A server that
wants an API key gets that of the environment, `EDGE_INFER_API_KEY`. Over HTTP a span of OpenTelemetry
that is open here is the parent of the server's.

Tensors travel as bytes behind the JSON (the extension for binary tensors). A server that is full says when to come
back, and is asked again then. Any v2 server will do; errors of ours arrive as the class that they left as.
"""

from __future__ import annotations

import json
import sys
from time import monotonic, sleep
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability, Backend, Placement, Runnable
from edge_infer.backends.remote.reply import MAX_ANSWER_BYTES, Reply
from edge_infer.errors import (
    BundleError,
    EdgeInferError,
    ExecutionError,
    FetchError,
    QueueFull,
    ServingError,
    Unauthorized,
    UnsupportedError,
    UnsupportedModel,
    error_from_json,
)
from edge_infer.formats.safetensors import read_strings, write_strings
from edge_infer.platform import fetch, host
from edge_infer.tensors.arrays import to_tensor, writable_bytes
from edge_infer.tensors.datatypes import DATATYPES, DTYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from http.client import HTTPConnection

    from edge_infer.backends.remote.websocket import StreamConnection
    from edge_infer.bundle.variant import Variant
    from edge_infer.tensors.tensor import Array

#: How long an answer may take in all, waits included, and how often a full server is asked.
_TIMEOUT_S = 60.0
_ATTEMPTS = 5
_MAX_WAIT_S = 30.0
#: The most bytes of a description; a model with thousands of tensors has some hundred kB.
_MAX_DOCUMENT_BYTES = 16 * 2**20
_OK = 200
#: Python reads no number of thousands of digits, and no length has as many as this.
_MAX_DIGITS = 18
#: Come back later: over a share, or full.
_LATER = (429, 503)


class RemoteBackend(Backend):
    """The adapter of v2 servers."""

    name = "remote"
    formats = ("v2",)

    def availability(self) -> Availability:
        """Say that a server may be asked from anywhere."""
        return Availability(True, ("remote",))

    def version(self) -> str:
        """Return the version of the protocol."""
        return "v2"

    async def start(self) -> None:
        """Do nothing: the server runs already."""

    def prepare(
        self,
        model: str | bytes,  # noqa: ARG002  as the contract says
        variant: Variant,
        *,
        device: str,  # noqa: ARG002
        options: Mapping[str, str],  # noqa: ARG002
    ) -> RemoteModel:
        """Refuse: a remote model is opened by its URL."""
        raise UnsupportedModel(
            f"`{variant.file}` is a file, backend `remote` takes URLs of models",
            hint='edge_infer.load("http://127.0.0.1:8080/v2/models/NAME")',
        )


class RemoteModel(Runnable):
    """A model on a server.

    Args:
        url: `http://HOST/v2/models/NAME`, with or without `/versions/VERSION`; `ws://` for a stream.
        post: Sends a body: (url, body, headers, timeout in seconds) -> reply. None for this place's own way.
        pause: Waits some seconds.
        headers: What each request carries; None for the environment's API key.

    Attributes:
        name: What the server calls the model.
        version: The newest version it names.
    """

    is_thread_safe = True

    def __init__(
        self,
        url: str,
        post: Callable[[str, bytes, dict[str, str], float], Reply] | None = None,
        pause: Callable[[float], None] = sleep,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        url = url.rstrip("/")
        self._url = f"http{url[2:]}" if url.startswith("ws") else url
        self._headers = dict(fetch.api_key() if headers is None else headers)
        self._connections = _connections(url, self._headers)
        self._post = post or (_post_in_page if host.in_browser() else self._connections.post)
        self._pause = pause
        document = _json(fetch.fetch(self._url, _MAX_DOCUMENT_BYTES, self._headers), self._url)
        try:
            self.name = str(document["name"])
            self.version = str((document.get("versions") or ["1"])[-1])
            self.inputs = tuple(_spec(entry) for entry in document["inputs"])
            self.outputs = tuple(_spec(entry) for entry in document["outputs"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BundleError(f"{self._url} does not describe a model: {error!r}", hint="is it a v2 server?") from error
        self.placement = Placement("remote", 0, (self._url,))

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. The server keeps no tensors: they are host tensors, sent with each run."""
        del keep
        body, json_length = _request(feeds, outputs)
        reply = self._ask(body, {"Inference-Header-Content-Length": str(json_length)})
        results = _answer(reply, self._url)
        missing = [name for name in outputs if name not in results]
        if missing:
            raise ExecutionError(f"{self._url} left out the output `{missing[0]}`", hint="ask the server's operator")
        for name, target in into.items():
            if name in results:
                made = results[name]
                writable_bytes(name, target, made.dtype, made.shape)[:] = made.data()
                results[name] = target
        return {name: results[name] for name in outputs}

    def _ask(self, body: bytes, headers: dict[str, str]) -> Reply:
        """Send a request, and again where the server was full; inference may be repeated without harm."""
        end = monotonic() + _TIMEOUT_S
        headers = {**self._headers, **headers, **_trace(), "Content-Type": "application/octet-stream"}
        for attempt in range(1, _ATTEMPTS + 1):
            reply = self._post(f"{self._url}/infer", body, headers, max(1.0, end - monotonic()))
            if reply.status == _OK:
                return reply
            wait_s = _retry_after(reply.headers.get("retry-after"))
            if reply.status not in _LATER or attempt == _ATTEMPTS or monotonic() + wait_s > end:
                break
            self._pause(wait_s)
        raise _error(reply, self._url)

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> RemoteCall:
        """Make a call with buffers of these shapes; see `Runnable.bind`."""
        return RemoteCall(self, shapes)

    def close(self) -> None:
        """Close the connections; the model stays on its server."""
        self._connections.close()


class RemoteCall:
    """A run of a remote model on input buffers that are used again."""

    def __init__(self, model: RemoteModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._model = model
        self._values: dict[str, Array] = {}
        for spec in model.inputs:
            shape = shapes[spec.name]
            empty: Any = [""] * _size(shape) if spec.dtype is DType.STRING else bytearray(spec.dtype.nbytes(shape))
            self._values[spec.name] = Tensor(empty, spec.dtype, shape)
        self.inputs: Mapping[str, Array] = MappingProxyType(self._values)
        self.outputs: dict[str, Array] = {}

    def write(self, name: str, value: Array) -> None:
        """Put a value into an input."""
        self._values[name] = value if isinstance(value, Tensor) else to_tensor(value)

    def run(self) -> None:
        """Run the model on what the inputs hold."""
        self.outputs = self._model.run(self._values, [spec.name for spec in self._model.outputs], {}, ())

    def close(self) -> None:
        """Give the buffers back."""
        self._values.clear()
        self.outputs = {}


class _Connections:
    """Connections to one server that are kept alive, as many as threads ask at once."""

    def __init__(self) -> None:
        self._idle: list[HTTPConnection] = []  # appending and popping are atomic

    def post(self, url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Reply:
        """Send a body; an idle connection that the server closed meanwhile is opened again."""
        from http.client import HTTPConnection, HTTPException, HTTPSConnection
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        while True:
            is_new = not self._idle
            try:
                connection = self._idle.pop()
            except IndexError:
                kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
                is_new, connection = True, kind(parts.netloc, timeout=timeout_s)
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                length = response.length  # None where the server does not say
                data = b"" if (length or 0) > MAX_ANSWER_BYTES else response.read(MAX_ANSWER_BYTES + 1)
            except (OSError, HTTPException) as error:
                connection.close()
                if is_new or isinstance(error, TimeoutError):
                    raise FetchError(
                        f"{url} cannot be reached: {error}", hint="is the server running? `edge-infer serve`", url=url
                    ) from error
                continue
            if len(data) > MAX_ANSWER_BYTES or (length is not None and len(data) < length):
                connection.close()
                raise _unfit(url, length, len(data))
            found = {name.lower(): value for name, value in response.getheaders()}
            if response.will_close:
                connection.close()
            else:
                self._idle.append(connection)
            return Reply(response.status, found, data)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()


def _connections(url: str, headers: dict[str, str]) -> _Connections | StreamConnection:
    """Make what carries requests natively: connections of HTTP, or one stream."""
    if not url.startswith("ws"):
        return _Connections()
    if host.in_browser():
        raise UnsupportedError("Python in a page has no streams", hint=f"http{url[2:]}")
    from edge_infer.backends.remote.websocket import StreamConnection

    return StreamConnection(url, headers)


def _unfit(url: str, length: int | None, got: int) -> FetchError:
    """Describe an answer that is too long, or was cut."""
    if length is not None and length <= MAX_ANSWER_BYTES:
        return FetchError(f"{url} broke off after {got} of {length} bytes", hint="try again", url=url)
    return FetchError(
        f"{url} answers with more than {MAX_ANSWER_BYTES} bytes",
        hint="send fewer rows in a request",
        url=url,
        expected=MAX_ANSWER_BYTES,
    )


def _post_in_page(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Reply:
    return Reply(*fetch.post_in_page(url, body, headers, timeout_s))


def _request(feeds: Mapping[str, Array], outputs: Sequence[str]) -> tuple[bytes, int]:
    entries, chunks = [], []
    for name, value in feeds.items():
        tensor = (value if isinstance(value, Tensor) else to_tensor(value)).to_host()
        data = write_strings(tensor) if tensor.dtype is DType.STRING else tensor.data()
        chunks.append(data)
        entries.append(
            {
                "name": name,
                "shape": list(tensor.shape),
                "datatype": DATATYPES[tensor.dtype],
                "parameters": {"binary_data_size": len(data)},
            }
        )
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps({"inputs": entries, "outputs": wanted}).encode()
    return b"".join((head, *chunks)), len(head)


def _answer(reply: Reply, url: str) -> dict[str, Tensor]:
    length = reply.headers.get("inference-header-content-length", "")
    json_length = int(length) if length.isdecimal() and len(length) <= _MAX_DIGITS else len(reply.body)
    document = _json(reply.body[:json_length], url)
    tail, offset = memoryview(reply.body)[json_length:], 0
    results: dict[str, Tensor] = {}
    try:
        for entry in document["outputs"]:
            dtype, shape = DTYPES[entry["datatype"]], tuple(entry["shape"])
            size = (entry.get("parameters") or {}).get("binary_data_size")
            if size is None:
                flat = Tensor.from_list(entry["data"], dtype)
                results[entry["name"]] = flat.reshape(*shape) if shape else flat.reshape(())
                continue
            data = tail[offset : offset + size]
            offset += size
            results[entry["name"]] = Tensor(read_strings(data) if dtype is DType.STRING else data, dtype, shape)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ExecutionError(f"{url} answered in a form that is not v2: {error}", hint="is it a v2 server?") from error
    return results


def _trace() -> dict[str, str]:
    """Return the headers that name the caller's trace (`traceparent`, `tracestate`), where OpenTelemetry runs here."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def _error(reply: Reply, url: str) -> EdgeInferError:
    """Rebuild the server's error; that of another server becomes one of ours by its status."""
    try:
        document = json.loads(reply.body)
        text = str(document["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        document, text = {}, f"status {reply.status}"
    if isinstance(document, dict) and "code" in document:
        return error_from_json(document)
    kind = {400: ExecutionError, 401: Unauthorized, 429: QueueFull, 503: QueueFull}.get(reply.status, ServingError)
    return kind(f"{url} answers: {text}", status=reply.status)


def _retry_after(value: str | None) -> float:
    try:
        wait_s = float(value or 1)
        return min(wait_s, _MAX_WAIT_S) if wait_s > 0 else 0.0  # no number is not more than 0
    except ValueError:
        return 1.0


def _json(data: bytes, url: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ExecutionError(f"{url} answered with something that is not JSON", hint="is it a v2 server?") from error
    if not isinstance(document, dict):
        raise ExecutionError(f"{url} answered with JSON that is not an object", hint="is it a v2 server?")
    return document


def _spec(entry: dict[str, Any]) -> TensorSpec:
    name = str(entry["name"])
    shape = [
        dim if dim >= 0 else ("batch" if axis == 0 else f"{name}_{axis}") for axis, dim in enumerate(entry["shape"])
    ]
    return TensorSpec(name, DTYPES[entry["datatype"]], shape)


def _size(shape: Sequence[int]) -> int:
    from math import prod

    return prod(shape)
