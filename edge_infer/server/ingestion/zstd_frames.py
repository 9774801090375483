"""Where the frames of a zstd stream end. Its decompressor does not say, so that a cut one would pass for whole.

Only headers are read, RFC 8878 section 3.1: https://www.rfc-editor.org/rfc/rfc8878#section-3.1
"""

from __future__ import annotations

_MAGIC = 0xFD2FB528
#: The magic numbers of frames without data end in any of sixteen digits.
_SKIPPABLE = 0x184D2A50
_BLOCK_HEAD_BYTES = 3
_RLE, _RESERVED = 1, 3
_ID_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
#: A stream of so many blocks, of a few bytes each, would take longer to look through than to unpack.
_MAX_BLOCKS = 2**16


def check_frames(data: bytes) -> None:
    """Refuse data that is no sequence of whole frames.

    Args:
        data: The stream.

    Raises:
        EOFError: It is cut short, has something behind its last frame, or more than 65536 blocks.
    """
    at, blocks = 0, 0
    while at < len(data) or not at:
        if len(data) - at < 5:
            raise EOFError("it is cut short")
        magic = _number(data, at, 4)
        if magic & ~15 == _SKIPPABLE:
            at += 8 + _number(data, at + 4, 4)
            blocks += 1
        elif magic == _MAGIC:
            at, blocks = _end_of_frame(data, at + 4, blocks)
        else:
            raise EOFError(f"it has something else at byte {at}")
        if at > len(data):
            raise EOFError("it is cut short")
        if blocks > _MAX_BLOCKS:
            raise EOFError(f"it has more than {_MAX_BLOCKS} blocks")


def _end_of_frame(data: bytes, at: int, blocks: int) -> tuple[int, int]:
    """Return where a frame ends, perhaps beyond the data, and the blocks up to there."""
    descriptor = data[at]
    is_single, has_checksum = bool(descriptor & 32), bool(descriptor & 4)
    at += 1 + (not is_single) + _ID_BYTES[descriptor & 3] + (_SIZE_BYTES[descriptor >> 6] or is_single)
    is_last = False
    while not is_last and at + _BLOCK_HEAD_BYTES <= len(data) and blocks <= _MAX_BLOCKS:
        head = _number(data, at, _BLOCK_HEAD_BYTES)
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == _RESERVED:
            raise EOFError(f"it has something else at byte {at}")
        at += _BLOCK_HEAD_BYTES + (1 if kind == _RLE else size)
        blocks += 1
    if not is_last:
        raise EOFError("it is cut short" if blocks <= _MAX_BLOCKS else f"it has more than {_MAX_BLOCKS} blocks")
    return at + 4 * has_checksum, blocks


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
