"""Search an index: `POST /v2/indexes/NAME/search`.

A request's way is that of `predict`: it is admitted, its body is read and checked, a text becomes a vector in one of
the next batches of the served model, and the search runs in a thread.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import (
    DeadlineExceeded,
    EdgeInferError,
    InputError,
    ModelNotFound,
    PayloadTooLarge,
    QueueFull,
    did_you_mean,
    listed,
)
from edge_infer.server.errors import ClientLeft, UnsupportedMediaType
from edge_infer.server.ingestion.embeddings import parsed
from edge_infer.server.ingestion.http_call import HttpCall
from edge_infer.server.ingestion.tenant_bounds import check_answer
from edge_infer.server.protocol.head import FORM, JSON
from edge_infer.server.response.answer_json import answer_json

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from edge_infer.server.execution.indexes import ServedIndex, ServedIndexes
    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.ingestion.http_call import Reply
    from edge_infer.server.ingestion.predict import PredictEndpoint
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.vectors.hit import Hit
    from edge_infer.vectors.index import Index

#: The longest vector has 32,768 numbers, which take .8 MB in JSON.
MAX_BODY_BYTES = 2 * 2**20
#: Each different word of a query is looked for in each segment.
MAX_CHARACTERS = 20_000
#: How many searches run at once; each scans on all cores.
_THREADS = 2
#: How many may wait for that.
MAX_WAITING = 256
_FIELDS = ("query", "k", "where", "mode", "full_scan")
_EXAMPLE = '{"query": "a text, or a vector", "k": 10, "where": {"lang": "en"}, "mode": "hybrid"}'


class Asked(NamedTuple):
    """A search: a text or a vector, and what `Index.search` takes."""

    text: str | None
    vector: list[float] | None
    k: int
    where: dict[str, Any] | None
    mode: str
    full_scan: bool

    @property
    def needs_model(self) -> bool:
        """Whether a model makes the vector."""
        return self.vector is None and self.mode != "words"


class SearchEndpoint:
    """Answers searches.

    Args:
        context: What all requests share.
        indexes: What is searched.
        predictions: Makes vectors of texts.
        max_body_bytes: The most bytes of a body, packed or not.
        max_answer_bytes: The most bytes of an answer; 0 for any number.
    """

    def __init__(
        self,
        context: ServerContext,
        indexes: ServedIndexes,
        predictions: PredictEndpoint,
        max_body_bytes: int,
        max_answer_bytes: int,
    ) -> None:
        self._context = context
        self._indexes = indexes
        self._predictions = predictions
        self._max_body_bytes = min(max_body_bytes, MAX_BODY_BYTES)
        self._max_answer_bytes = max_answer_bytes
        self._room = asyncio.Semaphore(_THREADS)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a search of the index that the route found in the path."""
        call = HttpCall(self._context, scope)

        async def answer() -> Reply:
            found = await self._search(call, scope["path_params"]["name"], receive)
            return (found,), [(b"content-type", JSON.encode())]

        await call.answer(send, answer(), [(b"cache-control", b"no-store")])

    async def _search(self, call: HttpCall, name: str, receive: Receive) -> bytes:
        head = call.enter()  # before a byte of the body is read
        served = self._indexes.get(name)
        try:
            found = await self._answered(call, head, served, receive)
        except EdgeInferError as error:
            served.failures[error.code] = served.failures.get(error.code, 0) + 1
            raise
        served.seconds.observe(perf_counter() - call.start)
        return found

    async def _answered(self, call: HttpCall, head: RequestHead, served: ServedIndex, receive: Receive) -> bytes:
        _check_media_type(head)
        body = await call.body(receive, min(self._context.parsers.most(head, self._max_body_bytes), MAX_BODY_BYTES))
        asked = read_search(body)
        index = await asyncio.to_thread(served.current)
        _check_before(asked, index)
        vector: Any = asked.vector
        if asked.needs_model:
            assert asked.text is not None
            vector = await self._vector(call, served, index, asked.text)
        found = await self._in_time(call, head, index, asked, vector)
        call.take(len(found))
        check_answer(call.tenant, len(found))
        if self._max_answer_bytes and len(found) > self._max_answer_bytes:
            raise PayloadTooLarge(
                f"The answer has {len(found)} bytes, more than {self._max_answer_bytes}",
                hint="a smaller `k`",
                expected=self._max_answer_bytes,
                got=len(found),
            )
        return found

    async def _vector(self, call: HttpCall, served: ServedIndex, index: Index, text: str) -> Any:
        """Let the served model embed a text, in one of its next batches."""
        repository = self._context.engine.repository
        target = await repository.readers.call(lambda: served.model(repository))
        model, _ = await call.open(target)
        embedding = index.embedding
        if embedding is None or model.session.bundle.revision != embedding.revision:
            raise ModelNotFound(
                f"The model of the index `{served.name}` was replaced just now", hint="build the index again"
            )
        return await self._predictions.vector(model, embedding.query_prefix + text, call)

    async def _in_time(self, call: HttpCall, head: RequestHead, index: Index, asked: Asked, vector: Any) -> bytes:
        """Search in a thread once there is room, before the request's timeout.

        Raises:
            QueueFull: Too many wait.
            DeadlineExceeded: There is no answer in time. A scan that runs already goes on, and keeps its room.
        """
        if self._waiting >= MAX_WAITING:
            raise QueueFull(f"{MAX_WAITING} searches wait already", hint="come back after `Retry-After`")
        left_s = head.timeout_s - (perf_counter() - call.start) if head.timeout_s else None
        late = DeadlineExceeded("The search was not done in time", hint="a longer X-Timeout-Ms")
        if left_s is not None and left_s <= 0:
            raise late
        task = asyncio.ensure_future(self._run(call, index, asked, vector))
        done, _ = await asyncio.wait({task}, timeout=left_s)
        if not done:
            task.cancel()  # it keeps its room until its thread is done
            raise late
        return task.result()

    async def _run(self, call: HttpCall, index: Index, asked: Asked, vector: Any) -> bytes:
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        if call.is_gone is not None and call.is_gone():
            self._room.release()
            raise ClientLeft("The client left before its search ran")
        work = asyncio.get_running_loop().run_in_executor(None, _found, index, asked, vector)
        work.add_done_callback(self._let_next)
        return await asyncio.shield(work)

    def _let_next(self, work: asyncio.Future[bytes]) -> None:
        self._room.release()
        if not work.cancelled():
            work.exception()  # nobody may wait for it any more


def read_search(body: bytes) -> Asked:
    """Read a search.

    Raises:
        InputError: A field lacks, or is not what it must be.
    """
    document = parsed(body, _EXAMPLE)
    if not isinstance(document, dict) or "query" not in document:
        raise InputError("The body has no `query`", hint=_EXAMPLE)
    for name in document:
        if name not in _FIELDS:
            hint = did_you_mean(name[:128], [*_FIELDS]) or f"a search has {listed([*_FIELDS])}"
            raise InputError(f"`{name[:128]}` is not known in a search", hint=hint, allowed=[*_FIELDS])
    query, where, full_scan = document["query"], document.get("where"), document.get("full_scan", False)
    is_vector = isinstance(query, list) and all(type(one) in (int, float) for one in query)
    if not is_vector and not isinstance(query, str):
        raise InputError("`query` is neither a text nor a list of numbers", hint=_EXAMPLE)
    if isinstance(query, str) and len(query) > MAX_CHARACTERS:
        raise InputError(f"`query` has more than {MAX_CHARACTERS} characters", hint="send a part of it")
    if isinstance(query, str) and not _is_whole(query):
        raise InputError("`query` has half a character: a surrogate without its other", hint=_EXAMPLE)
    if where is not None and not isinstance(where, dict):
        raise InputError("`where` is not an object", hint='{"where": {"year": {">=": 2020}}}')
    if not isinstance(full_scan, bool):
        raise InputError("`full_scan` is neither true nor false", hint='{"full_scan": true}')
    text, vector = (query, None) if isinstance(query, str) else (None, query)
    return Asked(text, vector, document.get("k", 10), where, document.get("mode", "vectors"), full_scan)


def _is_whole(text: str) -> bool:
    """Tell whether a text can be written in UTF-8: JSON may name halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_media_type(head: RequestHead) -> None:
    """Take JSON, and what curl calls a form where no page sends it.

    Raises:
        UnsupportedMediaType: It is another form.
    """
    kind = head.media_type
    if kind != JSON and not kind.endswith("+json") and (kind not in ("", FORM) or head.has_origin):
        raise UnsupportedMediaType(f"The body is `{kind[:128]}`, expected `{JSON}`", hint=f"Content-Type: {JSON}")


def _check_before(asked: Asked, index: Index) -> None:
    """Refuse what no vector can help, before a model runs for it.

    Raises:
        InputError: `k`, `mode` or the vector's length is not what it can be.
    """
    from edge_infer.vectors.arithmetic import wrong_length
    from edge_infer.vectors.modes import check_search

    check_search(asked.k, asked.mode)
    dimension = index.view.catalogue.dimension
    if asked.vector is not None and len(asked.vector) != dimension:
        raise wrong_length(0, len(asked.vector), dimension)


def _found(index: Index, asked: Asked, vector: Any) -> bytes:
    hits: list[Hit] = index.find(
        asked.text, vector, asked.k, where=asked.where, full_scan=asked.full_scan, mode=asked.mode
    )
    return answer_json({"hits": [one._asdict() for one in hits]})
