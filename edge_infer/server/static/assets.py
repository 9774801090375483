"""Serve files over HTTP: entity tags, conditional requests, byte ranges, encodings, caching."""

from __future__ import annotations

import hashlib
import io
import os
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from anyio import to_thread
from starlette.responses import Response

from edge_infer.server.errors import PathNotFound, RangeNotSatisfiable
from edge_infer.server.response.negotiation import (
    ByteRange,
    Unsatisfiable,
    choose_encodings,
    is_compressible,
    matches,
    media_type,
    parse_range,
)
from edge_infer.server.responses import problem
from edge_infer.server.static.encodings import MAX_BYTES, MIN_BYTES, EncodedFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

_CHUNK_BYTES = 2**20
#: A year, which RFC 9111 readers take for ever.
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


class Asset:
    """An open file with its identity.

    Attributes:
        name: Its last name, which tells the media type.
        file: Its bytes, open for reading, at any position.
        size: How many.
        sha256: Their digest, in hex.
    """

    __slots__ = ("file", "name", "sha256", "size")

    def __init__(self, name: str, file: BinaryIO, size: int, sha256: str) -> None:
        self.name = name
        self.file = file
        self.size = size
        self.sha256 = sha256

    @classmethod
    def of_bytes(cls, name: str, data: bytes, sha256: str | None = None) -> Asset:
        """Make an asset of bytes in memory."""
        return cls(name, io.BytesIO(data), len(data), sha256 or hashlib.sha256(data).hexdigest())

    def read(self) -> bytes:
        """Return all bytes."""
        self.file.seek(0)
        return self.file.read()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Assets:
    """Opens files and answers requests for them.

    Args:
        encoded: Where compressed copies are kept.
    """

    def __init__(self, encoded: EncodedFiles) -> None:
        self._encoded = encoded
        self._digests: dict[tuple[int, ...], str] = {}
        self._lock = Lock()

    def open(self, path: Path) -> Asset:
        """Open a file; it may take as long as hashing it.

        The digest is of the bytes that will be sent: a file that is replaced meanwhile stays open under its old name.

        Raises:
            PathNotFound: There is no such file.
        """
        try:
            file = path.open("rb")
        except OSError:
            raise PathNotFound(f"There is no file `{path.name}`", path=path.name) from None
        try:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            digest = self._digests.get(key)
            if digest is None:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                with self._lock:
                    self._digests[key] = digest
        except BaseException:
            file.close()
            raise
        return Asset(path.name, file, status.st_size, digest)

    async def answer(self, request: Request, opener: Callable[[], Asset], content_type: str | None = None) -> Response:
        """Answer a GET or HEAD request for a file.

        A request that names the sha256 in its query, `?sha256=HEX`, is answered with these bytes, which the client
        may keep for ever, or not at all.

        Args:
            request: The request.
            opener: Opens the file, in a thread.
            content_type: Its media type where the name does not tell it.
        """
        asset = await to_thread.run_sync(opener)
        handed_over = False
        try:
            response = await self._respond(request, asset, content_type or media_type(asset.name))
            handed_over = isinstance(response, AssetStream)
            return response
        finally:
            if not handed_over:
                asset.close()

    async def _respond(self, request: Request, asset: Asset, kind: str) -> Response:
        pinned = request.query_params.get("sha256")
        if pinned is not None and pinned != asset.sha256:
            raise PathNotFound(
                f"`{asset.name}` has sha256 {asset.sha256}, not the one that the request names",
                hint="it was changed: reload manifest.json",
                expected=pinned[:64],
                got=asset.sha256,
            )
        headers = {"Accept-Ranges": "bytes", "Cache-Control": _FOREVER if pinned else _ASK_AGAIN}
        wants_range = request.method == "GET" and "range" in request.headers
        encoding, body = None, None
        if is_compressible(kind):
            headers["Vary"] = "Accept-Encoding"
            if not wants_range and MIN_BYTES <= asset.size <= MAX_BYTES:
                encoding, body = await self._encode(asset, request.headers.get("accept-encoding", ""))
        tag = f'"{asset.sha256}-{encoding}"' if encoding else f'"{asset.sha256}"'
        headers["ETag"] = tag
        if matches(request.headers.get("if-none-match", ""), tag, weak=True):
            return Response(None, 304, headers)
        headers["Content-Type"] = kind
        if encoding and body is not None:
            headers |= {"Content-Encoding": encoding, "Content-Length": str(len(body))}
            return Response(None if request.method == "HEAD" else body, 200, headers)
        if request.method == "HEAD":
            return Response(None, 200, {**headers, "Content-Length": str(asset.size)})
        return await self._plain(request, asset, headers, tag if wants_range else "")

    async def _encode(self, asset: Asset, accepted: str) -> tuple[str | None, bytes | None]:
        for encoding in choose_encodings(accepted, self._encoded.names):
            body = await to_thread.run_sync(self._encoded.get, asset.sha256, encoding, asset.read)
            # The decision that a file does not shrink is the same for every encoding.
            return (encoding, body) if body is not None else (None, None)
        return None, None

    async def _plain(self, request: Request, asset: Asset, headers: dict[str, str], range_tag: str) -> Response:
        """Send the whole file, or the range that was asked for."""
        part, status = ByteRange(0, asset.size), 200
        if range_tag and _range_still_holds(request.headers.get("if-range"), range_tag):
            asked = parse_range(request.headers["range"], asset.size)
            if isinstance(asked, Unsatisfiable):
                return _not_satisfiable(request.headers["range"], asset)
            if asked is not None:
                part, status = asked, 206
                headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{asset.size}"
        length = part.stop - part.start
        headers["Content-Length"] = str(length)
        if length <= _CHUNK_BYTES:
            return Response(await to_thread.run_sync(_read, asset.file, part.start, length), status, headers)
        return AssetStream(asset, part, status, headers)


def _range_still_holds(if_range: str | None, tag: str) -> bool:
    """Tell whether a range may be sent: the client's copy, if it names one, is of the same bytes. Dates never match."""
    return if_range is None or matches(if_range, tag, weak=False)


def _not_satisfiable(asked: str, asset: Asset) -> Response:
    error = RangeNotSatisfiable(
        f"`{asset.name}` has {asset.size} bytes, the range `{asked[:64]}` begins after its end",
        hint=f"Range: bytes=0-{max(asset.size - 1, 0)}",
        size=asset.size,
    )
    response = problem(error, {"Content-Range": f"bytes */{asset.size}", "Accept-Ranges": "bytes"})
    response.status_code = 416
    return response


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


class AssetStream(Response):
    """Sends a part of a large file piece by piece and closes it, whatever happens."""

    def __init__(self, asset: Asset, part: ByteRange, status: int, headers: dict[str, str]) -> None:
        super().__init__(None, status, headers)
        self._asset = asset
        self._part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  as ASGI says
        """Send it."""
        start, stop = self._part
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while start < stop:
                chunk = await to_thread.run_sync(_read, self._asset.file, start, min(_CHUNK_BYTES, stop - start))
                start += len(chunk) or stop
                await send({"type": "http.response.body", "body": chunk, "more_body": start < stop})
        finally:
            self._asset.close()


def safe_path(root: Path, path: str) -> Path:
    """Return the file that a URL's path names under a folder.

    Raises:
        PathNotFound: It is none, is hidden, or lies outside the folder by any trick, links included.
    """
    pieces = path.split("/")
    if not any(piece in ("", ".", "..") or piece.startswith(".") or set(piece) & set("\\:\0") for piece in pieces):
        try:
            found = root.joinpath(*pieces).resolve()
            if found.is_relative_to(root.resolve()) and found.is_file():
                return found
        except (OSError, ValueError, RuntimeError):
            pass
    raise PathNotFound(f"There is no file `{path[:200]}`", hint="check the spelling", path=path[:200])
