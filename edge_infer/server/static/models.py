"""`/models/`: what is served, and the files of each bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.routing import Route

from edge_infer.errors import BundleError, EdgeInferError, IntegrityError, did_you_mean, listed
from edge_infer.server.errors import PathNotFound
from edge_infer.server.execution.repository import UNNAMED
from edge_infer.server.ingestion.model_paths import root_path
from edge_infer.server.responses import NO_CACHE, json_answer
from edge_infer.server.static.assets import Asset

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.server.execution.repository import ModelRepository, ServedModel
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
        assets, model = self._assets, self._repository.get
        return await assets.answer(request, lambda: open_file_of(model(name), path, assets.open))

    def _entry(self, name: str, root: str, *, tolerant: bool) -> dict[str, Any]:
        """Describe a model by its highest version, reading manifests; its URL is under the path `root`."""
        try:
            model = self._repository.get(name)
            return {"name": name, "url": root + model.url, **described(model.bundle())}
        except EdgeInferError as error:
            if not tolerant:
                raise
            return {"name": name, "url": root + self._repository.versions(name)[0].url, "error": error.to_json()}


def described(bundle: Bundle) -> dict[str, Any]:
    """Give the version, revision, task, licence and samples of a bundle, and its variants with their sizes in bytes.

    Of a model that generates text `chat` says whether it takes conversations.
    """
    manifest = bundle.manifest
    variants = [
        {
            "id": variant.id,
            "format": variant.format,
            "precision": variant.precision,
            "file": variant.file,
            "size": manifest.size_of(variant),
        }
        for variant in manifest.variants
    ]
    chat = {} if manifest.generate is None else {"chat": manifest.generate.get("chat_template") is not None}
    return {
        "version": manifest.version,
        "revision": bundle.revision,
        "task": manifest.task,
        "license": manifest.license,
        "samples": [path for path in manifest.files if path.startswith("samples/")],
        "variants": variants,
        **chat,
    }


def open_file_of(model: ServedModel, path: str, open_file: Callable[[Path], Asset]) -> Asset:
    """Open a file of the bundle.

    Args:
        model: One version of a model.
        path: Its path inside the bundle.
        open_file: Opens a file on disk.

    Raises:
        PathNotFound: The manifest names no such file.
        IntegrityError: The file is not the one that the manifest names.
    """
    bundle = model.bundle()
    if bundle.is_encrypted:
        raise PathNotFound(
            f"The files of model `{model.name}` are encrypted, and not given away",
            hint=f"POST /v2/models/{model.name}/infer, or load it from its store with the key",
            path=path[:200],
        )
    name = path.rpartition("/")[2]
    if path in UNNAMED and not model.is_bare:
        return Asset.of_bytes(name, model.read_unnamed(path))
    if model.is_of_hub and model.path / path == Path(bundle.location):
        path = bundle.manifest.variants[0].file  # as transformers.js asks for it: `onnx/model.onnx`
    entry = bundle.manifest.files.get(path)
    if entry is None:
        known = [*([] if model.is_bare else UNNAMED), *bundle.manifest.files]
        raise PathNotFound(
            f"Model `{model.name}` has no file `{path[:200]}`",
            hint=did_you_mean(path[:200], known) or f"it has {listed(known[:20])}",
            path=path[:200],
        )
    is_made = model.is_of_hub and path != bundle.manifest.variants[0].file
    if is_made or not (model.path.is_dir() or model.is_bare):
        return Asset.of_bytes(name, bundle.read(path), entry.sha256)
    root = Path(bundle.location).parent if model.is_bare or model.is_of_hub else model.path
    place = root.joinpath(*path.split("/"))
    if not place.resolve().is_relative_to(root.resolve()):
        raise BundleError(f"`{path}` is a link that leaves the bundle `{model.name}`", path=path)
    asset = open_file(place)
    if asset.sha256 != entry.sha256:
        asset.close()
        raise IntegrityError(
            f"`{path}` of model `{model.name}` has sha256 {asset.sha256}, the manifest says {entry.sha256}",
            hint="the file was changed or cut short: copy or convert the bundle again",
            path=path,
            expected=entry.sha256,
            got=asset.sha256,
        )
    return asset
