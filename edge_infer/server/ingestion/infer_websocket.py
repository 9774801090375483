"""Streams: `/v2/models/NAME/stream`, a WebSocket that carries many requests at once.

A message is binary and holds one or more frames. A frame is twelve bytes (`formats.safetensors.FRAME`: the client's
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

from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.errors import ShuttingDown, status_of
from edge_infer.server.ingestion.submit import submit
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.joining import joined
from edge_infer.server.response.writing import octets, write_answer
from edge_infer.server.response.written import takes_long

if TYPE_CHECKING:
    from starlette.types import Receive, Send

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.admission import Desk
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.scheduling.request import Answer
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)
#: How many bytes of one stream may be in flight, the requests that are not answered and the answers that are not sent;
#: the message that goes beyond it is the last that is read.
MAX_STREAM_BYTES = 32 * 2**20
#: WebSocket close codes, RFC 6455 section 7.4.1.
_GOING_AWAY, _NO_TEXT, _BAD_PAYLOAD = 1001, 1003, 1007
_HEAD = FRAME.size


class _Ticket(NamedTuple):
    """What is kept of a request until it is answered: the client's number, its bytes, and when it came."""

    number: int
    size: int
    start: float


class _Written(NamedTuple):
    """An answer before it is sent: its bytes, how many of them are JSON, and how long it took to write."""

    body: bytes | memoryview
    json_length: int
    seconds: float


class Served(NamedTuple):
    """What all streams of a server share.

    Attributes:
        desk: What they share with all ways to ask a model.
        max_in_flight: How many requests of one stream may be in flight.
    """

    desk: Desk
    max_in_flight: int


class Stream:
    """One connection.

    Args:
        served: What it shares with others.
        target: The model and its version.
        path: Where it was opened.
        head: What the headers of its handshake say.
        tenant: Who opened it.
        receive: ASGI's.
        send: ASGI's.

    Attributes:
        requests: How many requests came.
        errors: How many of them failed or were refused.
    """

    def __init__(
        self,
        served: Served,
        target: tuple[str, str | None],
        path: str,
        head: RequestHead,
        tenant: Tenant,
        receive: Receive,
        send: Send,
    ) -> None:
        self.requests = self.errors = 0
        self._engine, self._parsers, _, self._memory, self._ledger = served.desk
        self._max_in_flight = served.max_in_flight
        self._path, self._head, self._tenant = path, head, tenant
        self._name, self._version = target
        self._priority, self._timeout_s = head.priority, head.timeout_s
        self._receive = receive
        self._send = send
        self._in_flight = 0
        self._bytes = 0
        self._unsent = 0  # the part of these that is answers
        self._is_gone = False
        self._done: list[bytes] = []
        self._has_done = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until the client leaves."""
        writer = asyncio.create_task(self._write())
        try:
            await self._read()
        finally:
            writer.cancel()
            self._leave()
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
                if self._in_flight >= self._max_in_flight or self._bytes >= MAX_STREAM_BYTES:
                    await self._wait_for_room(size - offset)
                if offset == size:
                    break

    async def _wait_for_room(self, rest: int) -> None:
        """Wait until the stream may have more in flight; the rest of its message is held meanwhile."""
        self._memory.taken += rest
        try:
            while not self._is_gone and (self._in_flight >= self._max_in_flight or self._bytes >= MAX_STREAM_BYTES):
                self._has_room.clear()
                await self._has_room.wait()
        finally:
            self._memory.taken -= rest

    async def _close(self, code: int, reason: str) -> None:
        try:
            await self._send({"type": "websocket.close", "code": code, "reason": reason})
        except Exception:  # each server has its own class for a client that left
            log.debug("A client left its stream", exc_info=True)

    def _leave(self) -> None:
        """Take note that nobody reads any more."""
        self._is_gone = True
        self._memory.taken -= self._unsent
        self._unsent = 0
        self._has_room.set()
        self._is_empty.set()

    # -- one request --

    def _begin(self, number: int, body: bytes, json_length: int) -> None:
        ticket = _Ticket(number, len(body), perf_counter())
        self.requests += 1
        self._in_flight += 1
        self._bytes += ticket.size
        refusal: EdgeInferError | None = self._memory.refusal(ticket.size)
        self._memory.taken += ticket.size
        self._is_empty.clear()
        model = None
        if self._engine.is_draining:
            refusal = ShuttingDown("The server is stopping", hint="ask another, or come back")
        else:
            model = self._engine.current(self._name, self._version, self._tenant.name)
        if model is not None and refusal is None:
            refusal = self._refusal_of(model)
        if refusal is not None:
            self._refuse(model, ticket, refusal)
        elif model is None or json_length >= LARGE_BYTES or not model.dispatcher.hold(model):
            task = asyncio.create_task(self._ask_slowly(ticket, body, json_length))
            self._tasks.add(task)
            task.add_done_callback(partial(self._asked_slowly, ticket))
        else:
            self._ask(model, ticket, body, json_length)

    def _refusal_of(self, model: LoadedModel) -> EdgeInferError | None:
        return model.dispatcher.refusal(model, self._priority, self._tenant)

    def _asked_slowly(self, ticket: _Ticket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # nobody answers it
            self._memory.taken -= ticket.size

    async def _ask_slowly(self, ticket: _Ticket, body: bytes, json_length: int) -> None:
        """Ask a model that must be loaded first, or with JSON that takes long to parse."""
        model, is_held, asked = None, False, None
        try:
            model = await self._engine.get(self._name, self._version, self._tenant.name)
            refusal = self._refusal_of(model)
            if refusal is not None:
                self._refuse(model, ticket, refusal)
                return
            while not (is_held := model.dispatcher.hold(model)):  # it was replaced meanwhile
                model = await self._engine.get(self._name, self._version, self._tenant.name)
            if json_length >= LARGE_BYTES:
                asked = await self._parsers.in_thread(self._parsers.of(model).parse, body, json_length)
            is_held = False
            self._ask(model, ticket, body, json_length, asked)
        except Exception as error:
            self._fail(model, ticket, error)
        finally:
            if is_held and model is not None:
                model.dispatcher.finished(model)

    def _ask(
        self,
        model: LoadedModel,
        ticket: _Ticket,
        body: bytes,
        json_length: int,
        asked: InferRequest | None = None,
    ) -> None:
        """Ask a model that is held, and let go of it once there is an answer."""
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
            model.dispatcher.finished(model)
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
        is_raw = is_raw and len(model.outputs) == 1
        if takes_long(asked, result, is_raw=is_raw):
            task = asyncio.create_task(self._write_slowly(model, ticket, asked, result))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            return
        try:
            written = _written(model, asked, result, is_raw)
        except Exception as error:
            self._fail(model, ticket, error)
        else:
            self._answer(model, ticket, result, written)

    async def _write_slowly(self, model: LoadedModel, ticket: _Ticket, asked: InferRequest, result: Answer) -> None:
        """Let a thread write an answer of much JSON; others overtake it."""
        try:
            written = await asyncio.to_thread(_written, model, asked, result, False)
        except Exception as error:
            self._fail(model, ticket, error)
        else:
            self._answer(model, ticket, result, written)

    def _answer(self, model: LoadedModel, ticket: _Ticket, result: Answer, written: _Written) -> None:
        self._ledger.answered(
            model,
            self._head,
            self._path,
            ticket.start,
            result.timings,
            written.seconds,
            self._tenant.name,
            result.variant,
        )
        body, json_length, _ = written
        self._put(ticket, FRAME.pack(ticket.number, json_length, len(body) - json_length) + body)

    def _fail(self, model: LoadedModel | None, ticket: _Ticket, error: Exception) -> None:
        self._put_error(ticket, self._ledger.failed(model, self._head, self._path, ticket.start, error))

    def _refuse(self, model: LoadedModel | None, ticket: _Ticket, error: EdgeInferError) -> None:
        self._ledger.rejected(model, error)
        self._put_error(ticket, error)

    # -- answers --

    def _put_error(self, ticket: _Ticket, error: EdgeInferError) -> None:
        self.errors += 1
        document: dict[str, Any] = {**error.to_json(), "status": status_of(error)}
        body = json.dumps(document, ensure_ascii=False, default=str).encode("utf-8", "replace")
        self._put(ticket, FRAME.pack(ticket.number, len(body), 0) + body)

    def _put(self, ticket: _Ticket, data: bytes) -> None:
        """Send an answer; until then it takes memory in the place of its request."""
        self._memory.taken -= ticket.size
        if self._is_gone:
            return
        self._memory.taken += len(data)
        self._unsent += len(data)
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
                sent = sum(map(len, done))
                self._in_flight -= len(done)
                self._bytes -= sent
                self._unsent -= sent
                self._memory.taken -= sent
                self._has_room.set()
                if not self._in_flight:
                    self._is_empty.set()
        except Exception:  # each server has its own class for a client that left
            log.debug("A client left its stream", exc_info=True)
        finally:
            self._leave()


def _written(model: LoadedModel, asked: InferRequest, result: Answer, is_raw: bool) -> _Written:
    start = perf_counter()
    if is_raw:
        return _Written(octets(result.outputs[model.outputs[0].name]), 0, perf_counter() - start)
    body, length = write_answer(model.name, model.version, asked, result.outputs, model.outputs, result.variant)
    return _Written(body, len(body) if length is None else length, perf_counter() - start)
