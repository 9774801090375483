"""Bodies of requests: read up to a limit, unpacked up to the same limit, so that a small bomb stays small."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from edge_infer.errors import InputError, PayloadTooLarge, listed
from edge_infer.server.problems import UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive

#: Bodies of JSON from this size on are parsed in a thread: 64 KiB take about a millisecond.
LARGE_BYTES = 64 * 2**10
#: zlib's word for: a gzip or a zlib stream, whichever comes.
_GZIP_OR_ZLIB = 47


def too_large(limit: int, got: int | None = None) -> PayloadTooLarge:
    """Make the error for a body over the limit."""
    return PayloadTooLarge(
        f"The body has more than {limit} bytes", hint="send smaller batches", expected=limit, got=got
    )


async def read_body(receive: Receive, declared: int, limit: int) -> bytes:
    """Read a request's body, or refuse it as soon as it is known to be too large.

    Args:
        receive: ASGI's.
        declared: Its `Content-Length`, -1 where there is none.
        limit: The most bytes.

    Raises:
        PayloadTooLarge: It has more bytes than the limit.
        ClientDisconnect: The client left.
    """
    if declared > limit:
        raise too_large(limit, declared)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    if len(body) > limit:
        raise too_large(limit)
    if not message.get("more_body", False):
        return body
    chunks, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


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


def _gunzip(body: bytes, limit: int) -> bytes:
    return _inflate_with(zlib.decompressobj(_GZIP_OR_ZLIB), body, limit)


def _inflate(body: bytes, limit: int) -> bytes:
    """Unpack `deflate`, which by RFC 9110 is a zlib stream; some clients send it without its two bytes of header."""
    has_header = len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflate_with(zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS), body, limit)


def _inflate_with(stream: zlib._Decompress, body: bytes, limit: int) -> bytes:
    data = stream.decompress(body, limit + 1)
    if len(data) > limit:
        raise too_large(limit)
    if not stream.eof:
        raise EOFError("it is cut short")
    return data


def _unzstd(body: bytes, limit: int) -> bytes:
    from io import BytesIO

    from zstandard import ZstdDecompressor, ZstdError

    try:
        with ZstdDecompressor().stream_reader(BytesIO(body)) as reader:
            data = reader.read(limit + 1)
    except ZstdError as error:
        raise EOFError(str(error)) from error
    if len(data) > limit:
        raise too_large(limit)
    if not data:
        raise EOFError("it is cut short")
    return data


_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "deflate": _inflate, "zstd": _unzstd}
