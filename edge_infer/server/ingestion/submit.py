"""Queue a request, with a timer where it has a timeout; `ask` waits for the answer too."""

from __future__ import annotations

import asyncio
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError
from edge_infer.server.execution.run_batch import batch_key
from edge_infer.server.ingestion.tenant_bounds import check_answer, priority_of
from edge_infer.server.scheduling.request import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.execution.answer_size import AnswerSize
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.admission import Call
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.scheduling.request import Step

#: The key of all requests of a model whose batches are of one.
_ONE_BY_ONE = "one by one"


def submit(
    call: Call,
    asked: InferRequest,
    finish: Callable[[Answer | EdgeInferError], None],
    is_gone: Callable[[], bool] | None = None,
    start: float | None = None,
    run: Step | None = None,
) -> None:
    """Queue a request; `finish` is called once, on the event loop.

    Args:
        call: The request, which holds its model.
        asked: Its inputs and the wanted outputs; its own priority and timeout go before those of the headers.
        finish: Takes the answer or the error.
        is_gone: Tells whether the client left.
        start: When it came; None for when the call did.
        run: Runs it alone instead of the model's session.

    Raises:
        PayloadTooLarge: Its answer would be too large.
        PriorityRefused: It is more urgent than its tenant may be.
        QueueFull: There is no room.
        DeviceLost: The device has failed.
    """
    model, head = call.model, call.head
    assert model is not None and head is not None
    start = call.start if start is None else start
    rows, key = batch_key(asked.inputs, asked.outputs) if model.has_rows else (1, None)
    if model.batcher.max_batch_size == 1:
        rows, key = rows or 1, _ONE_BY_ONE
    if run is not None:
        rows, key = 1, None
    quality = asked.quality or head.quality
    if quality and key is not None and model.fast is not None:  # a batch runs on one variant
        key = (key, quality)
    timeout_s = asked.timeout_s or head.timeout_s
    size = model.answer_size
    expected = size.before(asked.inputs, asked.outputs)
    check_answer(call.tenant, expected)
    call.expect(expected)
    if not size.is_known:
        finish = _counted(call, size, expected, finish)
    request = Request(
        asked.inputs,
        asked.outputs,
        rows=rows,
        key=key,
        arrived=start,
        finish=finish,
        priority=priority_of(call.tenant, asked.priority or head.priority),
        deadline=start + timeout_s if timeout_s else inf,
        is_gone=is_gone,
        tenant=call.tenant,
        run=run,
        quality=quality,
    )
    model.dispatcher.submit(model, request)
    if timeout_s:  # not before: a request that was refused has its answer
        answer_in_time(model, request, request.deadline - perf_counter())


def _counted(
    call: Call, size: AnswerSize, expected: int, finish: Callable[[Answer | EdgeInferError], None]
) -> Callable[[Answer | EdgeInferError], None]:
    """Count outputs once they are there; too many are an error."""

    def counted(result: Answer | EdgeInferError) -> None:
        if not isinstance(result, EdgeInferError):
            try:
                more = size.after(result.outputs)
                check_answer(call.tenant, expected + more)
                call.take(more)
            except EdgeInferError as error:
                result = error
        finish(result)

    return counted


def answer_in_time(model: LoadedModel, request: Request, left_s: float) -> None:
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
    call: Call,
    asked: InferRequest,
    is_gone: Callable[[], bool] | None = None,
    start: float | None = None,
    run: Step | None = None,
) -> Answer:
    """Run a request in one of the model's next batches.

    Args:
        call: The request, which holds its model.
        asked: Its inputs and the wanted outputs.
        is_gone: Tells whether the client left.
        start: When it came; None for when the call did.
        run: Runs it alone instead of the model's session.

    Raises:
        PayloadTooLarge: Its answer is too large.
        QueueFull: There is no room.
        DeadlineExceeded: There is no answer in time.
        EdgeInferError: The model failed.
    """
    future: asyncio.Future[Answer | EdgeInferError] = asyncio.get_running_loop().create_future()

    def finish(result: Answer | EdgeInferError) -> None:
        if not future.done():
            future.set_result(result)

    submit(call, asked, finish, is_gone, start, run)
    result = await future
    if isinstance(result, EdgeInferError):
        raise result
    return result
