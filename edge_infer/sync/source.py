"""The origin of a store: a folder, or any web server that hosts static files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urljoin, urlsplit

from edge_infer.errors import FetchError
from edge_infer.platform import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

    from urllib3 import BaseHTTPResponse

_PIECE = 2**16
_CONNECT_TIMEOUT_S = 10.0
_MAX_REDIRECTS = 3
_NEW_STORE = "check the address; a new store: edge-infer store keys init STORE, then edge-infer publish BUNDLE STORE"
#: The environment's variable with the other hosts, `HOST` or `HOST:PORT`, that redirects of a store may lead to.
_HOSTS = "EDGE_INFER_REDIRECT_HOSTS"
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
            raise FetchError(f"The store `{self.location}` has no `{path}`", hint=_NEW_STORE, status=404) from error
        except OSError as error:
            raise FetchError(f"`{path}` in `{self.location}` cannot be read: {error}", status=0) from error


class _Http:
    def __init__(self, location: str, stall_timeout_s: float) -> None:
        import urllib3

        self.location = location.rstrip("/")
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=stall_timeout_s),
            retries=urllib3.Retry(connect=0, read=0, status=0, other=0, redirect=0),
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
            response = self._answer(url, headers)
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

    def _answer(self, url: str, headers: dict[str, str]) -> BaseHTTPResponse:
        """Ask for a file, also where the store's host says that it lies elsewhere there."""
        place = url
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._pool.request("GET", place, headers=headers, preload_content=False, redirect=False)
            target = response.get_redirect_location()
            if not target:
                return response
            response.close()
            before, place = urlsplit(place), urljoin(place, target)
            if not may_follow(before, urlsplit(place)):
                host = urlsplit(place).hostname or "no host"
                raise FetchError(
                    f"{url} redirects to {host} by {urlsplit(place).scheme}, which is not its own host",
                    hint=f"{_HOSTS}={host} allows other hosts, with commas between, but never http after https",
                    url=url,
                    status=0,
                )
        raise FetchError(
            f"{url} redirects more than {_MAX_REDIRECTS} times", hint="name the place it leads to", url=url, status=0
        )


def may_follow(before: SplitResult, after: SplitResult) -> bool:
    """Tell whether a redirect stays on its host and port, or leads to a host that the user allows."""
    if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
        return False
    allowed = {name.strip().lower() for name in os.environ.get(_HOSTS, "").split(",")} - {""}
    if after.hostname in allowed or f"{after.hostname}:{_port(after)}" in allowed:
        return True
    ports = {(before.scheme, _port(before)), (after.scheme, _port(after))}
    return before.hostname == after.hostname and (
        _port(before) == _port(after) or ports == {("http", 80), ("https", 443)}
    )


def _port(place: SplitResult) -> int:
    return place.port or (443 if place.scheme == "https" else 80)


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
