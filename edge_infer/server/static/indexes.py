"""`/indexes/` and `/v2/indexes`: which indexes are served, and the files of each for pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.routing import Route

from edge_infer.errors import BundleError, IntegrityError, listed
from edge_infer.server.errors import PathNotFound
from edge_infer.server.ingestion.model_paths import root_path
from edge_infer.server.responses import NO_CACHE, json_answer
from edge_infer.vectors.catalogue import NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from edge_infer.server.execution.indexes import ServedIndex, ServedIndexes
    from edge_infer.server.static.assets import Asset, Assets


class IndexRoutes:
    """Which indexes are served, and the files of each.

    Args:
        indexes: The indexes.
        assets: Answers for files.
        searches: Answers searches.
    """

    def __init__(self, indexes: ServedIndexes, assets: Assets, searches: ASGIApp) -> None:
        self._indexes = indexes
        self._assets = assets
        self._searches = searches

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/v2/indexes", self.index),
            Route("/v2/indexes/{name}", self.entry),
            Route("/v2/indexes/{name}/search", self._searches, methods=["POST"]),
            Route("/indexes/{name}/{path:path}", self.file),
        ]

    async def index(self, request: Request) -> Response:
        """List all indexes."""
        root, names = root_path(request.scope), self._indexes.names()
        entries = await to_thread.run_sync(lambda: [self._entry(name, root) for name in names])
        return json_answer({"indexes": entries}, NO_CACHE)

    async def entry(self, request: Request) -> Response:
        """Describe one index."""
        name, root = request.path_params["name"], root_path(request.scope)
        return json_answer(await to_thread.run_sync(lambda: self._entry(name, root)), NO_CACHE)

    async def file(self, request: Request) -> Response:
        """Send a file of an index."""
        name, path = request.path_params["name"], request.path_params["path"]
        assets, served = self._assets, self._indexes.get
        return await assets.answer(request, lambda: open_file_of(served(name), path, assets.open))

    def _entry(self, name: str, root: str) -> dict[str, Any]:
        from urllib.parse import quote

        facts = self._indexes.get(name).current().info()
        del facts["path"]  # where it lies on this machine is nobody's business
        return {"name": name, "url": f"{root}/indexes/{quote(name)}", **facts}


def open_file_of(served: ServedIndex, path: str, open_file: Callable[[Path], Asset]) -> Asset:
    """Open a file of an index.

    Args:
        served: The index.
        path: Its path inside the folder.
        open_file: Opens a file on disk.

    Raises:
        PathNotFound: The index names no such file.
        IntegrityError: The file is not the one that it names.
    """
    entries = {one.path: one for one in served.current().view.catalogue.files}
    if path != NAME and path not in entries:
        raise PathNotFound(
            f"The index `{served.name}` has no file `{path[:200]}`",
            hint=f"it has {listed([NAME, *entries][:20])}",
            path=path[:200],
        )
    place = served.path.joinpath(*path.split("/"))
    if not place.resolve().is_relative_to(served.path.resolve()):
        raise BundleError(f"`{path}` is a link that leaves the index `{served.name}`", path=path)
    asset = open_file(place)
    if path in entries and asset.sha256 != entries[path].sha256:
        asset.close()
        raise IntegrityError(
            f"`{path}` of the index `{served.name}` has sha256 {asset.sha256}, expected {entries[path].sha256}",
            hint="fetch the index again, or build it again",
            path=path,
            expected=entries[path].sha256,
            got=asset.sha256,
        )
    return asset
