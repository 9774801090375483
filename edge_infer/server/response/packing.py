"""Large answers are compressed where the client reads that and they shrink: fast levels, in a thread."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from edge_infer.server.response.negotiation import choose_encodings
from edge_infer.server.response.parts import size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.server.response.parts import Parts

#: Below this a compressor costs more than a network saves: 16 KiB take 0.1 ms, and 1.3 ms at 100 Mbit/s.
MIN_BYTES = 16 * 2**10
#: A sample tells whether the body shrinks at all; raw floats of a network rarely do.
_SAMPLE_BYTES = 4096
_WORTHWHILE = 0.8
_GZIP = 31


def _gzip(parts: Parts) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return b"".join([*map(packer.compress, parts), packer.flush()])


def _zstd(parts: Parts) -> bytes:
    from zstandard import ZstdCompressor

    packer = ZstdCompressor(level=1).compressobj(size=size_of(parts))
    return b"".join([*map(packer.compress, parts), packer.flush()])


_PACKERS: dict[str, Callable[[Parts], bytes]] = {"zstd": _zstd, "gzip": _gzip}


def pack(parts: Parts, accept_encoding: str) -> tuple[Parts, str]:
    """Compress an answer.

    Args:
        parts: Its body.
        accept_encoding: What the client reads.

    Returns:
        The body and its encoding; the body as it was and nothing where that is better.
    """
    encoding = next((name for name in choose_encodings(accept_encoding, tuple(_PACKERS)) if name in _PACKERS), "")
    longest = max(parts, key=len)
    middle = max(0, (len(longest) - _SAMPLE_BYTES) // 2)
    sample = longest[middle : middle + _SAMPLE_BYTES]
    if not encoding or len(zlib.compress(sample, 1)) > _WORTHWHILE * len(sample):
        return parts, ""
    return (_PACKERS[encoding](parts),), encoding
