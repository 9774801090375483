"""Models with state, step by step: `POST …/infer_stream`, each step a server-sent event.

Each step is a request like any other, so that the steps of many clients run in one batch; its state goes back into the
next one as the outputs that it was. The form is that of https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edge_infer.server.errors import ClientLeft, status_of
from edge_infer.server.headers import echoed
from edge_infer.server.ingestion.http_call import HttpCall
from edge_infer.server.ingestion.submit import ask
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.protocol.steps import Plan, parse_plan
from edge_infer.server.response.writing import takes_long, write_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.scheduling.request import Step
    from edge_infer.tensors.tensor import Array

log = logging.getLogger(__name__)


class EventEndpoint:
    """Answers requests for steps.

    Args:
        context: What all requests share.
        max_body_bytes: The most bytes of a body, packed or not.
        headers: What every answer carries.
    """

    def __init__(self, context: ServerContext, max_body_bytes: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._context = context
        self._max_body_bytes = max_body_bytes
        self._headers = [*headers, (b"cache-control", b"no-store")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: tuple[str, str | None]) -> None:
        """Answer a request."""
        call, is_begun = HttpCall(self._context, scope), False

        async def answer() -> None:
            nonlocal is_begun
            model, head = await call.open(target)
            plan = await self._plan(model, head, receive, call)
            is_begun = True
            await self._begin(scope, send)
            await self._run(model, plan, call, send)

        async def end(error: EdgeInferError) -> bool:
            if is_begun and not isinstance(error, ClientLeft):
                document: dict[str, Any] = {**error.to_json(), "status": status_of(error)}
                await send(_event(b"error", json.dumps(document).encode()))
                await send({"type": "http.response.body", "body": b""})
            return is_begun or isinstance(error, ClientLeft)

        await call.answer(send, answer(), self._headers, end=end)

    async def _plan(self, model: LoadedModel, head: RequestHead, receive: Receive, call: HttpCall) -> Plan:
        head.check_media_type()
        parsers = self._context.parsers
        body = await call.body(receive, parsers.most(head, self._max_body_bytes))
        head.check_body(body)
        if len(body) >= LARGE_BYTES:
            return await parsers.parse_large_plan(model, body)
        return parse_plan(body, model.inputs, model.outputs, model.max_rows, model.session.state_pairs)

    async def _begin(self, scope: Scope, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *self._headers]
        headers += echoed(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _run(
        self,
        model: LoadedModel,
        plan: Plan,
        call: HttpCall,
        send: Send,
    ) -> None:
        if not model.session.has_hidden_state:
            await self._steps(model, plan, call, send, None)
            return
        # Each request has a stream of its own, whose state starts anew; only the worker's thread uses it.
        stream = await asyncio.to_thread(model.session.stream, {})
        try:
            await self._steps(model, plan, call, send, lambda inputs, wanted: _chosen(stream.step(inputs), wanted))
        finally:
            # A step that came too late may still run: closing waits for it, off the event loop.
            asyncio.get_running_loop().run_in_executor(None, stream.close)

    async def _steps(self, model: LoadedModel, plan: Plan, call: HttpCall, send: Send, run: Step | None) -> None:
        is_gone = call.is_gone
        inputs = dict(plan.request.inputs)
        wanted = plan.request.outputs
        # State that the client does not want to see is computed all the same.
        needed = None if wanted is None else list(dict.fromkeys([*wanted, *plan.state]))
        for step in range(plan.steps):
            if is_gone is not None and is_gone():
                return
            start = perf_counter()
            current = {name: value[step] if name in plan.sequence else value for name, value in inputs.items()}
            asked = plan.request._replace(inputs=current, outputs=needed)
            answer = await ask(call, asked, is_gone, start, run)
            written_at = perf_counter()
            known = (model.name, model.version, plan.request)
            to_write = (*known, answer.outputs, model.outputs, answer.variant, model.answer_size.most)
            if takes_long(plan.request, answer, is_raw=False):
                parts, _ = await asyncio.to_thread(write_answer, *to_write)
            else:
                parts, _ = write_answer(*to_write)
            call.answered(answer.timings, perf_counter() - written_at, answer.variant, start)
            await send(_event(b"step", b"".join(parts)))
            for output, name in plan.state.items():
                inputs[name] = answer.outputs[output]
        await send(_event(b"end", b'{"steps":%d}' % plan.steps))
        await send({"type": "http.response.body", "body": b""})


def _chosen(results: dict[str, Array], wanted: Sequence[str] | None) -> dict[str, Array]:
    return results if wanted is None else {name: results[name] for name in wanted}


def _event(kind: bytes, data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": b"event: %s\ndata: %s\n\n" % (kind, data), "more_body": True}
