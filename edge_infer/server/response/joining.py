"""Answers of a stream, joined to messages: those of a batch come in one, which saves most of what it costs."""

from __future__ import annotations

#: Answers are joined up to this many bytes: clients refuse long messages, Python's `websockets` from 1 MiB on.
_MAX_MESSAGE_BYTES = 2**18


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
