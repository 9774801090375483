"""A store that lies elsewhere: in an S3 bucket, or any place that fsspec knows, or in an OCI registry.

A publisher works on a copy in the cache folder: the metadata is fetched, packs where a delta needs them; what is new is
uploaded afterwards, the timestamp last, so that a client that reads meanwhile sees the old state. Publish from one
place at a time.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from edge_infer.errors import FetchError, StoreError
from edge_infer.platform import fetch
from edge_infer.sync.oci import SCHEME as OCI
from edge_infer.sync.oci import OciStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMESTAMP = "tuf/timestamp.json"
FOLDERS = ("tuf", "revisions", "packs")
_PIECE = 2**16
MAX_SMALL = 16 * 2**20


def is_remote(location: str) -> bool:
    """Tell whether a store's location is to be written by fsspec or as an OCI artifact."""
    return "://" in location and not fetch.is_url(location)


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
            for path in sorted(paths, key=lambda one: (one == TIMESTAMP, one)):
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
        except Exception as error:  # each implementation has errors of its own: botocore's is not an OSError
            raise FetchError(
                f"{self.location} cannot be read or written: {error}",
                hint="are its credentials and endpoint set?",
                status=0,
            ) from error


def open_place(location: str) -> OciStore | FsspecStore:
    """Open the store at `oci://HOST/REPOSITORY:TAG`, `s3://BUCKET/PREFIX`, or another place that fsspec knows."""
    return OciStore(location) if location.startswith(OCI) else FsspecStore(location)
