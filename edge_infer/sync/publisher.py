"""Publish into a store that lies elsewhere: fetch its metadata, change it here, upload what is new."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.bundle.manifest import check_path
from edge_infer.errors import StoreError
from edge_infer.platform.host import cache_folder
from edge_infer.sync.remote import FOLDERS, MAX_SMALL, TIMESTAMP, is_remote, open_place
from edge_infer.sync.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.sync.remote import Place


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
    if there and hashlib.sha256(place.read(TIMESTAMP, MAX_SMALL)).hexdigest() != before.get(TIMESTAMP):
        raise StoreError(f"`{location}` was changed by somebody else meanwhile", hint="do it again")
    paths = [
        path.relative_to(folder).as_posix() for name in FOLDERS for path in (folder / name).rglob("*") if path.is_file()
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
    shutil.rmtree(folder / "tuf", ignore_errors=True)  # an earlier attempt may have left metadata never published
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
