"""Bodies of requests: read up to a limit, unpacked up to the same limit, so that a small bomb stays small."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from edge_infer.errors import InputError, PayloadTooLarge, listed
from edge_infer.server.errors import UnsupportedMediaType
from edge_infer.server.protocol.requests import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive


#: Packed bodies up to this size are tried on the event loop: their headers and the first 64 KiB take 0.2 ms.
_SMALL_BYTES = 8 * 2**10
#: The most members of a gzip stream: compressors that work in blocks, such as bgzip, write one for each 64 KiB.
MAX_MEMBERS = 4096
#: The most frames of a zstd stream.
MAX_FRAMES = 2**16
#: The least bytes of a part of a zstd stream, and the parts of the longest body: four bytes become up to 128 KiB.
_ZSTD_PART_BYTES, _ZSTD_PARTS = 64, 2**17
_PART_BYTES = 256 * 2**10
#: zlib's word for: a gzip or a zlib stream, whichever comes.
_GZIP_OR_ZLIB = 47


def too_large(limit: int, got: int | None = None) -> PayloadTooLarge:
    """Make the error for a body over the limit."""
    return PayloadTooLarge(
        f"The body has more than {limit} bytes",
        hint="send smaller batches, and tensors in binary instead of JSON",
        expected=limit,
        got=got,
    )


async def read_body(receive: Receive, declared: int, limit: int, grow: Callable[[int], None] | None = None) -> bytes:
    """Read a request's body, or refuse it as soon as it is known to be too large.

    Args:
        receive: ASGI's.
        declared: Its `Content-Length`, -1 where there is none.
        limit: The most bytes.
        grow: Takes memory for so many bytes that arrived; None not to count them.

    Raises:
        PayloadTooLarge: It has more bytes than the limit.
        QueueFull: Other bodies have the memory.
        ClientDisconnect: The client left.
    """
    if declared > limit:
        raise too_large(limit, declared)
    chunks: list[bytes] = []
    size, has_more = 0, True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        has_more = message.get("more_body", False)
        size += len(chunks[-1])
        if size > limit:
            raise too_large(limit)
        if grow is not None:
            grow(len(chunks[-1]))
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def unpack(body: bytes, encoding: bytes, limit: int) -> bytes:
    """Undo the compression of a body.

    Args:
        body: What came.
        encoding: Its `Content-Encoding`.
        limit: The most bytes that may come out.

    Raises:
        UnsupportedMediaType: The encoding is none of those that are read.
        InputError: The body is not encoded that way, or is cut short.
        PayloadTooLarge: It unpacks to more than the limit.
    """
    if encoding in (b"", b"identity"):
        return body
    name = encoding.decode("latin-1")
    unpacker = _UNPACKERS.get(name)
    if unpacker is None:
        raise UnsupportedMediaType(
            f"The body is encoded as `{name[:128]}`; choose from {listed(list(_UNPACKERS))}",
            hint="send it uncompressed",
            allowed=list(_UNPACKERS),
        )
    try:
        return unpacker(body, limit)
    except (zlib.error, EOFError) as error:
        raise InputError(f"The body is not {name}: {error}", hint="leave `Content-Encoding` out") from error


async def unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    """Undo the compression of a body as `unpack` does, in a thread where much may come out.

    Args:
        body: What came.
        encoding: Its `Content-Encoding`.
        limit: The most bytes that may come out.

    Raises:
        UnsupportedMediaType: The encoding is none of those that are read.
        InputError: The body is not encoded that way, or is cut short.
        PayloadTooLarge: It unpacks to more than the limit.
    """
    if len(body) <= _SMALL_BYTES:
        with suppress(PayloadTooLarge):
            return unpack(body, encoding, min(limit, LARGE_BYTES))
    return await asyncio.to_thread(unpack, body, encoding, limit)


def _gunzip(body: bytes, limit: int) -> bytes:
    return _inflated(body, limit, _GZIP_OR_ZLIB, MAX_MEMBERS)


def _inflate(body: bytes, limit: int) -> bytes:
    """Unpack `deflate`, which by RFC 9110 is a zlib stream; some clients send it without its two bytes of header."""
    has_header = len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflated(body, limit, zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS, 1)


def _inflated(body: bytes, limit: int, wbits: int, most: int) -> bytes:
    """Unpack up to so many members of zlib."""

    def unpack_part(stream: Any, part: bytes, room: int) -> bytes:
        data: bytes = stream.decompress(part, room)
        return data

    return _members(body, limit, lambda: zlib.decompressobj(wbits), unpack_part, most, _PART_BYTES)


def _unzstd(body: bytes, limit: int) -> bytes:
    """Unpack frames of zstd, in parts so short that the little that each may become bounds the memory of a bomb."""
    from zstandard import ZstdDecompressor, ZstdError

    def unpack_part(stream: Any, part: bytes, _room: int) -> bytes:
        data: bytes = stream.decompress(part)
        return data

    part_bytes = max(_ZSTD_PART_BYTES, limit // _ZSTD_PARTS)
    try:
        return _members(body, limit, ZstdDecompressor().decompressobj, unpack_part, MAX_FRAMES, part_bytes)
    except ZstdError as error:
        raise EOFError(str(error)) from error


def _members(
    body: bytes,
    limit: int,
    make: Callable[[], Any],
    unpack_part: Callable[[Any, bytes, int], bytes],
    most: int,
    part_bytes: int,
) -> bytes:
    """Unpack up to so many members, one behind the other.

    Args:
        body: The members.
        limit: The most bytes that they may become.
        make: Makes the decompressor of a member, with `eof` and `unused_data`.
        unpack_part: Gives it a part, and the most bytes that are wanted.
        most: The most members.
        part_bytes: The bytes of a part; what is behind a member is copied once for each.

    Raises:
        EOFError: The last member is cut short, or there are more members.
        PayloadTooLarge: They become more bytes than the limit.
    """
    stream, members = make(), 1
    pieces, size, at = [], 0, 0
    while not (stream.eof and at == len(body)):
        if stream.eof:
            if members == most:
                raise EOFError(f"it has {len(body) - at} bytes behind its end")
            stream, members = make(), members + 1
        part = body[at : at + part_bytes]
        if not part:
            raise EOFError("it is cut short")
        pieces.append(unpack_part(stream, part, limit + 1 - size))
        size += len(pieces[-1])
        if size > limit:
            raise too_large(limit)
        at += len(part) - len(stream.unused_data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "deflate": _inflate, "zstd": _unzstd}
