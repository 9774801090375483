"""ServedIndexes: the indexes that the server searches, each read again when it changes on disk."""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError, InputError, ModelNotFound, did_you_mean, listed
from edge_infer.server.errors import PathNotFound
from edge_infer.server.execution.statistics import Histogram
from edge_infer.vectors.catalogue import NAME
from edge_infer.vectors.index import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from edge_infer.server.execution.repository import ModelRepository

log = logging.getLogger(__name__)
_SUFFIX = ".index"


class ServedIndex:
    """One index.

    Args:
        name: Its name in URLs.
        path: Its folder.

    Raises:
        BundleError: There is none, or it is damaged.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        #: How long searches took, and how many failed by code; they belong to the event loop's thread.
        self.seconds = Histogram()
        self.failures: dict[str, int] = {}
        self._lock = Lock()
        self._stamp = self._stamp_now()
        self._index = Index.open(path)

    @property
    def entries(self) -> int:
        """How many entries it has, as it was last read."""
        return len(self._index)

    def current(self) -> Index:
        """Return the index as it is on disk; it may take as long as reading what is new.

        While one thread reads that, the others get the index as it was. One that is gone or damaged goes on as it was,
        and the log says so once.
        """
        if not self._lock.acquire(blocking=False):
            return self._index
        try:
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._index.refresh()
                except EdgeInferError as error:
                    log.warning("The index `%s` goes on as it was: %s", self.name, error)
        finally:
            self._lock.release()
        return self._index

    def model(self, repository: ModelRepository) -> tuple[str, str]:
        """Return the name and the version of the served model that embeds texts for the index; it may read manifests.

        Raises:
            ModelNotFound: None of those that are served has the revision that the index names.
        """
        embedding = self.current().embedding
        if embedding is None:
            raise ModelNotFound(
                f"The index `{self.name}` does not say by which model its vectors were made",
                hint='send a vector, or "mode": "words"',
            )
        for name in repository.names():
            for served in repository.versions(name):
                try:
                    bundle = served.bundle()
                except EdgeInferError:  # a broken bundle is no other's fault
                    continue
                if bundle.revision == embedding.revision:
                    return name, bundle.manifest.version
        raise ModelNotFound(
            f"The model of the index `{self.name}` is not served: `{embedding.name}`, "
            f"revision {embedding.revision[:12]}",
            hint=f"edge-infer serve {embedding.name} {self.path.name}; or send a vector",
            expected=embedding.revision,
        )

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            status = (self.path / NAME).stat()
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns


class ServedIndexes:
    """The indexes by name.

    Args:
        places: The folder of each.

    Raises:
        BundleError: One is not there, or damaged.
    """

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._indexes = {name: ServedIndex(name, path) for name, path in places.items()}

    def names(self) -> list[str]:
        """List the names."""
        return list(self._indexes)

    def all(self) -> list[ServedIndex]:
        """List the indexes."""
        return list(self._indexes.values())

    def get(self, name: str) -> ServedIndex:
        """Return an index.

        Raises:
            PathNotFound: There is none of this name.
        """
        found = self._indexes.get(name)
        if found is None:
            names = self.names()
            raise PathNotFound(
                f"There is no index `{name[:128]}`; there is {listed(names)}",
                hint=did_you_mean(name[:128], names) or "GET /v2/indexes lists them",
                index=name[:128],
                allowed=names,
            )
        return found


def name_indexes(paths: Iterable[Path]) -> dict[str, Path]:
    """Find the name of each index: its folder's, without `.index`.

    Raises:
        InputError: Two have one name.
    """
    found: dict[str, Path] = {}
    for path in paths:
        name = path.resolve().name.removesuffix(_SUFFIX)
        if name in found:
            raise InputError(
                f"Two indexes are called `{name}`: `{found[name]}` and `{path}`",
                hint="serve one of them, or rename a folder",
                name=name,
            )
        found[name] = path
    return found
