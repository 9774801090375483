"""The hot path: `POST …/infer`, answered as raw ASGI before any router or layer.

A request's way: its path names a model; the queue is asked whether it has room, before a byte of the body is read; the
body is read, unpacked and parsed; the request waits for its batch; the outputs are written. Large bodies are parsed
and written in threads, so that the event loop stays free.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from edge_infer.errors import EdgeInferError
from edge_infer.server.headers import log_access
from edge_infer.server.ingestion.bodies import LARGE_BYTES, read_body, unpack
from edge_infer.server.ingestion.head import RequestHead
from edge_infer.server.ingestion.keys import ApiKeys
from edge_infer.server.ingestion.parsers import Parsers
from edge_infer.server.ingestion.waiting import ask, departure
from edge_infer.server.problems import InternalError, ShuttingDown, problem_parts, status_of
from edge_infer.server.response.cache import ResultCache
from edge_infer.server.response.packing import MIN_BYTES, pack
from edge_infer.server.response.timing import server_timing
from edge_infer.server.response.written import Written, takes_long, write
from edge_infer.server.scheduling.request import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from edge_infer.server.execution.engine import Engine
    from edge_infer.server.execution.loaded import LoadedModel
    from edge_infer.server.protocol import InferRequest
    from edge_infer.server.response.spans import Spans
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)
#: The timings of an answer that was kept.
_NO_TIME = Timings(0.0, 0.0, 0.0, 0)


class InferEndpoint:
    """Answers inference requests.

    Args:
        engine: The models.
        max_body_bytes: The most bytes of a body, packed or not.
        headers: What every answer carries.
        parsers: Reads requests for a model.
        keys: Tells who asks.
        cache_bytes: The room for the answers of each model that may be sent again; 0 for none.
        cache_ttl_s: How long they may be.
        spans: Tells a tracer of each request.

    Attributes:
        max_body_bytes: As given, as are `keys`.
        headers: What every answer carries.
    """

    def __init__(
        self,
        engine: Engine,
        max_body_bytes: int,
        headers: dict[str, str],
        parsers: Parsers | None = None,
        keys: ApiKeys | None = None,
        *,
        cache_bytes: int = 0,
        cache_ttl_s: float = 60.0,
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans
        self._engine = engine
        self.max_body_bytes = max_body_bytes
        self.headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.headers.append((b"cache-control", b"no-store"))
        self._parsers = parsers or Parsers()
        self.keys = keys or ApiKeys()
        self._cache_bytes = cache_bytes
        self._cache_ttl_s = cache_ttl_s
        self._caches: dict[LoadedModel, ResultCache[Written]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: tuple[str, str | None]) -> None:
        """Answer a request."""
        start = perf_counter()
        model: LoadedModel | None = None
        is_held = False
        head: RequestHead | None = None
        status = 200
        try:
            if self._engine.is_draining:
                raise ShuttingDown("The server is stopping", hint="ask another, or come back")
            tenant = self.keys.tenant_of(scope["headers"])
            head = RequestHead(scope["headers"])
            name, version = target
            model = self._engine.current(name, version, tenant.name)
            if model is None:
                model = await self._engine.get(name, version, tenant.name)
            refusal = model.batcher.refusal(model.dispatcher.workers_for(model), head.priority, tenant)
            if refusal is not None:
                model.statistics.rejected(refusal.code)
                model = None
                raise refusal
            while not (is_held := model.dispatcher.hold(model)):
                model = await self._engine.get(name, version, tenant.name)
            written = await self._infer(model, head, receive, start, tenant)
            written = await self.packed(written, head)
            body, headers = written.body, written.headers
            headers.append(self.answered(model, head, written, start, scope["path"], tenant))
        except ClientDisconnect:
            return
        except Exception as error:
            status, body, headers = problem_parts(self.failed(error, model, head, start, scope["path"]))
        finally:
            if is_held and model is not None:
                model.dispatcher.finished(model)
        headers += self.headers
        headers.append((b"content-length", b"%d" % len(body)))
        if head is not None:
            if head.request_id:
                headers.append((b"x-request-id", head.request_id))
            if head.traceparent:
                headers.append((b"traceparent", head.traceparent))
        if self._engine.is_draining:
            headers.append((b"connection", b"close"))
        log_access(scope["method"], scope["path"], status, len(body), start)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def failed(
        self, error: Exception, model: LoadedModel | None, head: RequestHead | None, start: float, path: str
    ) -> EdgeInferError:
        """Take note of a request that failed, and return what its client is told."""
        if not isinstance(error, EdgeInferError):
            log.error("The server failed", exc_info=error)
            error = InternalError("The server failed", hint="its log has the traceback; please report it")
        if model is not None:
            model.statistics.failed(error.code, perf_counter() - start)
            if self._spans is not None:
                traceparent = b"" if head is None else head.traceparent
                self._spans.failed(model, path, traceparent, start, error, status_of(error))
        return error

    def answered(
        self, model: LoadedModel, head: RequestHead, written: Written, start: float, path: str, tenant: Tenant
    ) -> tuple[bytes, bytes]:
        """Take note of a request that was answered, and return the header that says where its time went."""
        total = perf_counter() - start
        timings, serialization_s = written.timings, written.serialization_s
        model.statistics.answered(timings, serialization_s, total, tenant.name)
        if self._spans is not None:
            self._spans.answered(
                model, path, head.traceparent, start, timings, serialization_s, tenant.name, written.variant
            )
        return b"server-timing", server_timing(timings, serialization_s, total)

    async def packed(self, written: Written, head: RequestHead) -> Written:
        """Compress a large answer for a client that reads that, in a thread."""
        if len(written.body) < MIN_BYTES or not head.accept_encoding:
            return written
        body, encoding = await asyncio.to_thread(pack, written.body, head.accept_encoding.decode("latin-1"))
        headers = [*written.headers, (b"vary", b"Accept-Encoding")]
        if encoding:
            headers.append((b"content-encoding", encoding.encode()))
        return written._replace(body=body, headers=headers)

    def parse(self, model: LoadedModel, head: RequestHead, body: bytes) -> InferRequest:
        """Parse a body that is not compressed.

        Raises:
            InputError: It does not fit the model.
        """
        parser = self._parsers.of(model)
        if not head.is_raw:
            return parser.parse(body, head.json_length)
        asked = parser.parse_raw(body)
        if head.json_length is not None:  # Triton's raw request is answered with JSON and binary tensors
            asked = asked._replace(binary=frozenset(spec.name for spec in model.outputs))
        return asked

    async def _infer(
        self, model: LoadedModel, head: RequestHead, receive: Receive, start: float, tenant: Tenant
    ) -> Written:
        head.check_media_type()
        body = await read_body(receive, head.content_length, self.max_body_bytes)
        cache = self._cache_of(model)
        if cache is None:
            return await self._compute(model, head, body, receive, start, tenant)
        key = cache.key(body, head.media_type, head.json_length, head.content_encoding)
        kept = cache.get(key)
        if kept is not None:
            model.statistics.cache_hits += 1
            return Written(kept.body, list(kept.headers), _NO_TIME, 0.0)
        leader = cache.in_flight.get(key)
        if leader is not None:
            found = await asyncio.shield(leader)
            if found is not None:  # else it failed, perhaps for a reason of its own
                model.statistics.coalesced += 1
                return found._replace(headers=list(found.headers))
        model.statistics.cache_misses += 1
        mine: asyncio.Future[Written | None] = asyncio.get_running_loop().create_future()
        cache.in_flight[key] = mine
        written: Written | None = None
        try:
            written = await self._compute(model, head, body, receive, start, tenant)
            if written.is_kept:
                cache.put(key, written.body, written.headers)
            return written._replace(headers=list(written.headers))
        finally:
            if cache.in_flight.get(key) is mine:
                del cache.in_flight[key]
            mine.set_result(written)

    def _cache_of(self, model: LoadedModel) -> ResultCache[Written] | None:
        if not self._cache_bytes:
            return None
        cache = self._caches.get(model)
        if cache is None:
            for known in [known for known in self._caches if known.is_retired]:
                del self._caches[known]
            cache = self._caches[model] = ResultCache(self._cache_bytes, self._cache_ttl_s, perf_counter)
        return cache

    async def _compute(
        self, model: LoadedModel, head: RequestHead, body: bytes, receive: Receive, start: float, tenant: Tenant
    ) -> Written:
        is_large = len(body) >= LARGE_BYTES
        if head.content_encoding:
            body = await _maybe_in_thread(is_large, unpack, body, head.content_encoding, self.max_body_bytes)
        json_length = len(body) if head.json_length is None else head.json_length
        is_large = not head.is_raw and json_length >= LARGE_BYTES
        asked = await _maybe_in_thread(is_large, self.parse, model, head, body)
        answer = await ask(model, asked, head, start, departure(receive), tenant)
        is_large = takes_long(asked, answer, is_raw=head.is_raw)
        written: Written = await _maybe_in_thread(is_large, write, model, head, asked, answer)
        return written


async def _maybe_in_thread(is_large: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    if is_large:
        return await asyncio.to_thread(function, *arguments)
    return function(*arguments)
