"""A store that lies elsewhere: in an S3 bucket, or any place that fsspec knows, or in an OCI registry.

A publisher works on a copy in the cache folder: the metadata is fetched, packs where a delta needs them; what is new is
uploaded afterwards, the timestamp last, so that who reads meanwhile sees the old state. Publish from one place at a
time.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edge_infer import platform
from edge_infer.errors import FetchError, StoreError
from edge_infer.manifest import check_path
from edge_infer.platform import cache_folder
from edge_infer.sync.oci import SCHEME as OCI
from edge_infer.sync.oci import OciStore
from edge_infer.sync.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMESTAMP = "tuf/timestamp.json"
_FOLDERS = ("tuf", "revisions", "packs")
_PIECE = 2**16
_MAX_SMALL = 16 * 2**20


def is_remote(location: str) -> bool:
    """Tell whether a store's location is to be written by fsspec or as an OCI artifact."""
    return "://" in location and not platform.is_url(location)


class Place(Protocol):
    """Where a store lies."""

    def names(self) -> dict[str, int]:
        """Return its files and their sizes."""

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a file."""

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        """Yield the bytes of a file from an offset on."""

    def put(self, folder: Path, paths: list[str]) -> None:
        """Upload files of a folder, the timestamp last."""


class FsspecStore:
    """A store at a place that fsspec knows, such as `s3://BUCKET/PREFIX`.

    Args:
        location: Its URL. Credentials and endpoint come as fsspec's implementation takes them: for S3 `AWS_` variables.

    Raises:
        StoreError: What reads such places is not installed.
    """

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        try:
            from fsspec.core import url_to_fs

            self._fs, self._root = url_to_fs(self.location)
        except (ImportError, ValueError) as error:
            scheme = location.partition("://")[0]
            hint = "pip install 'edge-infer[s3]'" if scheme == "s3" else f"pip install what fsspec needs for {scheme}"
            raise StoreError(f"`{location}` cannot be opened: {error}", hint=hint) from error

    def names(self) -> dict[str, int]:
        """Return its files and their sizes."""
        with self._translated():
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.find(self._root, detail=True)
        start = len(self._root.rstrip("/")) + 1
        return {path[start:]: int(entry["size"]) for path, entry in found.items()}

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a file, as `Source.read` does."""
        data = b"".join(self._pieces(path, 0, limit + 1))
        if len(data) > limit:
            raise FetchError(f"`{path}` in {self.location} has more than {limit} bytes", expected=limit, status=0)
        return data

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        """Yield the bytes of a file from an offset on, as `Source.stream` does."""
        yield from self._pieces(path, start, None)

    def put(self, folder: Path, paths: list[str]) -> None:
        """Upload files of a folder, the timestamp last."""
        with self._translated():
            for path in sorted(paths, key=lambda one: (one == _TIMESTAMP, one)):
                target = f"{self._root}/{path}"
                self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(folder / path), target)

    def _pieces(self, path: str, start: int, limit: int | None) -> Iterator[bytes]:
        with self._translated(), self._fs.open(f"{self._root}/{path}", "rb", block_size=2**20) as file:
            file.seek(start)
            left = limit
            while piece := file.read(_PIECE if left is None else min(_PIECE, left)):
                left = None if left is None else left - len(piece)
                yield piece

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FetchError(f"{self.location} has no such file: {error}", status=404) from error
        except Exception as error:  # each implementation has errors of its own: botocore's are no OSError
            raise FetchError(
                f"{self.location} cannot be read or written: {error}",
                hint="are its credentials and endpoint set?",
                status=0,
            ) from error


def open_place(location: str) -> OciStore | FsspecStore:
    """Open the store at `oci://HOST/REPOSITORY:TAG`, `s3://BUCKET/PREFIX`, or another place that fsspec knows."""
    return OciStore(location) if location.startswith(OCI) else FsspecStore(location)


@contextlib.contextmanager
def published(location: str) -> Iterator[Repository]:
    """Open a store to publish into, wherever it lies; what was written is uploaded when the context ends well.

    Raises:
        StoreError: It changed meanwhile, or cannot be written.
        FetchError: It cannot be read.
    """
    if not is_remote(location):
        yield Repository(Path(location))
        return
    place = open_place(location)
    folder = cache_folder() / "published" / hashlib.sha256(location.encode()).hexdigest()[:32]
    before = _fetched(place, folder)
    yield Repository(folder, missing=lambda path: _fetch(place, path, folder / path))
    there = place.names()
    if there and hashlib.sha256(place.read(_TIMESTAMP, _MAX_SMALL)).hexdigest() != before.get(_TIMESTAMP):
        raise StoreError(f"`{location}` was changed by somebody else meanwhile", hint="do it again")
    paths = [
        path.relative_to(folder).as_posix()
        for name in _FOLDERS
        for path in (folder / name).rglob("*")
        if path.is_file()
    ]
    new = [
        path
        for path in paths
        if path not in there or (path.startswith("tuf/") and _digest(folder / path) != before.get(path))
    ]
    if new:
        place.put(folder, new)


def _fetched(place: Place, folder: Path) -> dict[str, str]:
    """Fetch the metadata and revisions of a store; return the sha256 of each file of the metadata."""
    shutil.rmtree(
        folder / "tuf", ignore_errors=True
    )  # what was offered is what lies there, not what was once tried here
    for path in place.names():
        check_path(path, "store")
        if path.startswith("tuf/") or (path.startswith("revisions/") and not (folder / path).is_file()):
            _fetch(place, path, folder / path)
    return {f"tuf/{path.name}": _digest(path) for path in (folder / "tuf").glob("*")}


def _fetch(place: Place, path: str, target: Path) -> None:
    from edge_infer.sync.disk import Disk

    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.part")
    with temporary.open("wb") as file:
        for piece in place.stream(path, 0):
            file.write(piece)
    Disk().rename(temporary, target)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
