"""Queue a request and wait for its answer: what a coroutine does that asks a model."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError, QueueFull
from edge_infer.server.execution.running import batch_key
from edge_infer.server.scheduling.request import Answer, Request
from edge_infer.server.scheduling.shares import ANYONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.execution.loaded import LoadedModel
    from edge_infer.server.ingestion.head import RequestHead
    from edge_infer.server.protocol import InferRequest
    from edge_infer.server.scheduling.shares import Tenant


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
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer | EdgeInferError] = loop.create_future()

    def finish(result: Answer | EdgeInferError) -> None:
        if not future.done():
            future.set_result(result)

    rows, key = batch_key(asked.inputs, asked.outputs) if model.batcher.max_batch_size > 1 else (1, None)
    timeout_s = asked.timeout_s or head.timeout_s
    request = Request(
        asked.inputs,
        asked.outputs,
        rows=rows,
        key=key,
        arrived=start,
        finish=finish,
        priority=asked.priority or head.priority,
        deadline=start + timeout_s if timeout_s else inf,
        is_gone=is_gone,
        tenant=tenant,
    )
    try:
        model.dispatcher.submit(model, request)
    except QueueFull as error:
        model.statistics.rejected(error.code)
        raise
    timer = loop.call_later(timeout_s, finish, request.too_late()) if timeout_s else None
    try:
        result = await future
    finally:
        if timer is not None:
            timer.cancel()
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
