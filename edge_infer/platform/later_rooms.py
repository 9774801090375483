"""Rooms of the package that a page fetches when they are first imported."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_PACKAGE = "edge_infer"


class LaterRooms:
    """Finds rooms that the page's first archive leaves out: it fetches the second one, once.

    Args:
        url: Of the second archive, a tar file.
        folder: The folder that has the package.
    """

    def __init__(self, url: str, folder: str) -> None:
        self._url, self._folder = url, folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a room; Python asks here for what it did not find where the package lies.

        Raises:
            FetchError: The archive cannot be fetched.
            UnsupportedError: This is a page's main thread, which may not wait for a file.
        """
        del target
        package, _, room = name.partition(".")
        if package != _PACKAGE or not room or "." in room or self not in sys.meta_path:
            return None
        import io
        import tarfile

        from edge_infer.platform.fetch import fetch

        with tarfile.open(fileobj=io.BytesIO(fetch(self._url))) as archive:
            archive.extractall(self._folder, filter="data")
        sys.meta_path.remove(self)
        # `importlib.invalidate_caches()` would import `importlib.metadata`, which takes a second in a page.
        sys.path_importer_cache.clear()
        return PathFinder.find_spec(name, path)  # type: ignore[arg-type]  # the package's __path__


def install(url: str) -> None:
    """Fetch the second archive from a URL as soon as one of its rooms is imported."""
    folder = sys.modules[_PACKAGE].__path__[0].rpartition("/")[0]
    sys.meta_path.append(LaterRooms(url, folder))
