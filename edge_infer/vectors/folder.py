"""The folder of an index on disk: its files are added first, then `index.json` names them in one step.

A segment is written under a temporary name, synced and renamed; `index.json` likewise, after it. A process that dies in
between leaves the old index, and files that nobody names: the next writer removes them.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import BundleError
from edge_infer.platform.atomic_write import write_file
from edge_infer.platform.hashing import sha256
from edge_infer.vectors.catalogue import MAX_BYTES, NAME, Catalogue, FileEntry, read_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = ".lock"
SEGMENTS, DELETED = "segments", "deleted"


class IndexFolder:
    """The folder of an index.

    Args:
        path: Where it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read(self) -> Catalogue:
        """Read `index.json`.

        Raises:
            BundleError: There is none, or it is wrong.
        """
        try:
            with (self.path / NAME).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise BundleError(
                f"There is no index at `{self.path}`: {error.strerror}",
                hint=f"edge-infer index build DOCS --model BUNDLE -o {self.path}",
            ) from error
        if len(data) > MAX_BYTES:
            raise BundleError(f"`{self.path}/{NAME}` has more than {MAX_BYTES:,} bytes", hint="compact the index")
        return read_catalogue(data, self.path.name)

    def create(self, catalogue: Catalogue) -> None:
        """Make the folder with an empty index.

        Raises:
            BundleError: There is something already.
        """
        if self.path.is_file() or (self.path.is_dir() and any(self.path.iterdir())):
            raise BundleError(f"`{self.path}` is there already", hint="Index.open(PATH), or remove it first")
        self.path.mkdir(parents=True, exist_ok=True)
        self.commit(catalogue)

    def add(self, kind: str, data: bytes, rows: int) -> FileEntry:
        """Write a file of entries or of deleted ones. Nothing sees it before `commit`."""
        digest = sha256(data)
        entry = FileEntry(f"{kind}/{digest[:16]}.safetensors", rows, len(data), digest)
        folder = self.path / kind
        folder.mkdir(exist_ok=True)
        write_file(folder / Path(entry.path).name, data)
        _sync(folder)
        return entry

    def commit(self, catalogue: Catalogue) -> None:
        """Let the folder be another index from now on."""
        write_file(self.path / NAME, catalogue.to_bytes())
        _sync(self.path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other processes from writing.

        Raises:
            BundleError: One is writing.
        """
        if sys.platform in ("emscripten", "win32"):  # a page has one process; Windows no such locks
            yield
            return
        from edge_infer.platform.posix import lock_alone

        with (self.path / _LOCK).open("ab") as file:
            try:
                lock_alone(file)
            except OSError as error:
                raise BundleError(
                    f"`{self.path}` is being written by another process", hint="wait until it is done"
                ) from error
            yield

    def remove_unnamed(self, catalogue: Catalogue) -> None:
        """Remove files that no catalogue names: what a process left that died, and what was replaced."""
        named = {one.path for one in catalogue.files}
        for kind in (SEGMENTS, DELETED):
            folder = self.path / kind
            for path in folder.iterdir() if folder.is_dir() else ():
                if f"{kind}/{path.name}" not in named and (path.suffix == ".safetensors" or path.name.startswith(".")):
                    path.unlink(missing_ok=True)
        for path in self.path.glob(f".{NAME}.*"):
            path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Put the names in a folder on the disk; without this a power cut may lose a rename."""
    if sys.platform in ("emscripten", "win32"):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
