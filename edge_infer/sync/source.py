"""The origin of a store: a folder, or any web server that hosts static files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from edge_infer.errors import FetchError
from edge_infer.platform import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 2**16
_CONNECT_TIMEOUT_S = 10.0
_MAX_REDIRECTS = 3
#: A server that sends nothing for so long has stalled.
_STALL_TIMEOUT_S = 30.0


class Source(Protocol):
    """A store that is read."""

    location: str

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a small file.

        Raises:
            FetchError: It is not there (`status` is 404), or has more bytes than the limit.
        """

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        """Yield the bytes of a file from an offset on.

        Raises:
            FetchError: It is not there, or the server breaks off.
        """


def open_source(location: str, *, stall_timeout_s: float = _STALL_TIMEOUT_S) -> Source:
    """Return the store at a URL, in a folder, in a bucket or a registry."""
    if fetch.is_url(location):
        return _Http(location, stall_timeout_s)
    if "://" in location:
        from edge_infer.sync.remote import open_place

        return open_place(location)
    return _Folder(location)


class _Folder:
    def __init__(self, location: str) -> None:
        self.location = location

    def read(self, path: str, limit: int) -> bytes:
        return _limited(self.stream(path, 0), f"{self.location}/{path}", limit)

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        try:
            with Path(self.location, path).open("rb") as file:
                file.seek(start)
                while piece := file.read(_PIECE):
                    yield piece
        except FileNotFoundError as error:
            raise FetchError(
                f"The store `{self.location}` has no `{path}`", hint="edge-infer publish BUNDLE STORE", status=404
            ) from error
        except OSError as error:
            raise FetchError(f"`{path}` in `{self.location}` cannot be read: {error}", status=0) from error


class _Http:
    def __init__(self, location: str, stall_timeout_s: float) -> None:
        import urllib3

        self.location = location.rstrip("/")
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=stall_timeout_s),
            retries=urllib3.Retry(connect=0, read=0, status=0, other=0, redirect=_MAX_REDIRECTS),
        )

    def read(self, path: str, limit: int) -> bytes:
        return _limited(self.stream(path, 0), f"{self.location}/{path}", limit)

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        import urllib3

        url = f"{self.location}/{quote(path, safe='/%')}"  # python-tuf has escaped the names of roles already
        headers = {"User-Agent": "edge-infer", "Accept-Encoding": "identity", "Cache-Control": "no-transform"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            response = self._pool.request("GET", url, headers=headers, preload_content=False, redirect=True)
            with contextlib.closing(response):
                if response.status not in (200, 206):
                    raise FetchError(f"{url} answers with status {response.status}", url=url, status=response.status)
                coding = response.headers.get("Content-Encoding", "identity")
                if coding != "identity":
                    raise FetchError(f"{url} comes with Content-Encoding {coding}, which changes its bytes", status=0)
                skip = start if response.status == 200 else 0
                said = response.headers.get("Content-Range", "")
                if response.status == 206 and not said.startswith(f"bytes {start}-"):
                    raise FetchError(f"{url} answers with the range {said!r}, expected bytes {start}-", status=0)
                # A server without ranges sends the file from its start: what is here already is skipped.
                for piece in response.stream(_PIECE, decode_content=False):
                    rest = piece[skip:]
                    skip -= len(piece) - len(rest)
                    if rest:
                        yield rest
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise FetchError(
                f"{url} cannot be fetched: {_root_of(error)}", hint="is the server running?", url=url, status=0
            ) from error


def _root_of(error: BaseException) -> str:
    """Say what the system said: urllib3 wraps it several times."""
    while isinstance(inner := getattr(error, "reason", error.__cause__), BaseException):
        error = inner
    return getattr(error, "strerror", None) or str(error)


def _limited(pieces: Iterator[bytes], where: str, limit: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > limit:
            raise FetchError(f"{where} has more than {limit} bytes", expected=limit, status=0)
    return bytes(data)
