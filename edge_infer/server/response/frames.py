"""The answers of a stream: each is written as a frame, and frames that are ready together go out in one message."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.server.response.writing import octets, write_answer

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.server.scheduling.request import Answer

#: Answers are joined up to this many bytes: clients refuse long messages, Python's `websockets` from 1 MiB on.
_MAX_MESSAGE_BYTES = 2**18


class WrittenFrame(NamedTuple):
    """An answer before it is sent: its bytes, how many of them are JSON, and how long it took to write."""

    body: bytes | memoryview
    json_length: int
    seconds: float


def write_frame(model: LoadedModel, asked: InferRequest, result: Answer, is_raw: bool) -> WrittenFrame:
    """Write an answer: the bytes of the only output where it was asked raw, else JSON and tensors behind it."""
    start = perf_counter()
    if is_raw:
        return WrittenFrame(octets(result.outputs[model.outputs[0].name]), 0, perf_counter() - start)
    most = model.answer_size.most
    body, length = write_answer(model.name, model.version, asked, result.outputs, model.outputs, result.variant, most)
    return WrittenFrame(body, len(body) if length is None else length, perf_counter() - start)


def joined(frames: list[bytes], most: int = _MAX_MESSAGE_BYTES) -> list[bytes]:
    """Join frames to messages of at most so many bytes; a frame that has more is a message of its own.

    >>> joined([b"aa", b"bb", b"cccc"], 4)
    [b'aabb', b'cccc']
    """
    if sum(map(len, frames)) <= most:
        return [b"".join(frames)]
    messages: list[list[bytes]] = [[]]
    size = 0
    for frame in frames:
        if size and size + len(frame) > most:
            messages.append([])
            size = 0
        messages[-1].append(frame)
        size += len(frame)
    return [b"".join(message) for message in messages]
