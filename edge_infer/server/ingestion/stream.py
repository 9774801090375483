"""Streams: `/v2/models/NAME/stream`, a WebSocket that carries many requests at once.

A message is binary and holds one or more frames. A frame is twelve bytes (`edge_infer.codec.FRAME`: the client's
number of the request, the bytes of JSON, the bytes of tensors), the JSON of a v2 request, and the bytes of its tensors;
without JSON it is nothing but the bytes of the only input. The answer has the same number and form; an error is JSON.
Answers come as they are done, in no order; those of a batch come in one message, which saves most of what it costs.

Each stream may have so many requests, and so many bytes of requests and answers, in flight; beyond that its messages
are not read, so that TCP slows the client down. A message costs no task and no future: what a batch has computed is
written by one writer for each stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.codec import FRAME
from edge_infer.errors import EdgeInferError, QueueFull
from edge_infer.server.ingestion.bodies import LARGE_BYTES
from edge_infer.server.ingestion.head import RequestHead
from edge_infer.server.ingestion.origins import check_origin
from edge_infer.server.ingestion.waiting import submit
from edge_infer.server.problems import InternalError, ShuttingDown, problem_parts, status_of
from edge_infer.server.response.joining import joined
from edge_infer.server.response.writing import octets, write_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

    from edge_infer.server.execution.engine import Engine
    from edge_infer.server.execution.loaded import LoadedModel
    from edge_infer.server.ingestion.keys import ApiKeys
    from edge_infer.server.ingestion.parsers import Parsers
    from edge_infer.server.protocol import InferRequest
    from edge_infer.server.response.spans import Spans
    from edge_infer.server.scheduling.request import Answer
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)
#: How many requests of one stream may be in flight, and how many streams there may be.
MAX_IN_FLIGHT = 256
MAX_STREAMS = 1024
#: How many bytes of one stream may be in flight, the requests that are not answered and the answers that are not sent;
#: the message that goes beyond it is the last that is read.
MAX_STREAM_BYTES = 32 * 2**20
#: How many bodies of JSON are parsed in threads at once, of all streams.
_MAX_PARSING = 4
#: WebSocket close codes, RFC 6455 section 7.4.1.
_GOING_AWAY, _NO_TEXT, _BAD_PAYLOAD = 1001, 1003, 1007
_HEAD = FRAME.size


class StreamEndpoint:
    """Answers streams.

    Args:
        engine: The models.
        parsers: Reads requests for a model.
        headers: What every answer of HTTP carries.
        keys: Tells who asks.
        origins: The other servers whose pages may open streams.
        max_streams: How many streams there may be.
        max_in_flight: How many requests of one may be in flight.
        spans: Tells a tracer of each request.
    """

    def __init__(
        self,
        engine: Engine,
        parsers: Parsers,
        headers: list[tuple[bytes, bytes]],
        keys: ApiKeys,
        *,
        origins: Sequence[str] = (),
        max_streams: int = MAX_STREAMS,
        max_in_flight: int = MAX_IN_FLIGHT,
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans
        self._engine = engine
        self._parsers = parsers
        self._headers = headers
        self._keys = keys
        self._origins = tuple(origins)
        self._max_streams = max_streams
        self._max_in_flight = max_in_flight
        self._streams: set[_Stream] = set()
        self._parsing = asyncio.Semaphore(_MAX_PARSING)

    def __len__(self) -> int:
        return len(self._streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: tuple[str, str | None]) -> None:
        """Answer a stream until it ends."""
        await receive()  # websocket.connect
        try:
            if self._engine.is_draining:
                raise ShuttingDown("The server is stopping", hint="ask another, or come back")
            if len(self._streams) >= self._max_streams:
                raise QueueFull(
                    f"{len(self._streams)} streams are open, the server takes {self._max_streams}",
                    hint="send many requests over one stream",
                    expected=self._max_streams,
                )
            check_origin(scope["headers"], self._origins)
            tenant = self._keys.tenant_of(scope["headers"])
            head = RequestHead(scope["headers"])
            await self._engine.get(*target, tenant.name)
        except Exception as error:
            await self._refuse(error, receive, send)
            return
        await send({"type": "websocket.accept"})
        stream = _Stream(
            self._engine,
            self._parsers,
            target,
            head,
            tenant,
            receive,
            send,
            self._max_in_flight,
            self._parsing,
            scope["path"],
            self._spans,
        )
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    async def _refuse(self, error: Exception, receive: Receive, send: Send) -> None:
        if not isinstance(error, EdgeInferError):
            log.exception("The server failed")
            error = InternalError("The server failed", hint="its log has the traceback; please report it")
        status, body, headers = problem_parts(error)
        headers = [*headers, *self._headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
        connection = getattr(receive, "__self__", None)
        if connection is not None and hasattr(
            connection, "handshake_complete"
        ):  # else uvicorn 0.54 logs an error for each refusal
            connection.handshake_complete = True

    async def drain(self) -> None:
        """Let what is in flight finish, then close all streams; new requests are refused meanwhile."""
        await asyncio.gather(*(stream.drain() for stream in list(self._streams)))


class _Ticket(NamedTuple):
    """What is kept of a request until it is answered: the client's number, its bytes, and when it came."""

    number: int
    size: int
    start: float


class _Stream:
    """One connection."""

    def __init__(
        self,
        engine: Engine,
        parsers: Parsers,
        target: tuple[str, str | None],
        head: RequestHead,
        tenant: Tenant,
        receive: Receive,
        send: Send,
        max_in_flight: int,
        parsing: asyncio.Semaphore,
        path: str,
        spans: Spans | None,
    ) -> None:
        self._path, self._traceparent, self._spans = path, head.traceparent, spans
        self._engine = engine
        self._tenant = tenant
        self._parsers = parsers
        self._name, self._version = target
        self._priority, self._timeout_s = head.priority, head.timeout_s
        self._receive = receive
        self._send = send
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._bytes = 0
        self._parsing = parsing
        self._is_gone = False
        self._done: list[bytes] = []
        self._has_done = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until the client leaves."""
        writer = asyncio.create_task(self._write())
        try:
            await self._read()
        finally:
            self._is_gone = True
            writer.cancel()
            for task in self._tasks:
                task.cancel()

    async def drain(self) -> None:
        """Wait until everything in flight was sent, and close."""
        await self._is_empty.wait()
        if not self._is_gone:
            await self._close(_GOING_AWAY, "the server is stopping")

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes")
            if data is None:
                await self._close(_NO_TEXT, "messages are binary frames")
                return
            size, offset = len(data), 0
            while True:
                start = offset + _HEAD
                if start > size:
                    await self._close(_BAD_PAYLOAD, "a frame is cut short")
                    return
                number, json_length, tensor_length = FRAME.unpack_from(data, offset)
                offset = start + json_length + tensor_length
                if offset > size:
                    await self._close(_BAD_PAYLOAD, "a frame is longer than its message")
                    return
                self._begin(number, data[start:offset], json_length)
                while not self._is_gone and (self._in_flight >= self._max_in_flight or self._bytes >= MAX_STREAM_BYTES):
                    self._has_room.clear()
                    await self._has_room.wait()
                if offset == size:
                    break

    async def _close(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    # -- one request --

    def _begin(self, number: int, body: bytes, json_length: int) -> None:
        ticket = _Ticket(number, len(body), perf_counter())
        self._in_flight += 1
        self._bytes += ticket.size
        self._is_empty.clear()
        model = self._engine.current(self._name, self._version, self._tenant.name)
        if model is None or json_length >= LARGE_BYTES:
            task = asyncio.create_task(self._ask_slowly(ticket, body, json_length))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._ask(model, ticket, body, json_length)

    async def _ask_slowly(self, ticket: _Ticket, body: bytes, json_length: int) -> None:
        """Ask a model that must be loaded first, or with JSON that takes long to parse."""
        try:
            model = await self._engine.get(self._name, self._version, self._tenant.name)
            parser = self._parsers.of(model)
            asked = None
            if json_length >= LARGE_BYTES:
                async with self._parsing:
                    asked = await asyncio.to_thread(parser.parse, body, json_length)
        except Exception as error:
            self._fail(None, ticket, error)
            return
        self._ask(model, ticket, body, json_length, asked)

    def _ask(
        self,
        model: LoadedModel,
        ticket: _Ticket,
        body: bytes,
        json_length: int,
        asked: InferRequest | None = None,
    ) -> None:
        dispatcher = model.dispatcher
        refusal = model.batcher.refusal(dispatcher.workers_for(model), self._priority, self._tenant)
        if self._engine.is_draining:
            refusal = ShuttingDown("The server is stopping", hint="ask another, or come back")
        if refusal is not None or not dispatcher.hold(model):
            error = refusal or QueueFull("The model is being replaced", hint="send it again")
            model.statistics.rejected(error.code)
            self._fail(None, ticket, error)
            return
        try:
            parser = self._parsers.of(model)
            if asked is None:
                asked = parser.parse(body, json_length) if json_length else parser.parse_raw(body)
            submit(
                model,
                asked,
                start=ticket.start,
                finish=partial(self._finish, model, ticket, asked, json_length == 0),
                priority=self._priority,
                timeout_s=self._timeout_s,
                is_gone=self._left,
                tenant=self._tenant,
            )
        except Exception as error:
            dispatcher.finished(model)
            self._fail(model, ticket, error)

    def _left(self) -> bool:
        return self._is_gone

    def _finish(
        self,
        model: LoadedModel,
        ticket: _Ticket,
        asked: InferRequest,
        is_raw: bool,
        result: Answer | EdgeInferError,
    ) -> None:
        model.dispatcher.finished(model)
        if isinstance(result, EdgeInferError):
            self._fail(model, ticket, result)
            return
        written_at = perf_counter()
        body: bytes | memoryview
        try:
            if is_raw and len(model.outputs) == 1:
                body = octets(result.outputs[model.outputs[0].name])
                json_length = 0
            else:
                body, length = write_answer(
                    model.name, model.version, asked, result.outputs, model.outputs, result.variant
                )
                json_length = len(body) if length is None else length
        except Exception as error:
            self._fail(model, ticket, error)
            return
        now = perf_counter()
        model.statistics.answered(result.timings, now - written_at, now - ticket.start, self._tenant.name)
        if self._spans is not None:
            self._spans.answered(
                model,
                self._path,
                self._traceparent,
                ticket.start,
                result.timings,
                now - written_at,
                self._tenant.name,
                result.variant,
            )
        self._put(ticket, FRAME.pack(ticket.number, json_length, len(body) - json_length) + body)

    def _fail(self, model: LoadedModel | None, ticket: _Ticket, error: Exception) -> None:
        if not isinstance(error, EdgeInferError):
            log.error("The server failed", exc_info=error)
            error = InternalError("The server failed", hint="its log has the traceback; please report it")
        if model is not None:
            model.statistics.failed(error.code, perf_counter() - ticket.start)
        document: dict[str, Any] = {**error.to_json(), "status": status_of(error)}
        body = json.dumps(document, ensure_ascii=False, default=str).encode("utf-8", "replace")
        self._put(ticket, FRAME.pack(ticket.number, len(body), 0) + body)

    # -- answers --

    def _put(self, ticket: _Ticket, data: bytes) -> None:
        self._bytes += len(data) - ticket.size
        self._done.append(data)
        self._has_done.set()

    async def _write(self) -> None:
        """Send what is done; a client that does not read makes this wait, and with it the reading."""
        try:
            while True:
                await self._has_done.wait()
                self._has_done.clear()
                done, self._done = self._done, []
                for data in joined(done):
                    await self._send({"type": "websocket.send", "bytes": data})
                self._in_flight -= len(done)
                self._bytes -= sum(map(len, done))
                self._has_room.set()
                if not self._in_flight:
                    self._is_empty.set()
        except Exception:  # each server has its own class for a client that left
            log.debug("A client left its stream", exc_info=True)
        finally:
            self._is_gone = True
            self._has_room.set()
            self._is_empty.set()
