"""Streams: `/v2/models/NAME/stream`, a WebSocket that carries many requests at once.

A message is binary and holds one or more frames. A frame is twelve bytes (`formats.safetensors.FRAME`: the client's
number of the request, the bytes of JSON, the bytes of tensors), the JSON of a v2 request, and the bytes of its tensors;
without JSON it is nothing but the bytes of the only input. The answer has the same number and form; an error is JSON.
Answers come as they are done, in no order; those of a batch come in one message, which saves most of what it costs.

Each stream may have so many requests, and so many bytes of requests and answers, in flight; beyond that its messages
are not read, so that TCP slows the client down. Nor are they while half of the model's queue is taken: one that sends
as fast as it can would fill it, and others would be refused. A message costs no task and no future: what a batch has
computed is written by one writer for each stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.errors import ClientLeft, ShuttingDown, status_of
from edge_infer.server.ingestion.admission import Call, ServerContext
from edge_infer.server.ingestion.submit import submit
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.frames import WrittenFrame, joined, write_frame
from edge_infer.server.response.parts import size_of
from edge_infer.server.response.writing import takes_long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.stream_socket import Socket, Turns
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.response.parts import Parts
    from edge_infer.server.scheduling.request import Answer
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)
#: How many bytes of one stream may be in flight: the requests that are not answered, the answers that are expected and
#: those that are not sent; the request that goes beyond it is the last that begins.
MAX_STREAM_BYTES = 32 * 2**20
#: How many requests of one stream begin in a pass of the event loop, those with so much JSON counted as several.
_A_TURN, _JSON_OF_ONE = 32, 2048
#: WebSocket close codes, RFC 6455 section 7.4.1.
_GOING_AWAY, _NO_TEXT, _BAD_PAYLOAD = 1001, 1003, 1007
_HEAD = FRAME.size


class _FrameCall(Call):
    """The request of one frame.

    Attributes:
        number: The client's.
        size: The bytes that it has in flight: its own and those of its answer, as far as they are known.
        is_raw: Whether it is nothing but the bytes of the only input.
        asked: What it asks for, once it is parsed.
    """

    __slots__ = ("_stream", "asked", "is_raw", "number", "size")
    has_connection = False

    def __init__(self, stream: Stream, number: int, size: int, *, is_raw: bool) -> None:
        super().__init__(stream.context, stream.path, stream.head, stream.tenant)
        self._stream = stream
        self.number = number
        self.size = size
        self.is_raw = is_raw
        self.asked: InferRequest | None = None

    def expect(self, size: int) -> None:
        """Take memory for an answer of so many bytes, which are in flight from now on.

        Raises:
            QueueFull: There is no room.
        """
        super().expect(size)
        self.size += size
        self._stream.bytes += size


class Served(NamedTuple):
    """The state that all streams of a server share.

    Attributes:
        context: What they share with all requests.
        max_in_flight: How many requests of one stream may be in flight.
        turns: Decides whose requests begin now; None where there are no tenants.
    """

    context: ServerContext
    max_in_flight: int
    turns: Turns | None = None


class Stream:
    """One connection.

    Args:
        served: What it shares with others.
        target: The model and its version.
        path: Where it was opened.
        head: What the headers of its handshake say.
        tenant: Who opened it.
        socket: Its WebSocket.

    Attributes:
        bytes: How many bytes it has in flight.
        context: What it shares with all requests.
        path: As given, as are `head` and `tenant`.
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
        socket: Socket,
    ) -> None:
        self.requests = self.errors = 0
        self.context = served.context
        self.path, self.head, self.tenant = path, head, tenant
        self._engine, self._parsers, _, self._memory, *_ = served.context
        self._max_in_flight = served.max_in_flight
        self._turns = served.turns
        self._name, self._version = target
        self._socket = socket
        self._in_flight = 0
        self.bytes = 0
        self._unsent = 0  # the part of these that is answers which the socket does not have yet
        self._is_gone = self._is_ending = False
        self._model: LoadedModel | None = None  # what the last request was for
        self._done: list[Parts] = []
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
        """Read no more, wait until everything in flight was sent, and close."""
        self._is_ending = True
        await self._is_empty.wait()
        if not self._is_gone:
            await self._close(_GOING_AWAY, "the server is stopping")

    async def _read(self) -> None:
        begun = 0
        while True:
            try:
                data = await self._socket.receive()
            except ClientLeft:
                return
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
                if self._turns is not None:
                    with self._held(size - start):
                        await self._turns.wait(self.tenant)
                    if self._is_gone:
                        return
                self._begin(number, data[start:offset], json_length)
                if self._is_gone:  # what it sent before it left is of no use to anybody
                    return
                if self._is_ending:  # else one that goes on sending would always have a refusal in flight
                    await self._is_empty.wait()
                    return
                begun += 1 + json_length // _JSON_OF_ONE
                if self._is_full() or begun >= _A_TURN:
                    begun = 0
                    await self._wait_for_room(size - offset)
                    if self._is_gone:
                        return
                if offset == size:
                    break

    def _is_full(self) -> bool:
        """Tell whether the stream has as much in flight as it may have now; one without any is never full."""
        if not self._in_flight:
            return False
        if self._in_flight >= self._max_in_flight or self.bytes >= MAX_STREAM_BYTES:
            return True
        if self._tasks:  # one whose model is looked up is in no queue yet
            return True
        return self._model is not None and self._model.dispatcher.is_crowded(self._model, self.tenant)

    async def _wait_for_room(self, rest: int) -> None:
        """Wait for the next pass of the loop, and until the stream may have more in flight.

        The rest of its message is held meanwhile.
        """
        with self._held(rest):
            await asyncio.sleep(0)
            while not self._is_gone and self._is_full():
                self._has_room.clear()
                await self._has_room.wait()

    @contextmanager
    def _held(self, rest: int) -> Iterator[None]:
        """Count the bytes of a message that are not begun yet, while the stream waits."""
        self._memory.take(rest, self.tenant.name)
        try:
            yield
        finally:
            self._memory.take(-rest, self.tenant.name)

    async def _close(self, code: int, reason: str) -> None:
        try:
            await self._socket.close(code, reason)
        except Exception:  # each server has its own class for a client that left
            log.debug("A client left its stream", exc_info=True)

    def _leave(self) -> None:
        """Take note that nobody reads any more."""
        self._is_gone = True
        self._memory.take(-self._unsent, self.tenant.name)
        self._unsent = 0
        self._has_room.set()
        self._is_empty.set()

    # -- one request --

    def _begin(self, number: int, body: bytes, json_length: int) -> None:
        call = _FrameCall(self, number, len(body), is_raw=json_length == 0)
        self.requests += 1
        self._in_flight += 1
        self.bytes += call.size
        refusal: EdgeInferError | None = self._memory.refusal(call.size, self.tenant.name)
        call.take(call.size)
        self._is_empty.clear()
        model = None
        if self._engine.is_draining:
            refusal = ShuttingDown("The server is stopping", hint="ask another, or come back")
        else:
            model = call.model = self._engine.current(self._name, self._version, self.tenant.name)
            self._model = model or self._model
        if model is not None and refusal is None:
            refusal = call.refusal(model)
        if refusal is not None:
            self._refuse(call, refusal)
        elif model is None or json_length >= LARGE_BYTES or not call.hold(model):
            task = asyncio.create_task(self._ask_slowly(call, body, json_length))
            self._tasks.add(task)
            task.add_done_callback(partial(self._asked_slowly, call))
        else:
            self._ask(call, model, body, json_length)

    def _asked_slowly(self, call: _FrameCall, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._has_room.set()
        if task.cancelled():  # nobody answers it
            call.close()

    async def _ask_slowly(self, call: _FrameCall, body: bytes, json_length: int) -> None:
        """Ask a model that must be loaded first, or with JSON that takes long to parse."""
        try:
            model = self._model = await self._engine.get(self._name, self._version, self.tenant.name)
            refusal = call.refusal(model)
            if refusal is not None:
                self._refuse(call, refusal)
                return
            while not call.hold(model):  # it was replaced meanwhile
                model = await self._engine.get(self._name, self._version, self.tenant.name)
            if json_length >= LARGE_BYTES:
                self._parsers.check_length(json_length)
                call.asked = await self._parsers.parse_large(model, body, json_length)
        except Exception as error:
            self._fail(call, error)
        else:
            self._ask(call, model, body, json_length)

    def _ask(self, call: _FrameCall, model: LoadedModel, body: bytes, json_length: int) -> None:
        """Ask a model that is held, and let go of it once there is an answer."""
        try:
            if call.asked is None:
                parser = self._parsers.of(model)
                call.asked = parser.parse(body, json_length) if json_length else parser.parse_raw(body)
            submit(call, call.asked, partial(self._finish, call), self._left)
        except Exception as error:
            self._fail(call, error)

    def _left(self) -> bool:
        return self._is_gone

    def _finish(self, call: _FrameCall, result: Answer | EdgeInferError) -> None:
        call.release()
        if isinstance(result, EdgeInferError):
            self._fail(call, result)
            return
        model, asked = call.model, call.asked
        assert model is not None and asked is not None
        is_raw = call.is_raw and len(model.outputs) == 1
        if takes_long(asked, result, is_raw=is_raw):
            task = asyncio.create_task(self._write_slowly(call, model, asked, result))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            return
        try:
            written = write_frame(model, asked, result, is_raw)
        except Exception as error:
            self._fail(call, error)
        else:
            self._answer(call, result, written)

    async def _write_slowly(self, call: _FrameCall, model: LoadedModel, asked: InferRequest, result: Answer) -> None:
        """Let a thread write an answer of much JSON; others overtake it."""
        try:
            written = await asyncio.to_thread(write_frame, model, asked, result, False)
        except Exception as error:
            self._fail(call, error)
        else:
            self._answer(call, result, written)

    def _answer(self, call: _FrameCall, result: Answer, written: WrittenFrame) -> None:
        call.answered(result.timings, written.seconds, result.variant)
        parts, json_length, _ = written
        self._put(call, (FRAME.pack(call.number, json_length, size_of(parts) - json_length), *parts))

    def _fail(self, call: _FrameCall, error: Exception) -> None:
        call.release()
        self._put_error(call, call.failed(error))

    def _refuse(self, call: _FrameCall, error: EdgeInferError) -> None:
        call.rejected(error)
        self._put_error(call, error)

    # -- answers --

    def _put_error(self, call: _FrameCall, error: EdgeInferError) -> None:
        self.errors += 1
        document: dict[str, Any] = {**error.to_json(), "status": status_of(error)}
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        self._put(call, (FRAME.pack(call.number, len(body), 0), body))

    def _put(self, call: _FrameCall, frame: Parts) -> None:
        """Send an answer; until then it takes memory in the place of its request."""
        call.close()
        if self._is_gone:
            return
        size = size_of(frame)
        self._memory.take(size, self.tenant.name)
        self._unsent += size
        self.bytes += size - call.size
        self._done.append(frame)
        self._has_done.set()

    async def _write(self) -> None:
        """Send what is done; a client that does not read makes this wait, and with it the reading."""
        try:
            while True:
                await self._has_done.wait()
                self._has_done.clear()
                count, messages = len(self._done), joined(self._done)
                self._done = []
                while messages:  # what was sent is kept by nobody but the connection
                    size = size_of(messages[0])
                    self._unsent -= size  # the socket counts it from now on
                    self._memory.take(-size, self.tenant.name)
                    await self._socket.send(messages.pop(0))
                    self.bytes -= size
                self._in_flight -= count
                self._has_room.set()
                if not self._in_flight:
                    self._is_empty.set()
        except Exception:  # each server has its own class for a client that left
            log.debug("A client left its stream", exc_info=True)
        finally:
            self._leave()
