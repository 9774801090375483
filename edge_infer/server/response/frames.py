"""The answers of a stream: each is written as a frame, and frames that are ready together go out in one message."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.server.response.parts import size_of
from edge_infer.server.response.writing import octets, write_answer

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.response.parts import Part, Parts
    from edge_infer.server.scheduling.request import Answer

#: Answers are joined up to this many bytes: clients refuse long messages, Python's `websockets` from 1 MiB on.
_MAX_MESSAGE_BYTES = 2**18


class WrittenFrame(NamedTuple):
    """An answer before it is sent: its parts, how many of their bytes are JSON, and how long it took to write."""

    parts: Parts
    json_length: int
    seconds: float


def write_frame(model: LoadedModel, asked: InferRequest, result: Answer, is_raw: bool) -> WrittenFrame:
    """Write an answer: the bytes of the only output where it was asked raw, else JSON and tensors behind it."""
    start = perf_counter()
    if is_raw:
        return WrittenFrame((octets(result.outputs[model.outputs[0].name]),), 0, perf_counter() - start)
    most = model.answer_size.most
    parts, length = write_answer(model.name, model.version, asked, result.outputs, model.outputs, result.variant, most)
    return WrittenFrame(parts, size_of(parts) if length is None else length, perf_counter() - start)


def joined(frames: list[Parts], most: int = _MAX_MESSAGE_BYTES) -> list[list[Part]]:
    """Join the parts of frames to messages of at most so many bytes; a frame that has more is a message of its own.

    >>> joined([(b"a", b"a"), (b"bb",), (b"cccc",)], 4)
    [[b'a', b'a', b'bb'], [b'cccc']]
    """
    messages: list[list[Part]] = [[]]
    size = 0
    for frame in frames:
        length = size_of(frame)
        if size and size + length > most:
            messages.append([])
            size = 0
        messages[-1] += frame
        size += length
    return messages
