"""`/health` and `/v2/`: health, metadata and inference."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import edge_infer
from edge_infer.errors import InputError, ModelNotFound, PayloadTooLarge
from edge_infer.server.answers import JSON, NO_STORE, json_answer
from edge_infer.server.problems import UnsupportedMediaType
from edge_infer.server.protocol import describe, parse_request, write_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from edge_infer.manifest import Manifest
    from edge_infer.server.repository import ModelRepository, ServedModel


class InferenceRoutes:
    """`/health` and `/v2/`: the Open Inference Protocol with JSON tensors.

    Args:
        repository: The models.
        max_body_bytes: The most bytes that a request may have.
    """

    def __init__(self, repository: ModelRepository, max_body_bytes: int) -> None:
        self._repository = repository
        self._max_body_bytes = max_body_bytes

    def routes(self) -> list[Route]:
        """List the routes; a model is addressed with or without its version."""
        found = [
            Route("/health", self.health),
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.live),
        ]
        for base in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            found += [
                Route(base, self.metadata),
                Route(f"{base}/ready", self.ready),
                Route(f"{base}/infer", self.infer, methods=["POST"]),
            ]
        return found

    async def health(self, _request: Request) -> Response:
        """Say that the server answers."""
        return PlainTextResponse("OK", 200, NO_STORE)

    async def live(self, request: Request) -> Response:
        """Say that the server answers, as the protocol does."""
        return json_answer({request.url.path.rpartition("/")[2]: True}, NO_STORE)

    async def server(self, _request: Request) -> Response:
        """Name the server."""
        return json_answer({"name": "edge-infer", "version": edge_infer.__version__, "extensions": []}, NO_STORE)

    async def metadata(self, request: Request) -> Response:
        """Describe a model's inputs and outputs; a bare model file must be loaded to know them."""
        model = self._model(request)

        def describe_model() -> dict[str, Any]:
            manifest = _bundle_version(model, request)
            specs: Any = manifest if manifest.inputs or manifest.outputs else model.session()
            return {
                "name": model.name,
                "versions": [manifest.version],
                "platform": f"edge-infer_{manifest.variants[0].format}",
                "inputs": describe(specs.inputs),
                "outputs": describe(specs.outputs),
            }

        return json_answer(await self._work(describe_model), NO_STORE)

    async def ready(self, request: Request) -> Response:
        """Load the model if it is not, and say that it is ready."""
        model = self._model(request)

        def load() -> None:
            _bundle_version(model, request)
            model.session()

        await self._work(load)
        return json_answer({"name": model.name, "ready": True}, NO_STORE)

    async def infer(self, request: Request) -> Response:
        """Run a model. Reading, running and writing happen in a worker thread."""
        model = self._model(request)
        _check_media_type(request)
        body = await read_body(request, self._max_body_bytes)

        def run() -> bytes:
            version = _bundle_version(model, request).version
            session = model.session()
            asked = parse_request(body, session.inputs, session.outputs)
            return write_answer(model.name, version, asked, session.run(asked.inputs, asked.outputs), session.outputs)

        return Response(await self._work(run), 200, NO_STORE, JSON)

    def _model(self, request: Request) -> ServedModel:
        return self._repository.get(request.path_params["name"])

    async def _work(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._repository.workers, function)


def _bundle_version(model: ServedModel, request: Request) -> Manifest:
    """Return the manifest, if it is of the version that the URL names."""
    manifest = model.bundle().manifest
    asked = request.path_params.get("version", manifest.version)
    if asked != manifest.version:
        raise ModelNotFound(
            f"Model `{model.name}` has no version `{asked[:128]}`, it has `{manifest.version}`",
            hint=f"use /v2/models/{model.name}",
            model=model.name,
            version=asked[:128],
        )
    return manifest


def _check_media_type(request: Request) -> None:
    """Refuse what is not plain JSON. No media type is taken for JSON: tritonclient sends none."""
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        raise UnsupportedMediaType(f"The body is `{kind[:128]}`, expected `{JSON}`", hint=f"Content-Type: {JSON}")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise UnsupportedMediaType(f"The body is encoded as `{coding[:128]}`", hint="send it uncompressed")
    header_length = request.headers.get("inference-header-content-length")
    if header_length is not None and header_length != request.headers.get("content-length"):
        raise UnsupportedMediaType(
            "The body has binary tensors, this server reads them as JSON",
            hint="in tritonclient: `set_data_from_numpy(x, binary_data=False)`",
        )


async def read_body(request: Request, limit: int) -> bytes:
    """Read a request's body, or refuse it as soon as it is known to be too large.

    Raises:
        PayloadTooLarge: It has more bytes than the limit.
    """
    declared = request.headers.get("content-length", "")
    chunks: list[bytes] = []
    size = int(declared) if declared.isdecimal() and declared.isascii() else 0
    too_large = PayloadTooLarge(
        f"The body has more than {limit} bytes", hint="send smaller batches", expected=limit, got=size or None
    )
    if size > limit:
        raise too_large
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        chunks.append(chunk)
    if not size:
        raise InputError("The body is empty, expected JSON", hint='{"inputs": [...]}')
    return b"".join(chunks)
