"""Models with state, step by step: `POST …/infer_stream`, each step a server-sent event.

Each step is a request like any other, so that the steps of many clients run in one batch; its state goes back into the
next one as the outputs that it was. The form is that of https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.requests import ClientDisconnect

from edge_infer.errors import EdgeInferError, InputError, did_you_mean, listed
from edge_infer.server.errors import ClientLeft, problem_parts, status_of
from edge_infer.server.headers import echoed
from edge_infer.server.ingestion.admission import HttpCall, ServerContext
from edge_infer.server.ingestion.bodies import read_body, unpacked
from edge_infer.server.ingestion.submit import ask
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.writing import takes_long, write_answer
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.scheduling.request import Step
    from edge_infer.tensors.tensor import Array

log = logging.getLogger(__name__)
#: The most steps of one request.
MAX_STEPS = 100_000
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OWN = ("state", "sequence", "steps")
_EXAMPLE = '"parameters": {"state": "h_out:h_in", "sequence": "x"}'


class Plan(NamedTuple):
    """What a request for steps asks for.

    Attributes:
        request: The inputs of the first step; those of `sequence` with one dimension more in front.
        state: Which output becomes which input.
        sequence: The inputs of which each step takes one entry.
        steps: How many steps.
    """

    request: InferRequest
    state: dict[str, str]
    sequence: tuple[str, ...]
    steps: int


def parse_plan(body: bytes, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], max_rows: int = 0) -> Plan:
    """Parse a request for steps.

    Args:
        body: The JSON of `infer`, with the parameters `state`, `sequence` and `steps`.
        inputs: The model's inputs.
        outputs: The model's outputs.
        max_rows: The most rows of a step; 0 for any number.

    Raises:
        InputError: A field is not what it must be; the message names it.
    """
    try:
        document = _decode(body)  # the tensors stay text: only `Parser` reads them
        parameters = msgspec.json.decode(document.get("parameters", b"null"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"The body is not a JSON object: {error}"[:300], hint=_EXAMPLE) from error
    if not isinstance(parameters, dict):
        raise InputError("`parameters` is missing: they say what the steps are", hint=_EXAMPLE)
    state = _pairs(parameters.get("state", ""), [spec.name for spec in outputs], [spec.name for spec in inputs])
    sequence = tuple(_names(parameters.get("sequence", ""), "sequence", [spec.name for spec in inputs]))
    _check_kinds(state, inputs, outputs)
    both = set(sequence) & set(state.values())
    if both:
        raise InputError(f"Input `{both.pop()}` is in `state` and in `sequence`", hint=_EXAMPLE)
    steps = parameters.get("steps")
    others = {name: value for name, value in parameters.items() if name not in _OWN}
    document["parameters"] = msgspec.Raw(msgspec.json.encode(others))
    specs = [TensorSpec(s.name, s.dtype, ("steps", *s.shape)) if s.name in sequence else s for s in inputs]
    request = Parser(specs, outputs, max_rows, sequence).parse(msgspec.json.encode(document))
    request = request._replace(binary=frozenset())
    # numpy arrays can be sliced and batched; what numpy has no dtype for stays a Tensor.
    arrays = {n: to_numpy(value) if isinstance(value, Tensor) else value for n, value in request.inputs.items()}
    request = request._replace(inputs=arrays)
    lengths = {name: int(request.inputs[name].shape[0]) for name in sequence}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise InputError(
            f"The inputs of `sequence` have {lengths} steps", hint="give each the same number, at least one"
        )
    if steps is None and lengths:
        steps = next(iter(lengths.values()))
    if type(steps) is not int or not 0 < steps <= MAX_STEPS or (lengths and steps > min(lengths.values())):
        most = min([*lengths.values(), MAX_STEPS])
        raise InputError(
            f"`parameters.steps` is {json.dumps(steps)[:40]}, expected a whole number from 1 to {most}",
            hint='"steps": 10, or name a `sequence`',
            field="parameters.steps",
        )
    return Plan(request, state, sequence, steps)


def _names(text: object, field: str, known: list[str]) -> list[str]:
    if not isinstance(text, str):
        raise InputError(f"`parameters.{field}` is not a text", hint=_EXAMPLE, field=f"parameters.{field}")
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise InputError(
                f"`parameters.{field}` names `{name[:128]}`; choose each once from {listed(known)}",
                hint=did_you_mean(name[:128], known),
                field=f"parameters.{field}",
            )
    return names


def _pairs(text: object, outputs: list[str], inputs: list[str]) -> dict[str, str]:
    if not isinstance(text, str):
        raise InputError("`parameters.state` is not a text", hint=_EXAMPLE, field="parameters.state")
    pairs = [pair.rpartition(":") for pair in text.split(",") if pair]
    for first, colon, last in pairs:
        if not first or not last:
            raise InputError(
                f"`parameters.state` has `{(first + colon + last)[:128]}`, expected `OUTPUT:INPUT`",
                hint=_EXAMPLE,
                field="parameters.state",
            )
    _names(",".join(first for first, _, _ in pairs), "state", outputs)
    _names(",".join(last for _, _, last in pairs), "state", inputs)
    return {first: last for first, _, last in pairs}


def _check_kinds(state: dict[str, str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Refuse outputs that are no values of the inputs they become: a batch joins tensors without asking for dtypes."""
    targets, sources = ({spec.name: spec for spec in specs} for specs in (inputs, outputs))
    for output, name in state.items():
        source, target = sources[output], targets[name]
        if source.dtype is target.dtype and _may_be_equal(source, target):
            continue
        raise InputError(
            f"Output `{output}` cannot become input `{name}`: it is {source}, expected {target}",
            hint="name an output of the input's dtype and shape",
            field="parameters.state",
        )


def _may_be_equal(one: TensorSpec, other: TensorSpec) -> bool:
    """Tell whether a tensor can have both shapes, as far as these are known."""
    if not (one.is_rank_known and other.is_rank_known):
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    return len(one.shape) == len(other.shape) and all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in pairs
    )


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
        try:
            model, head = await call.open(target)
            plan = await self._plan(model, head, receive, call)
            is_begun = True
            await self._begin(scope, send)
            await self._run(model, plan, call, send)
        except ClientDisconnect:
            call.left()
            return
        except Exception as error:
            await self._fail(call.failed(error), scope, send, is_begun=is_begun)
        finally:
            call.close()

    async def _plan(self, model: LoadedModel, head: RequestHead, receive: Receive, call: HttpCall) -> Plan:
        head.check_media_type()
        body = await read_body(receive, head.content_length, self._max_body_bytes, call.grow)
        if head.content_encoding:
            body = await unpacked(body, head.content_encoding, self._max_body_bytes)
            call.grow(len(body))
        arguments = (body, model.inputs, model.outputs, model.max_rows)
        if len(body) >= LARGE_BYTES:
            return await self._context.parsers.in_thread(parse_plan, *arguments)
        return parse_plan(*arguments)

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
            to_write = (model.name, model.version, plan.request, answer.outputs, model.outputs, answer.variant)
            if takes_long(plan.request, answer, is_raw=False):
                data, _ = await asyncio.to_thread(write_answer, *to_write)
            else:
                data, _ = write_answer(*to_write)
            call.answered(answer.timings, perf_counter() - written_at, answer.variant, start)
            await send(_event(b"step", data))
            for output, name in plan.state.items():
                inputs[name] = answer.outputs[output]
        await send(_event(b"end", b'{"steps":%d}' % plan.steps))
        await send({"type": "http.response.body", "body": b""})

    async def _fail(self, error: EdgeInferError, scope: Scope, send: Send, *, is_begun: bool) -> None:
        if isinstance(error, ClientLeft):
            return
        if is_begun:
            document: dict[str, Any] = {**error.to_json(), "status": status_of(error)}
            await send(_event(b"error", json.dumps(document, default=str).encode()))
            await send({"type": "http.response.body", "body": b""})
            return
        status, body, headers = problem_parts(error)
        headers = [*headers, *self._headers, *echoed(scope["headers"]), (b"content-length", b"%d" % len(body))]
        if self._context.engine.is_draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _chosen(results: dict[str, Array], wanted: Sequence[str] | None) -> dict[str, Array]:
    return results if wanted is None else {name: results[name] for name in wanted}


def _event(kind: bytes, data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": b"event: %s\ndata: %s\n\n" % (kind, data), "more_body": True}
