"""Queue a request, with a timer where it has a timeout; `ask` waits for the answer too."""

from __future__ import annotations

import asyncio
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError
from edge_infer.server.execution.run_batch import batch_key
from edge_infer.server.scheduling.request import Answer, Request
from edge_infer.server.scheduling.shares import ANYONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.scheduling.shares import Tenant

#: The key of all requests of a model whose batches are of one.
_ONE_BY_ONE = "one by one"


def submit(
    model: LoadedModel,
    asked: InferRequest,
    *,
    start: float,
    finish: Callable[[Answer | EdgeInferError], None],
    priority: int = 0,
    timeout_s: float = 0.0,
    is_gone: Callable[[], bool] | None = None,
    tenant: Tenant = ANYONE,
) -> Request:
    """Queue a request; `finish` is called once, on the event loop.

    Args:
        model: The model, held by the caller.
        asked: What is asked.
        start: When it came.
        finish: Takes the answer or the error.
        priority: What its headers say, where the request itself says nothing.
        timeout_s: The same of the timeout; 0 for none.
        is_gone: Tells whether the client left.
        tenant: Who asks.

    Raises:
        QueueFull: There is no room.
        DeviceLost: The device has failed.
    """
    rows, key = batch_key(asked.inputs, asked.outputs) if model.has_rows else (1, None)
    if model.batcher.max_batch_size == 1:
        rows, key = rows or 1, _ONE_BY_ONE
    timeout_s = asked.timeout_s or timeout_s
    request = Request(
        asked.inputs,
        asked.outputs,
        rows=rows,
        key=key,
        arrived=start,
        finish=finish,
        priority=asked.priority or priority,
        deadline=start + timeout_s if timeout_s else inf,
        is_gone=is_gone,
        tenant=tenant,
    )
    model.dispatcher.submit(model, request)
    if timeout_s:  # not before: a request that was refused has its answer
        _answer_in_time(model, request, request.deadline - perf_counter())
    return request


def _answer_in_time(model: LoadedModel, request: Request, left_s: float) -> None:
    """Answer in time though the model is busy, and let others have the place in the queue."""
    finish = request.finish

    def in_time(result: Answer | EdgeInferError) -> None:
        timer.cancel()
        finish(result)

    def too_late() -> None:
        request.answer(request.too_late())
        model.dispatcher.drop(model, request)

    timer = asyncio.get_running_loop().call_later(left_s, too_late)
    request.finish = in_time


async def ask(
    model: LoadedModel,
    asked: InferRequest,
    head: RequestHead,
    start: float,
    is_gone: Callable[[], bool] | None = None,
    tenant: Tenant = ANYONE,
) -> Answer:
    """Run a request in one of the model's next batches.

    Args:
        model: The model, held by the caller.
        asked: What is asked.
        head: Its headers, which may name a priority and a timeout too.
        start: When it came.
        is_gone: Tells whether the client left.
        tenant: Who asks.

    Raises:
        QueueFull: There is no room.
        DeadlineExceeded: There is no answer in time.
        EdgeInferError: The model failed.
    """
    future: asyncio.Future[Answer | EdgeInferError] = asyncio.get_running_loop().create_future()

    def finish(result: Answer | EdgeInferError) -> None:
        if not future.done():
            future.set_result(result)

    submit(
        model,
        asked,
        start=start,
        finish=finish,
        priority=head.priority,
        timeout_s=head.timeout_s,
        is_gone=is_gone,
        tenant=tenant,
    )
    result = await future
    if isinstance(result, EdgeInferError):
        raise result
    return result


def departure(receive: object) -> Callable[[], bool] | None:
    """Return what tells whether the client left, or None where the server cannot say so without waiting.

    `receive` of uvicorn is a method of the object that knows; waiting for its message instead costs each request a
    task.
    """
    cycle = getattr(receive, "__self__", None)
    if cycle is None or not hasattr(cycle, "disconnected"):
        return None
    return lambda: bool(cycle.disconnected)
