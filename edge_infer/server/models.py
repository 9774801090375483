"""`/models/`: what is served, and the files of each bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.routing import Route

from edge_infer.errors import EdgeInferError
from edge_infer.server.answers import NO_CACHE, json_answer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from edge_infer.server.assets import Assets
    from edge_infer.server.repository import ModelRepository, ServedModel


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

    async def index(self, _request: Request) -> Response:
        """List all models; one whose bundle is broken is listed with what is wrong."""
        models = [self._repository.get(name) for name in self._repository.names()]
        entries = await to_thread.run_sync(lambda: [_entry(model, tolerant=True) for model in models])
        return json_answer({"models": entries}, NO_CACHE)

    async def entry(self, request: Request) -> Response:
        """Describe one model."""
        model = self._repository.get(request.path_params["name"])
        return json_answer(await to_thread.run_sync(lambda: _entry(model, tolerant=False)), NO_CACHE)

    async def file(self, request: Request) -> Response:
        """Send a file of a bundle."""
        model, path = self._repository.get(request.path_params["name"]), request.path_params["path"]
        return await self._assets.answer(request, lambda: model.file(path, self._assets.open))


def _entry(model: ServedModel, *, tolerant: bool) -> dict[str, Any]:
    """Describe a model: its name, where to load it from, its revision, its variants with their sizes in bytes."""
    entry: dict[str, Any] = {"name": model.name, "url": model.url}
    try:
        bundle = model.bundle()
    except EdgeInferError as error:
        if not tolerant:
            raise
        return {**entry, "error": error.to_json()}
    manifest = bundle.manifest
    entry |= {"version": manifest.version, "revision": bundle.revision}
    entry["variants"] = [
        {
            "id": variant.id,
            "format": variant.format,
            "precision": variant.precision,
            "file": variant.file,
            "size": sum(manifest.files[path].size for path in (variant.file, *variant.external)),
        }
        for variant in manifest.variants
    ]
    return entry
