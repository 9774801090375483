"""From raw data to an answer: `POST …/predict`, for bundles with a pipeline.

A request's way is that of `infer`, with the pipeline's steps around it: the body is read; the steps before the model
run in a thread; its tensors are a request like any other, so that those of many clients run in one batch; the steps
after it run in a thread. The form is that of the Hub's inference API: the bytes of a file, a text, or JSON with
`inputs` and `parameters`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

from edge_infer.errors import ExecutionError, InputError, PayloadTooLarge
from edge_infer.server.errors import UnsupportedMediaType, problem_parts
from edge_infer.server.execution.chain_model import ChainModel
from edge_infer.server.execution.text_request import no_tensors
from edge_infer.server.ingestion.chains import predict_chain
from edge_infer.server.ingestion.embeddings import read_embeddings, write_embeddings
from edge_infer.server.ingestion.http_call import HttpCall
from edge_infer.server.ingestion.raw_inputs import MAX_INPUTS, json_of, raw_input
from edge_infer.server.ingestion.submit import ask
from edge_infer.server.protocol.head import JSON
from edge_infer.server.protocol.requests import InferRequest
from edge_infer.server.response.answer_json import answer_json
from edge_infer.server.response.completions import openai_error
from edge_infer.tasks.answers import as_json
from edge_infer.tasks.definition import check_arguments, definition_of
from edge_infer.tasks.prepared_steps import PreparedSteps
from edge_infer.tasks.registry import Task, get_task
from edge_infer.tensors.arrays import present
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.admission import ServerContext
    from edge_infer.server.ingestion.http_call import Reply
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.prepared_steps import Ready

log = logging.getLogger(__name__)
#: How many requests are decoded or answered at once; each holds an image or a sound.
_THREADS = 2
#: How many frames of a sound run before other requests have their turn.
_FRAMES = 64
# Bodies that a page of another server may send without being asked: they are read where no page sends them.
_SIMPLE = ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data")


class _Known(NamedTuple):
    """The pipeline of a model, kept while the model is loaded."""

    definition: Definition
    task: Task
    steps: PreparedSteps


class PredictEndpoint:
    """Answers requests of raw data.

    Args:
        context: What all requests share.
        max_body_bytes: The most bytes of a body, packed or not.
        headers: What every answer carries.
    """

    def __init__(self, context: ServerContext, max_body_bytes: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._context = context
        self._max_body_bytes = max_body_bytes
        self._headers = [*headers, (b"cache-control", b"no-store")]
        self._known: WeakKeyDictionary[LoadedModel, _Known] = WeakKeyDictionary()
        self._room = asyncio.Semaphore(_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: tuple[str, str | None]) -> None:
        """Answer a request of raw data."""

        async def answer(call: HttpCall) -> bytes:
            model, head = await call.open(target)
            return await self._predict(model, head, scope["query_string"], receive, call)

        await self._answer(scope, send, answer)

    async def embeddings(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of texts in the form of OpenAI's embeddings, whose body names the model.

        Its form is that of https://platform.openai.com/docs/api-reference/embeddings.
        """

        async def answer(call: HttpCall) -> bytes:
            head = call.admit()  # before a byte of the body is read
            body = await call.body(receive, self._context.parsers.most(head, self._max_body_bytes))
            asked = await asyncio.to_thread(read_embeddings, body)
            model, _ = await call.open((asked.model, None))
            known = await self._of(model)
            if known.definition.task != "feature-extraction":
                raise InputError(f"`{asked.model}` is for {known.definition.task}", hint="POST /v2/models/M/predict")
            check_arguments(known.definition, {})
            ready, outputs = await self._outputs(model, known, asked.texts, {}, call)
            async with self._room:
                return await asyncio.to_thread(write_embeddings, asked, known.steps, ready, outputs)

        await self._answer(scope, send, answer, openai_error)

    async def vector(self, model: LoadedModel, text: str, call: HttpCall) -> Tensor:
        """Return the vector of a text.

        Args:
            model: A model for feature extraction, which the request holds.
            text: The text.
            call: The request.

        Raises:
            InputError: The model is for another task.
            ExecutionError: It does not give a vector.
        """
        known = await self._of(model)
        if known.definition.task != "feature-extraction":
            raise InputError(f"`{model.name}` is for {known.definition.task}", hint="send a vector")
        check_arguments(known.definition, {})
        ready, outputs = await self._outputs(model, known, [text], {}, call)
        async with self._room:
            found = await asyncio.to_thread(known.steps.after, outputs[0], ready[0].item)
        if not isinstance(found, Tensor):
            raise ExecutionError(f"the pipeline of `{model.name}` gives no vector for a text", hint="send a vector")
        return found.reshape(found.size)

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        work: Callable[[HttpCall], Awaitable[bytes]],
        problem: Callable[[EdgeInferError], tuple[int, bytes, list[tuple[bytes, bytes]]]] = problem_parts,
    ) -> None:
        """Send what the work gives, or its error in the form of `problem`."""
        call = HttpCall(self._context, scope)

        async def answer() -> Reply:
            return (await work(call),), [(b"content-type", JSON.encode())]

        await call.answer(send, answer(), self._headers, problem=problem)

    async def _predict(
        self, model: LoadedModel, head: RequestHead, query: bytes, receive: Receive, call: HttpCall
    ) -> bytes:
        known = None if isinstance(model, ChainModel) else await self._of(model)
        is_json = head.media_type == JSON or head.media_type.endswith("+json")
        if head.has_origin and head.media_type in _SIMPLE:
            raise UnsupportedMediaType(
                f"The body is `{head.media_type}`, which a page may not send here", hint=f"Content-Type: {JSON}"
            )
        if head.media_type == "multipart/form-data":
            raise UnsupportedMediaType("The body is a form, expected the file itself", hint="curl --data-binary @FILE")
        most = self._context.parsers.most(head, self._max_body_bytes) if is_json else self._max_body_bytes
        body = await call.body(receive, most)
        if isinstance(model, ChainModel):
            return await predict_chain(model, body, head.media_type, call, self._room)
        assert known is not None
        async with self._room:
            values, arguments, is_list = await asyncio.to_thread(_read, body, known, head.media_type, query)
            groups = await asyncio.to_thread(lambda: [known.steps.runs(one, arguments) for one in values])
            if sum(map(len, groups)) > MAX_INPUTS:
                raise PayloadTooLarge(f"A request has more than {MAX_INPUTS} inputs", hint="send fewer at once")
        inner = [one for group in groups for one in group]
        ready, outputs = await self._outputs(model, known, inner, arguments, call)
        async with self._room:
            return await asyncio.to_thread(_after, known, ready, outputs, values, groups, arguments, is_list)

    async def _outputs(
        self, model: LoadedModel, known: _Known, values: list[Any], arguments: Mapping[str, Any], call: HttpCall
    ) -> tuple[list[Ready], list[Any]]:
        """Do the steps before the model, run it, and return its outputs for each raw input."""
        async with self._room:
            ready = await asyncio.to_thread(_before, known.steps, values, arguments)
        for one in ready:
            call.take(sum(tensor.nbytes for tensor in one.tensors.values()))
        outputs: list[Any] = [None] * len(ready)
        for batch in known.steps.batches(ready, model.max_rows or 1):
            if ready[batch[0]].frames:
                outputs[batch[0]] = await self._stream(model, known.steps, ready[batch[0]], call)
                continue
            asked = InferRequest(None, dict(known.steps.feeds([ready[i] for i in batch])), None)
            start = perf_counter()
            answer = await ask(call, asked, call.is_gone, start)
            call.answered(answer.timings, 0.0, answer.variant, start)
            found: dict[str, Tensor] = present(dict(answer.outputs), "tensor")
            for row, i in enumerate(batch):
                outputs[i] = known.steps.of_one(found, row, len(batch))
        return ready, outputs

    async def _stream(
        self, model: LoadedModel, prepared: PreparedSteps, ready: Ready, call: HttpCall
    ) -> dict[str, Tensor]:
        """Run a sound frame by frame, some frames at a time, and return the outputs of all."""
        feeds = prepared.framed(ready)
        steps: list[dict[str, Tensor]] = []
        stream = await asyncio.to_thread(model.session.stream, initial=prepared.first_state)

        def run(part: Sequence[dict[str, Tensor]], _inputs: Any, _wanted: Any) -> dict[str, Any]:
            steps.extend(present(stream.step(one), "tensor") for one in part)
            return {}

        try:
            for at in range(0, len(feeds), _FRAMES):
                part, start = feeds[at : at + _FRAMES], perf_counter()
                answer = await ask(call, InferRequest(None, {}, []), call.is_gone, start, partial(run, part))
                call.answered(answer.timings, 0.0, answer.variant, start)
        finally:
            # A step that came too late may still run: closing waits for it, off the event loop.
            asyncio.get_running_loop().run_in_executor(None, stream.close)
        return prepared.of_stream(steps)

    async def _of(self, model: LoadedModel) -> _Known:
        known = self._known.get(model)
        if known is None:
            known = self._known[model] = await asyncio.to_thread(_open, model)
        return known


def _open(model: LoadedModel) -> _Known:
    manifest = model.session.bundle.manifest
    if manifest.generate is not None:
        raise no_tensors(model.name)
    if manifest.chain is not None:
        raise InputError(f"`{model.name}` is a chain", hint=f"POST /v2/models/{model.name}/predict")
    if manifest.task is None or manifest.pipeline is None:
        raise InputError(
            f"`{model.name}` has no pipeline: it takes tensors, not raw data",
            hint=f"POST /v2/models/{model.name}/infer",
        )
    definition = definition_of(manifest)
    return _Known(definition, get_task(definition.task), PreparedSteps(definition, model.session))


def _read(body: bytes, known: _Known, media_type: str, query: bytes) -> tuple[list[Any], dict[str, Any], bool]:
    """Return the raw inputs of a request, its arguments, and whether it is answered with a list.

    Raises:
        InputError: It is not what the task takes.
    """
    if not body:
        raise InputError("The body is empty", hint='curl --data-binary @FILE, or JSON: {"inputs": ...}')
    takes = known.task.takes
    arguments = dict(map(_argument, parse_qsl(query.decode("latin-1"))))
    is_json = media_type == JSON or media_type.endswith("+json") or (media_type in _SIMPLE and body[:1] == b"{")
    if is_json:
        document = json_of(body)
        value, more = document["inputs"], document.get("parameters", {})
        if not isinstance(more, dict):
            raise InputError("`parameters` is not an object", hint='{"inputs": ..., "parameters": {"top_k": 3}}')
        arguments.update(more)
    else:
        value = _text_of(body) if takes == "text" else body
    is_list = isinstance(value, list) and not (takes == "sound" and value and isinstance(value[0], (int, float)))
    values = value if is_list else [value]
    if not 1 <= len(values) <= MAX_INPUTS:
        raise InputError(f"A request has {len(values)} inputs, expected 1 to {MAX_INPUTS}", hint="send fewer at once")
    check_arguments(known.definition, arguments)
    return [raw_input(one, takes) for one in values], arguments, is_list


def _text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise InputError(f"The text is not UTF-8: {error.reason} at byte {error.start}", hint="send UTF-8") from error


def _argument(pair: tuple[str, str]) -> tuple[str, Any]:
    """Return an argument of the address: a number where it is one, else text."""
    try:
        return pair[0], json.loads(pair[1])
    except (ValueError, RecursionError):
        return pair


def _before(prepared: PreparedSteps, values: list[Any], arguments: Mapping[str, Any]) -> list[Ready]:
    return [prepared.before(value, arguments) for value in values]


def _after(
    known: _Known,
    ready: list[Ready],
    outputs: list[Any],
    values: list[Any],
    groups: list[list[Any]],
    arguments: Mapping[str, Any],
    is_list: bool,
) -> bytes:
    """Return the answer as JSON."""
    answers = [known.steps.after(found, one.item) for found, one in zip(outputs, ready, strict=True)]
    if known.task.combine is not None:
        left = iter(answers)
        answers = [
            known.task.combine([next(left) for _ in group], value, arguments, known.steps.place)
            for value, group in zip(values, groups, strict=True)
        ]
    found = [as_json(answer) for answer in answers]
    return answer_json(found if is_list else found[0])
