"""`/models/`: what is served, and the files of each bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.routing import Route

from edge_infer.errors import EdgeInferError
from edge_infer.server.answers import NO_CACHE, json_answer
from edge_infer.server.ingestion.model_paths import root_path

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.server.execution.repository import ModelRepository
    from edge_infer.server.static.assets import Assets


class ModelRoutes:
    """`/models/`: what is served, and the files of each bundle.

    Args:
        repository: The models.
        assets: Answers for files.
    """

    def __init__(self, repository: ModelRepository, assets: Assets) -> None:
        self._repository = repository
        self._assets = assets

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/models/", self.index),
            Route("/models/{name}/", self.entry),
            Route("/models/{name}/{path:path}", self.file),
        ]

    async def index(self, request: Request) -> Response:
        """List all models; one whose bundle is broken is listed with what is wrong."""
        names, root = self._repository.names(), root_path(request.scope)
        entries = await to_thread.run_sync(lambda: [self._entry(name, root, tolerant=True) for name in names])
        return json_answer({"models": entries}, NO_CACHE)

    async def entry(self, request: Request) -> Response:
        """Describe one model."""
        name, root = request.path_params["name"], root_path(request.scope)
        return json_answer(await to_thread.run_sync(lambda: self._entry(name, root, tolerant=False)), NO_CACHE)

    async def file(self, request: Request) -> Response:
        """Send a file of a bundle."""
        name, path = request.path_params["name"], request.path_params["path"]
        return await self._assets.answer(request, lambda: self._repository.get(name).file(path, self._assets.open))

    def _entry(self, name: str, root: str, *, tolerant: bool) -> dict[str, Any]:
        """Describe a model by its highest version, reading manifests; its URL is under the path `root`."""
        try:
            model = self._repository.get(name)
            return {"name": name, "url": root + model.url, **_described(model.bundle())}
        except EdgeInferError as error:
            if not tolerant:
                raise
            return {"name": name, "url": root + self._repository.versions(name)[0].url, "error": error.to_json()}


def _described(bundle: Bundle) -> dict[str, Any]:
    """Give the version and revision of a bundle, and its variants with their sizes in bytes."""
    manifest = bundle.manifest
    variants = [
        {
            "id": variant.id,
            "format": variant.format,
            "precision": variant.precision,
            "file": variant.file,
            "size": sum(manifest.files[path].size for path in (variant.file, *variant.external)),
        }
        for variant in manifest.variants
    ]
    return {"version": manifest.version, "revision": bundle.revision, "variants": variants}
