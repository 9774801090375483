"""The hot path: `POST …/infer`, answered as raw ASGI before any router or layer.

A request's way: its path names a model; the queue is asked whether it has room, before a byte of the body is read; the
body is read, unpacked and parsed; the request waits for its batch; the outputs are written. Much JSON is parsed in
another process and written in a thread, so that the event loop stays free.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from edge_infer.errors import EdgeInferError, ExecutionError, InputError, PayloadTooLarge
from edge_infer.server.errors import UnsupportedMediaType
from edge_infer.server.ingestion.bodies import read_body, unpacked
from edge_infer.server.ingestion.http_call import HttpCall
from edge_infer.server.ingestion.submit import ask
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.cache import ResultCache
from edge_infer.server.response.packing import MIN_BYTES, pack
from edge_infer.server.response.parts import size_of
from edge_infer.server.response.writing import Written, server_timing, takes_long, write
from edge_infer.server.scheduling.request import Timings, too_late

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.ingestion.http_call import Reply
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest

    _Leader = asyncio.Future[Written | EdgeInferError | None]

log = logging.getLogger(__name__)
#: Errors that every identical request would get; others, such as a timeout, are those of one of them.
_OF_CONTENT = (InputError, PayloadTooLarge, UnsupportedMediaType, ExecutionError)
#: The timings of an answer that was kept.
_NO_TIME = Timings(0.0, 0.0, 0.0, 0)


class InferEndpoint:
    """Answers inference requests.

    Args:
        context: What all requests share.
        max_body_bytes: The most bytes of a body, packed or not.
        headers: What every answer carries.
        cache_bytes: The room for the answers of each model that may be sent again; 0 for none.
        cache_ttl_s: How long they may be.

    Attributes:
        context: As given, as is `max_body_bytes`.
        headers: What every answer carries.
    """

    def __init__(
        self,
        context: ServerContext,
        max_body_bytes: int,
        headers: list[tuple[bytes, bytes]],
        *,
        cache_bytes: int = 0,
        cache_ttl_s: float = 60.0,
    ) -> None:
        self.context = context
        self.max_body_bytes = max_body_bytes
        self.headers = [*headers, (b"cache-control", b"no-store")]
        self._cache_bytes = cache_bytes
        self._cache_ttl_s = cache_ttl_s
        self._caches: WeakKeyDictionary[LoadedModel, ResultCache[Written]] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: tuple[str, str | None]) -> None:
        """Answer a request."""
        call = HttpCall(self.context, scope)
        await call.answer(send, self._answer(call, target, receive), self.headers)

    async def _answer(self, call: HttpCall, target: tuple[str, str | None], receive: Receive) -> Reply:
        model, head = await call.open(target)
        written = await self._infer(model, head, receive, call)
        written = await self.packed(written, head)
        total_s = call.answered(written.timings, written.serialization_s, written.variant)
        timing = (b"server-timing", server_timing(written.timings, written.serialization_s, total_s))
        return written.parts, [*written.headers, timing]

    async def packed(self, written: Written, head: RequestHead) -> Written:
        """Compress a large answer for a client that reads that, in a thread."""
        if size_of(written.parts) < MIN_BYTES or not head.accept_encoding:
            return written
        parts, encoding = await asyncio.to_thread(pack, written.parts, head.accept_encoding.decode("latin-1"))
        headers = (*written.headers, (b"vary", b"Accept-Encoding"))
        if encoding:
            headers = (*headers, (b"content-encoding", encoding.encode()))
        return written._replace(parts=parts, headers=headers)

    def parse(self, model: LoadedModel, head: RequestHead, body: bytes | memoryview) -> InferRequest:
        """Parse a body that is not compressed.

        Raises:
            InputError: It does not fit the model.
        """
        parser = self.context.parsers.of(model)
        if not head.is_raw:
            return parser.parse(body, head.json_length)
        asked = parser.parse_raw(body)
        if head.json_length is not None:  # Triton's raw request is answered with JSON and binary tensors
            asked = asked._replace(binary=frozenset(spec.name for spec in model.outputs))
        return asked

    async def _infer(
        self,
        model: LoadedModel,
        head: RequestHead,
        receive: Receive,
        call: HttpCall,
    ) -> Written:
        head.check_media_type()
        most = self.context.parsers.most(head, self.max_body_bytes)
        call.check_room(head.content_length)
        body = await read_body(receive, head.content_length, most, call.grow)
        cache = self._cache_of(model)
        if cache is None:
            return await self._compute(model, head, body, call)
        key = cache.key(body, head.media_type, head.json_length, head.content_encoding, head.quality)
        kept = cache.get(key)
        if kept is not None:
            model.statistics.cache_hits += 1
            return Written(kept.parts, kept.headers, _NO_TIME, 0.0)
        while (leader := cache.in_flight.get(key)) is not None:
            found = await _led(leader, head, call.start)
            if found is not None:  # else one of those that waited leads the others
                model.statistics.coalesced += 1
                if isinstance(found, EdgeInferError):
                    raise found.with_traceback(None)
                return found
        model.statistics.cache_misses += 1
        mine: _Leader = asyncio.get_running_loop().create_future()
        cache.in_flight[key] = mine
        result: Written | EdgeInferError | None = None
        try:
            result = written = await self._compute(model, head, body, call)
            if written.is_kept:
                cache.put(key, written.parts, written.headers)
            return written
        except _OF_CONTENT as error:
            result = error
            raise
        finally:
            del cache.in_flight[key]
            mine.set_result(result)

    def _cache_of(self, model: LoadedModel) -> ResultCache[Written] | None:
        if not self._cache_bytes:
            return None
        cache = self._caches.get(model)
        if cache is None:
            cache = self._caches[model] = ResultCache(self._cache_bytes, self._cache_ttl_s, perf_counter)
        return cache

    async def _compute(
        self,
        model: LoadedModel,
        head: RequestHead,
        body: bytes,
        call: HttpCall,
    ) -> Written:
        if head.content_encoding:
            body = await unpacked(body, head.content_encoding, self.context.parsers.most(head, self.max_body_bytes))
            call.grow(len(body))
        head.check_body(body)
        json_length = len(body) if head.json_length is None else head.json_length
        is_large = not head.is_raw and json_length >= LARGE_BYTES
        if is_large:
            asked = await self.context.parsers.parse_large(model, body, head.json_length)
        else:
            asked = self.parse(model, head, body)
        answer = await ask(call, asked, call.is_gone)
        if takes_long(asked, answer, is_raw=head.is_raw):
            return await asyncio.to_thread(write, model, head, asked, answer)
        return write(model, head, asked, answer)


async def _led(leader: _Leader, head: RequestHead, start: float) -> Written | EdgeInferError | None:
    """Wait for what an identical request gets, as long as this one's own timeout says.

    Raises:
        DeadlineExceeded: That took longer.
    """
    left_s = start + head.timeout_s - perf_counter() if head.timeout_s else None
    done, _ = await asyncio.wait([leader], timeout=left_s)
    if not done:
        raise too_late(head.timeout_s)
    return leader.result()
