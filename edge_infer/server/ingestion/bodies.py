"""Bodies of requests: read up to a limit, unpacked up to the same limit, so that a small bomb stays small."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from edge_infer.errors import InputError, PayloadTooLarge, listed
from edge_infer.server.errors import UnsupportedMediaType
from edge_infer.server.ingestion.zstd_frames import check_frames
from edge_infer.server.protocol.requests import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive

    from edge_infer.server.ingestion.memory_budget import BodyShare

#: Packed bodies up to this size are tried on the event loop: their headers and the first 64 KiB take 0.2 ms.
_SMALL_BYTES = 8 * 2**10
#: The most members of a gzip stream: compressors that work in blocks, such as bgzip, write one for each 64 KiB.
_MAX_MEMBERS = 4096
_PART_BYTES = 256 * 2**10
#: zlib's word for: a gzip or a zlib stream, whichever comes.
_GZIP_OR_ZLIB = 47


def too_large(limit: int, got: int | None = None) -> PayloadTooLarge:
    """Make the error for a body over the limit."""
    return PayloadTooLarge(
        f"The body has more than {limit} bytes", hint="send smaller batches", expected=limit, got=got
    )


async def read_body(receive: Receive, declared: int, limit: int, share: BodyShare | None = None) -> bytes:
    """Read a request's body, or refuse it as soon as it is known to be too large.

    Args:
        receive: ASGI's.
        declared: Its `Content-Length`, -1 where there is none.
        limit: The most bytes.
        share: Counts the memory of all bodies; None not to.

    Raises:
        PayloadTooLarge: It has more bytes than the limit.
        QueueFull: Other bodies have the memory.
        ClientDisconnect: The client left.
    """
    if declared > limit:
        raise too_large(limit, declared)
    counted = max(declared, 0)
    if share is not None:
        share.grow(counted)
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
        if share is not None and size > counted:
            share.grow(size - counted)
            counted = size
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
    return _inflated(body, limit, _GZIP_OR_ZLIB, _MAX_MEMBERS)


def _inflate(body: bytes, limit: int) -> bytes:
    """Unpack `deflate`, which by RFC 9110 is a zlib stream; some clients send it without its two bytes of header."""
    has_header = len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflated(body, limit, zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS, 1)


def _inflated(body: bytes, limit: int, wbits: int, most: int) -> bytes:
    """Unpack up to so many members, one behind the other."""
    stream, members = zlib.decompressobj(wbits), 1
    pieces, size, at = [], 0, 0
    while not (stream.eof and at == len(body)):
        if stream.eof:
            if members == most:
                raise EOFError(f"it has {len(body) - at} bytes behind its end")
            stream, members = zlib.decompressobj(wbits), members + 1
        # In parts, as what is behind a member is copied once for each.
        part = body[at : at + _PART_BYTES]
        if not part:
            raise EOFError("it is cut short")
        pieces.append(stream.decompress(part, limit + 1 - size))
        size += len(pieces[-1])
        if size > limit:
            raise too_large(limit)
        at += len(part) - len(stream.unused_data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unzstd(body: bytes, limit: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    check_frames(body)
    try:
        with ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            data = reader.read(limit + 1)
    except ZstdError as error:
        raise EOFError(str(error)) from error
    if len(data) > limit:
        raise too_large(limit)
    return data


_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "deflate": _inflate, "zstd": _unzstd}
