"""Written: an answer of the model as the body and headers that are sent."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.server.protocol.head import JSON, OCTETS
from edge_infer.server.protocol.requests import LARGE_BYTES
from edge_infer.server.response.writing import octets, write_answer
from edge_infer.tensors.datatypes import DATATYPES

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.scheduling.request import Answer, Timings

#: JSON writes a number in up to so many bytes.
_BYTES_OF_NUMBER = 8


class Written(NamedTuple):
    """An answer before it is sent.

    Attributes:
        body: What is sent.
        headers: What goes with it, but for those of every answer.
        timings: Where its time went.
        serialization_s: How long it took to write.
        is_kept: Whether it may be sent again: one of the fast variant is not.
        variant: What ran, where the model has several variants.
    """

    body: bytes
    headers: list[tuple[bytes, bytes]]
    timings: Timings
    serialization_s: float
    is_kept: bool = True
    variant: str = ""


def takes_long(asked: InferRequest, answer: Answer, *, is_raw: bool) -> bool:
    """Tell whether an answer is so much JSON that a thread should write it."""
    if is_raw or asked.binary:
        return False
    return any(value.size >= LARGE_BYTES // _BYTES_OF_NUMBER for value in answer.outputs.values())


def write(model: LoadedModel, head: RequestHead, asked: InferRequest, answer: Answer) -> Written:
    """Write an answer: octets for octets, else the protocol's JSON with the tensors that were asked for in binary."""
    start = perf_counter()
    if head.is_raw and head.json_length is None and len(model.outputs) == 1:
        spec = model.outputs[0]
        value = answer.outputs[spec.name]
        body = bytes(octets(value))
        headers = [
            (b"content-type", OCTETS.encode()),
            (b"tensor-datatype", DATATYPES[spec.dtype].encode()),
            (b"tensor-shape", ",".join(map(str, value.shape)).encode()),
        ]
    else:
        body, json_length = write_answer(
            model.name, model.version, asked, answer.outputs, model.outputs, answer.variant
        )
        headers = [(b"content-type", JSON.encode() if json_length is None else OCTETS.encode())]
        if json_length is not None:
            headers.append((b"inference-header-content-length", b"%d" % json_length))
    if answer.variant:
        headers.append((b"model-variant", answer.variant.encode()))
    is_kept = answer.variant in ("", model.variant)
    return Written(body, headers, answer.timings, perf_counter() - start, is_kept, answer.variant)
