"""Raw data to the answer of a chain: `POST …/predict`, for bundles whose steps feed one another.

A request of a chain is one request of its queue: it is admitted, waits, is answered in time or refused, and counted as
any other is. Its inputs run together, each step for all of them.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, PayloadTooLarge, did_you_mean, listed
from edge_infer.server.ingestion.raw_inputs import MAX_INPUTS, MAX_PIXELS, json_of, raw_input
from edge_infer.server.ingestion.submit import ask
from edge_infer.server.protocol.head import JSON
from edge_infer.server.protocol.requests import InferRequest
from edge_infer.server.response.answer_json import answer_json
from edge_infer.tasks.answers import as_json
from edge_infer.tasks.image.decode import pixels_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.chains.chain import ChainRun
    from edge_infer.server.execution.chain_model import ChainModel
    from edge_infer.server.ingestion.http_call import HttpCall

_PARAMETERS = ("timings",)
#: Bytes of a decoded pixel: red, green and blue. A step has the images of a whole request at once.
_CHANNELS = 3
_MAX_PIXELS = 4 * MAX_PIXELS


async def predict_chain(
    model: ChainModel, body: bytes, media_type: str, call: HttpCall, room: asyncio.Semaphore
) -> bytes:
    """Answer a request of raw data with a chain.

    Args:
        model: The chain, which the request holds.
        body: The bytes of a file or a text, where the chain has one input; or JSON with `inputs`.
        media_type: What the body is.
        call: The request.
        room: Bounds how many requests are read or written at once.

    Raises:
        InputError: It is not what the chain takes.
        PayloadTooLarge: It has too many inputs, or images of too many pixels.
        QueueFull: There is no room for the pixels of its images.
        EdgeInferError: A step failed, or the queue is full.
    """
    async with room:
        values, is_list, with_timings = await asyncio.to_thread(_read, body, media_type, model.chain.inputs)
    call.grow(_decoded_bytes(values, model.chain.inputs))
    found: list[ChainRun] = []

    def run(_inputs: Any, _wanted: Any) -> dict[str, Any]:
        found.append(model.chain.run(values))
        return {}

    start = perf_counter()
    answer = await ask(call, InferRequest(None, {}, []), call.is_gone, start, run)
    call.answered(answer.timings, 0.0, answer.variant, start)
    async with room:
        return await asyncio.to_thread(_written, found[0], is_list=is_list, with_timings=with_timings)


def _read(body: bytes, media_type: str, inputs: Mapping[str, str]) -> tuple[list[Any], bool, bool]:
    """Return the raw inputs of a request, whether it is answered with a list, and whether times are wanted."""
    if not body:
        raise InputError("The body is empty", hint='curl --data-binary @FILE, or JSON: {"inputs": ...}')
    if not (media_type == JSON or media_type.endswith("+json") or (body[:1] == b"{" and b'"inputs"' in body[:4096])):
        if len(inputs) > 1:
            raise InputError(f"The chain takes {listed([*inputs])}", hint='{"inputs": {"NAME": ...}}')
        ((name, kind),) = inputs.items()
        if kind == "tensor":
            raise InputError(f"`{name}` is a tensor", hint='{"inputs": [0.5, 1]}')
        value: Any = _utf8(body) if kind == "text" else body
        return [{name: raw_input(value, kind)}], False, False
    document = json_of(body)
    given, parameters = document["inputs"], document.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InputError("`parameters` is not an object", hint='{"inputs": ..., "parameters": {"timings": true}}')
    for name in parameters:
        if name not in _PARAMETERS:
            hint = did_you_mean(name, [*_PARAMETERS]) or "its steps have their own: with, in the chain's description"
            raise InputError(f"A chain takes no argument `{name}`", hint=hint, argument=name)
    with_timings = parameters.get("timings", False)
    if not isinstance(with_timings, bool):
        raise InputError(f"`timings` is {with_timings!r}, expected true or false", argument="timings")
    kinds = [*inputs.values()]
    is_flat = isinstance(given, list) and bool(given) and isinstance(given[0], (int, float))
    is_list = isinstance(given, list) and not (len(kinds) == 1 and kinds[0] in ("sound", "tensor") and is_flat)
    values = given if is_list else [given]
    if len(values) > MAX_INPUTS:
        raise PayloadTooLarge(f"A request has more than {MAX_INPUTS} inputs", hint="send fewer at once")
    if not values:
        raise InputError(f"A request has no inputs, expected 1 to {MAX_INPUTS}", hint='{"inputs": ["..."]}')
    return [_named(one, inputs) for one in values], is_list, with_timings


def _named(given: Any, inputs: Mapping[str, str]) -> Any:
    """Return a raw input that names no file of this server, by the names of the chain's inputs."""
    if isinstance(given, dict) and (len(inputs) > 1 or set(given) == set(inputs)):
        return {name: raw_input(one, inputs[name]) if name in inputs else None for name, one in given.items()}
    if len(inputs) == 1:
        ((name, kind),) = inputs.items()
        return {name: raw_input(given, kind)}
    return given  # the chain says what lacks


def _decoded_bytes(values: list[Any], inputs: Mapping[str, str]) -> int:
    """Return the bytes that the images of a request have when they are decoded.

    Raises:
        PayloadTooLarge: They have too many pixels.
    """
    images = [name for name, kind in inputs.items() if kind == "image"]
    given = [one[name] for one in values if isinstance(one, dict) for name in images if name in one]
    pixels = sum(pixels_of(one) for one in given if isinstance(one, bytes))
    if pixels > _MAX_PIXELS:
        raise PayloadTooLarge(f"The images of a request have more than {_MAX_PIXELS} pixels", hint="send fewer at once")
    return _CHANNELS * pixels


def _utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"The text is not UTF-8: {error.reason} at byte {error.start}", hint="send UTF-8") from error


def _written(run: ChainRun, *, is_list: bool, with_timings: bool) -> bytes:
    found = [as_json(answer) for answer in run.answer]
    answer: Any = found if is_list else found[0]
    if with_timings:
        answer = {"answer": answer, "timings": [one._asdict() for one in run.timings], "spared": run.spared}
    return answer_json(answer)
