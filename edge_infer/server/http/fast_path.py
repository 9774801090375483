"""The fast path of a common inference request: from its connection to the queue and back, without ASGI.

A request that needs nothing special is taken when its head is complete. No scope, no task and no messages are made for
it: they are most of the cost of a small request. A refusal is sent then, before the body. Whatever is not common, such
as a model that must be loaded first, a compressed body or a wrong header, is left to the application. It accepts the
same language and reports errors in the same words.
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache, partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError
from edge_infer.server.errors import ClientLeft, problem_parts
from edge_infer.server.headers import CONTROL
from edge_infer.server.http.repeated import KnownHead
from edge_infer.server.ingestion.admission import Call
from edge_infer.server.ingestion.submit import submit
from edge_infer.server.metrics.access_log import access, facts_of, log_access
from edge_infer.server.protocol.head import RequestHead
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.packing import MIN_BYTES
from edge_infer.server.response.parts import size_of
from edge_infer.server.response.writing import Written, server_timing, takes_long, write

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from edge_infer.server.http.exchange import Exchange
    from edge_infer.server.http.turns import Turns
    from edge_infer.server.ingestion.infer import InferEndpoint
    from edge_infer.server.ingestion.model_paths import Targets
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.response.parts import Parts
    from edge_infer.server.response.writing import Headers
    from edge_infer.server.scheduling.request import Answer
    from edge_infer.server.scheduling.shares import Tenant

log = logging.getLogger(__name__)
#: Longer bodies are read through the application, which slows the client down where they pile up.
_MAX_BYTES = 4 * 2**20
#: How often the event loop lets threads that run models on, while requests come.
_LET_ON_EVERY_S = 0.001
#: How many answers' headers are remembered as they are sent.
_MAX_LINES = 256
#: How many refusals are remembered as they are sent.
_MAX_REFUSALS = 1024


class DirectRequest(Call):
    """A request that is answered without ASGI.

    Args:
        endpoint: What it shares with others.
        exchange: The request and its answer, of HTTP.
        path: Its path.
        head: What its headers say.
        tenant: Whose it is.

    Attributes:
        asked: What it asks for, once its body is parsed.
    """

    __slots__ = ("_endpoint", "_exchange", "_is_parsed", "asked")

    def __init__(
        self, endpoint: DirectEndpoint, exchange: Exchange, path: str, head: RequestHead, tenant: Tenant
    ) -> None:
        super().__init__(endpoint.context, path, head, tenant, exchange.start)
        self._endpoint = endpoint
        self._exchange = exchange
        self._is_parsed = False
        self.asked: InferRequest | None = None

    def refuse(self, error: EdgeInferError) -> None:
        """Answer before the body came; the rest of the body is thrown away."""
        self.rejected(error)
        head, exchange = self.head, self._exchange
        assert head is not None
        status, headers, body, prepared = self._endpoint.refusal(error)
        if head.request_id or head.traceparent:
            self._respond(status, (headers,), (body,), error.code)
        else:
            exchange.respond_prepared(status, prepared)
            self._log(status, len(body), error.code)

    def body_arrived(self) -> None:
        """Count what arrived; parse the body once it is complete, and queue the request."""
        if self._is_parsed:
            return
        exchange, model, head = self._exchange, self.model, self.head
        assert model is not None and head is not None
        try:
            if exchange.received > self._size:
                self.grow(exchange.received - self._size)
            if not exchange.is_whole:
                return
            self._is_parsed = True
            body = exchange.take_body()
            head.check_body(body)
            self.asked = self._endpoint.application.parse(model, head, body)
            submit(self, self.asked, self._finish, self._left)
        except Exception as error:
            self._is_parsed = True
            self._fail(error)

    def left(self) -> None:
        """Give the model back, unless the request is queued: its batch leaves it out."""
        if not self._is_parsed:
            self.close()
            error = self.failed(ClientLeft("The client left before its body was there"))
            self._log(0, 0, error.code)

    def refused(self, status: int, size: int, code: str) -> None:
        """Give the model back: the connection has answered."""
        self.close()
        self._log(status, size, code)

    def _left(self) -> bool:
        return self._exchange.is_gone

    def _finish(self, result: Answer | EdgeInferError) -> None:
        """Take the answer, in the event loop, and send it in its tenant's turn."""
        turns = self._endpoint.turns
        if turns is None or not turns.defer_answer(self.tenant, partial(self._answer, result)):
            self._answer(result)

    def _answer(self, result: Answer | EdgeInferError) -> bool:
        """Send an answer; true, as `Turns` wants to know whether there was something to do."""
        if isinstance(result, EdgeInferError):
            self._fail(result)
            return True
        try:
            model, head = self.model, self.head
            assert self.asked is not None and model is not None and head is not None
            if takes_long(self.asked, result, is_raw=head.is_raw):
                self._send_later(asyncio.to_thread(write, model, head, self.asked, result))
                return True
            written = write(model, head, self.asked, result)
            if head.accept_encoding and size_of(written.parts) >= MIN_BYTES:
                self._send_later(written)
                return True
        except Exception as error:
            self._fail(error)
        else:
            self._send(written)
        return True

    def _send_later(self, writing: Awaitable[Written] | Written) -> None:
        """Send an answer that a thread must write or compress first."""

        async def send() -> None:
            try:
                written = writing if isinstance(writing, Written) else await writing
                assert self.head is not None
                written = await self._endpoint.application.packed(written, self.head)
            except Exception as error:
                self._fail(error)
            else:
                self._send(written)

        self._endpoint.keep(asyncio.get_running_loop().create_task(send()))

    def _send(self, written: Written) -> None:
        self.close()
        timings, serialization_s = written.timings, written.serialization_s
        total_s = self.answered(timings, serialization_s, written.variant)
        timing = b"server-timing: %b\r\n" % server_timing(timings, serialization_s, total_s)
        self._respond(200, (lines_of(written.headers), timing), written.parts)

    def _fail(self, error: Exception) -> None:
        self.close()
        told = self.failed(error)
        status, body, headers = problem_parts(told)
        self._respond(status, (lines_of(tuple(headers)),), (body,), told.code)

    def _respond(self, status: int, headers: tuple[bytes, ...], body: Parts, code: str = "") -> None:
        exchange, head = self._exchange, self.head
        assert head is not None
        lines = [self._endpoint.always, *headers]
        if head.request_id:
            lines += (b"x-request-id: ", head.request_id, b"\r\n")
        if head.traceparent:
            lines += (b"traceparent: ", head.traceparent, b"\r\n")
        if self.context.engine.is_draining:
            exchange.keep_alive = False
        exchange.respond(status, lines, body)
        self._log(status, size_of(body), code)

    def _log(self, status: int, size: int, code: str) -> None:
        if not access.isEnabledFor(logging.INFO):
            return
        assert self.head is not None
        names = ((b"x-request-id", self.head.request_id), (b"traceparent", self.head.traceparent))
        facts = facts_of(names, self.model, self.tenant.name, code)
        log_access("POST", self.path, status, size, self.start, facts)


@lru_cache(_MAX_LINES)
def lines_of(headers: Headers) -> bytes:
    """Write headers as HTTP/1.1 does; most answers of a model have the same."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


class DirectEndpoint:
    """Chooses the requests that may take the shortest way.

    Args:
        application: Answers all others, and lends its parts.
        targets: Knows which paths ask a model.
        turns: Decides whose requests begin and are answered now; None where there are no tenants.
        is_cached: Whether answers are kept: then all requests go through the application.
        checks_origin: Whether pages of other servers may ask: their answers have headers of their own.

    Attributes:
        context: What all requests share.
        turns: As given.
        always: The header lines of every answer.
    """

    def __init__(
        self,
        application: InferEndpoint,
        targets: Targets,
        turns: Turns | None = None,
        *,
        is_cached: bool = False,
        checks_origin: bool = False,
    ) -> None:
        self.application = application
        self.context = application.context
        self.turns = turns
        self.always = lines_of(tuple(application.headers))
        self._refusals: dict[tuple[str, str], tuple[int, bytes, bytes, bytes]] = {}
        self._targets = targets
        self._is_cached = is_cached
        self._checks_origin = checks_origin
        self._most = min(_MAX_BYTES, application.max_body_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._let_on_at = 0.0

    def begin(self, exchange: Exchange) -> DirectRequest | None:
        """Take a request whose head is complete, or refuse it.

        Args:
            exchange: The request, whose turn it is on its connection.

        Returns:
            What answers it and holds its model; None where it was refused, or the application must answer.
        """
        if exchange.method != b"POST" or not exchange.keep_alive:
            return None
        now = exchange.start
        if now > self._let_on_at:
            self._let_workers_on(now)
        engine, _, keys, memory, *_ = self.context
        if engine.is_draining or self._is_cached:
            return None
        try:
            known = self._known(exchange)
            if known is None:
                return None
            tenant = exchange.tenant or keys.tenant_of(exchange.headers)
        except (EdgeInferError, UnicodeDecodeError):
            return None  # the application says what is wrong
        head = known.head
        model = engine.current(*known.target, tenant.name)
        if model is None:
            return None
        request = DirectRequest(self, exchange, known.path, head, tenant)
        refusal = request.refusal(model) or memory.refusal(head.content_length, tenant.name)
        if refusal is not None:
            request.refuse(refusal)
            return None
        if not request.hold(model):
            return None
        exchange.want_body()
        return request

    def _known(self, exchange: Exchange) -> KnownHead | None:
        """Return what the head of a request says; None where the application must answer.

        Most clients send the same head again on a connection, so that it is read once.
        """
        carrier = exchange.carrier
        known = carrier.known
        if known is not None and known.headers == exchange.headers and known.url == exchange.url:
            return known
        carrier.known = None
        path = exchange.url.decode("ascii")
        target = self._targets.find(path)
        if target is None or "%" in path or "?" in path:
            return None
        head = RequestHead(exchange.headers)
        head.check_media_type()
        if self._takes(head):
            carrier.known = KnownHead(exchange.url, exchange.headers, path, target, head)
        return carrier.known

    def _let_workers_on(self, now: float) -> None:
        """Sleep for no time at all while models run: a thread that has run one needs the interpreter to go on.

        In a flood of small requests it would wait for up to 20 ms. The loop lets go of the interpreter at each read,
        which wakes the thread, but too late to take it; and a thread that is woken begins to wait anew, so it never
        comes to ask for the interpreter, as it does after `sys.getswitchinterval()` (CPython, `take_gil`).
        """
        if any(dispatcher.scheduler.running for dispatcher in self.context.engine.dispatchers.values()):
            sleep(0)
            now = perf_counter()
        self._let_on_at = now + _LET_ON_EVERY_S

    def _takes(self, head: RequestHead) -> bool:
        """Tell whether a request is common: short, of known length, not compressed, nothing to be careful with."""
        is_json = not head.is_raw
        json_length = head.content_length if head.json_length is None else head.json_length
        return not (
            not 0 <= head.content_length <= self._most
            or head.content_encoding
            or (is_json and json_length >= LARGE_BYTES)
            or (head.has_origin and self._checks_origin)
            or (head.request_id and CONTROL.search(head.request_id))
            or (head.traceparent and CONTROL.search(head.traceparent))
        )

    def refusal(self, error: EdgeInferError) -> tuple[int, bytes, bytes, bytes]:
        """Return status, header lines and body of a refusal, and all that is sent of it behind its first lines.

        Under overload the same ones come again and again.
        """
        key = error.code, error.message
        found = self._refusals.get(key)
        if found is None:
            if len(self._refusals) >= _MAX_REFUSALS:
                self._refusals.clear()
            status, body, headers = problem_parts(error)
            lines = lines_of(tuple(headers))
            prepared = b"%b%bcontent-length: %d\r\n\r\n%b" % (self.always, lines, len(body), body)
            found = self._refusals[key] = (status, lines, body, prepared)
        return found

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
