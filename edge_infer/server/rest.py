"""`/health`, `/v2/`, `/metrics` and `/inference`: all of the protocol but the hot path."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import edge_infer
from edge_infer.errors import EdgeInferError, InputError, UnsupportedError, listed
from edge_infer.server.config import parse_canary
from edge_infer.server.errors import UpgradeRequired
from edge_infer.server.ingestion.api_keys import ApiKeys
from edge_infer.server.ingestion.bodies import read_body
from edge_infer.server.ingestion.origins import check_origin
from edge_infer.server.metrics.prometheus import CONTENT_TYPE, Metrics
from edge_infer.server.response.describe import configuration, format_of, metadata, statistics
from edge_infer.server.responses import NO_STORE, json_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.repository import ServedModel
    from edge_infer.server.ingestion.generate import GenerateEndpoint
    from edge_infer.server.ingestion.infer import InferEndpoint
    from edge_infer.server.ingestion.predict import PredictEndpoint

EXTENSIONS = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "statistics",
]
_MAX_CONTROL_BYTES = 2**20


class InferenceRoutes:
    """Health, metadata, configuration, statistics, the repository, and `POST /inference`.

    Args:
        engine: The models.
        endpoint: The hot path, which `POST /inference` takes too.
        predictions: What answers raw data.
        texts: What `POST /inference` takes where a model generates text.
        metrics: What `/metrics` answers.
        keys: Tells who may change what is loaded, and who may read the counts of all tenants.
        origins: The other servers whose pages may ask for that.
    """

    def __init__(
        self,
        engine: Engine,
        endpoint: InferEndpoint,
        predictions: PredictEndpoint,
        texts: GenerateEndpoint,
        metrics: Metrics,
        keys: ApiKeys | None = None,
        origins: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._predictions = predictions
        self._texts = texts
        self._metrics = metrics
        self._keys = keys or ApiKeys()
        self._origins = tuple(origins)

    def routes(self) -> list[Route]:
        """List the routes; a model is addressed with or without its version."""
        found = [
            Route("/health", self.health),
            Route("/livez", self.health),
            Route("/readyz", self.is_ready),
            Route("/metrics", self.metrics),
            Route("/inference", self.inference, methods=["POST"]),
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.is_ready),
            Route("/v2/models/stats", self.stats),
            Route("/v2/repository/index", self.index, methods=["POST"]),
            Route("/v2/repository/models/{name}/load", self.load, methods=["POST"]),
            Route("/v2/repository/models/{name}/unload", self.unload, methods=["POST"]),
            Route("/v2/repository/models/{name}/canary", self.canary, methods=["POST"]),
        ]
        for base in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            found += [
                Route(base, self.metadata),
                Route(f"{base}/ready", self.ready),
                Route(f"{base}/config", self.config),
                Route(f"{base}/stats", self.stats),
                Route(f"{base}/infer", self.infer, methods=["POST"]),
                Route(f"{base}/predict", self.predict, methods=["POST"]),
                Route(f"{base}/stream", self.stream, methods=["GET", "POST"]),
            ]
        for what in (
            *("logging", "trace/setting", "models/{name}/trace/setting"),
            *("systemsharedmemory/{rest:path}", "cudasharedmemory/{rest:path}"),
        ):
            found.append(Route(f"/v2/{what}", self.unsupported, methods=["GET", "POST"]))
        return found

    # -- health --

    async def health(self, _request: Request) -> Response:
        """Say that the server answers."""
        return PlainTextResponse("OK", 200, NO_STORE)

    async def live(self, _request: Request) -> Response:
        """Say that the server answers, as the protocol does."""
        return json_answer({"live": True}, NO_STORE)

    async def is_ready(self, _request: Request) -> Response:
        """Say whether new requests are taken.

        They are not while models are loaded for the first time, once the server is stopping, and where a pool has lost
        its device. A model whose newest bundle cannot be loaded is named, without its error for clients that
        have no key; its older version goes on.
        """
        lost = {name: one.lost.message for name, one in self._engine.dispatchers.items() if one.lost is not None}
        starting = sorted(self._engine.starting)
        is_ready = not (self._engine.is_draining or lost or starting)
        reasons = {"lost": lost, "starting": starting, "failed": self._engine.failed()}
        response = json_answer({"ready": is_ready} | {key: found for key, found in reasons.items() if found}, NO_STORE)
        response.status_code = 200 if is_ready else 503
        return response

    async def metrics(self, request: Request) -> Response:
        """Write the metrics."""
        self._keys.check_metrics(request.scope["headers"])
        await self._metrics.judge()
        return Response(self._metrics.text(), 200, NO_STORE, CONTENT_TYPE)

    async def server(self, _request: Request) -> Response:
        """Name the server."""
        document = {"name": "edge-infer", "version": edge_infer.__version__, "extensions": EXTENSIONS}
        return json_answer(document, NO_STORE)

    # -- one model --

    async def metadata(self, request: Request) -> Response:
        """Describe a model's inputs and outputs; a bare model file must be loaded to know them."""
        name = request.path_params["name"]
        served = await self._engine.find(name, request.path_params.get("version"))
        readers = self._engine.repository.readers
        manifest = (await readers.call(served.bundle)).manifest
        specs: Any = manifest if manifest.inputs or manifest.outputs else await self._model(request)
        versions = await readers.call(self._versions, name)
        return json_answer(metadata(name, format_of(manifest), versions, specs), NO_STORE)

    def _versions(self, name: str) -> list[str]:
        return [version for _, version, _ in self._states(name)]

    async def ready(self, request: Request) -> Response:
        """Load the model if it is not, and say that it is ready, or why not."""
        model = await self._model(request)
        if (outage := model.dispatcher.outage(model)) is not None:
            raise outage
        return json_answer({"name": model.name, "ready": True}, NO_STORE)

    async def config(self, request: Request) -> Response:
        """Describe how the model runs."""
        return json_answer(configuration(await self._model(request)), NO_STORE)

    async def stats(self, request: Request) -> Response:
        """Give what was counted of a version, of all versions of a model that are loaded, or of all models."""
        self._keys.check_metrics(request.scope["headers"])
        name, models = request.path_params.get("name"), self._engine.active()
        if name is not None:
            models = [model for model in models if model.name == name]
            if "version" in request.path_params or not models:
                models = [await self._model(request)]
        return json_answer({"model_stats": [statistics(model) for model in models]}, NO_STORE)

    async def _model(self, request: Request) -> LoadedModel:
        return await self._engine.settled(request.path_params["name"], request.path_params.get("version"))

    async def infer(self, request: Request) -> Response:
        """Run a model, where its path was not recognised by the hot path: a name with an escaped `/`."""
        target = request.path_params["name"], request.path_params.get("version")
        return _Delegated(partial(self._endpoint, target=target))

    async def predict(self, request: Request) -> Response:
        """Answer raw data, where the path was not recognised by the hot path."""
        target = request.path_params["name"], request.path_params.get("version")
        return _Delegated(partial(self._predictions, target=target))

    async def stream(self, request: Request) -> Response:
        """Refuse a request to the path of a WebSocket.

        Raises:
            UpgradeRequired: Always.
        """
        url = request.url
        scheme = "wss" if url.is_secure else "ws"
        raise UpgradeRequired(
            f"{url.path} is a WebSocket: open it as one",
            hint=f'edge_infer.load("{url.replace(scheme=scheme, path=url.path.removesuffix("/stream"), query="")}")',
            path=url.path,
        )

    async def inference(self, _request: Request) -> Response:
        """Run the only model that is served, or the only one that generates text.

        Raises:
            InputError: There are several.
        """
        if name := await self._texts.only():
            return _Delegated(partial(self._texts.inference, name=name))
        names = self._engine.repository.names()
        if len(names) != 1:
            raise InputError(
                f"`/inference` needs a server of one model, this one has {len(names)}: {listed(names)}",
                hint="POST /v2/models/NAME/infer",
            )
        return _Delegated(partial(self._endpoint, target=(names[0], None)))

    # -- the repository --

    async def index(self, request: Request) -> Response:
        """List all models with their versions and states; `{"ready": true}` lists those that are ready."""
        asked = await _document(request)
        entries = []
        for name in self._engine.repository.names():
            states = await self._engine.repository.readers.call(self._states, name)
            for served, version, reason in states:
                state = "READY" if self._engine.peek(served) else "UNAVAILABLE"
                if self._engine.is_loading(served):
                    state = "LOADING"
                if not reason and state == "UNAVAILABLE":
                    reason = "unloaded" if served.is_unloaded else self._engine.why_not(served)
                if state == "READY" or asked.get("ready") is not True:
                    entries.append({"name": name, "version": version, "state": state, "reason": reason})
        return json_answer(entries, NO_STORE)

    def _states(self, name: str) -> list[tuple[ServedModel, str, str]]:
        """Return each version of a model with what is wrong with its bundle, reading manifests."""
        found = []
        for served in self._engine.repository.versions(name):
            try:
                found.append((served, served.bundle().manifest.version, ""))
            except EdgeInferError as error:
                found.append((served, "", error.message))
        return found

    def _check_control(self, request: Request) -> None:
        """Refuse a page of another server, which a browser lets send a POST, and a tenant that is not an admin."""
        check_origin(request.scope["headers"], self._origins)
        self._keys.check_admin(request.scope["headers"])

    async def load(self, request: Request) -> Response:
        """Load all versions of a model, or their successors where they changed; requests go on meanwhile."""
        self._check_control(request)
        asked = await _document(request)
        parameters = asked.get("parameters")
        if parameters:
            raise InputError(
                "`parameters` of a load would override the model's files or configuration, which is not possible here",
                hint="change the bundle on disk, then load",
            )
        versions = self._engine.repository.versions(request.path_params["name"])
        for served in versions:
            served.is_unloaded = False
        await self._engine.load(versions)
        return Response(b"", 200, NO_STORE)

    async def unload(self, request: Request) -> Response:
        """Let a model finish what it has, and give back its memory."""
        self._check_control(request)
        await _document(request)
        for served in self._engine.repository.versions(request.path_params["name"]):
            self._engine.unload(served)
        return Response(b"", 200, NO_STORE)

    async def canary(self, request: Request) -> Response:
        """Let a version take a part of the requests that name none; without a version the trial ends."""
        self._check_control(request)
        asked, name = await _document(request), request.path_params["name"]
        try:
            canary = parse_canary(asked, "body") if asked else None
        except InputError as error:  # its hint is one for the file of settings
            raise InputError(error.message, hint='{"version": "2", "percent": 10}, or nothing to end it') from error
        if canary is not None:
            await self._engine.find(name, canary.version)
        else:
            self._engine.repository.versions(name)
        self._engine.try_version(name, canary)
        return json_answer(asked, NO_STORE)

    async def unsupported(self, request: Request) -> Response:
        """Refuse what is an extension of Triton's that this server does not have.

        Raises:
            UnsupportedError: Always, except that an empty list of regions is true.
        """
        path = request.url.path
        if "sharedmemory" in path and request.method == "GET":
            return json_answer([], NO_STORE)
        if path.endswith("/unregister"):
            return Response(b"", 200, NO_STORE)
        raise UnsupportedError(
            f"{path} is an extension that this server does not have", hint=f"it has {listed(EXTENSIONS)}", path=path
        )


class _Delegated(Response):
    """Lets the hot path answer a request that the router found."""

    def __init__(self, endpoint: ASGIApp) -> None:
        super().__init__()
        self._endpoint = endpoint

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer."""
        await self._endpoint(scope, receive, send)


async def _document(request: Request) -> dict[str, Any]:
    """Return the JSON object of a small body; an empty one where there is none."""
    body = await read_body(request.receive, -1, _MAX_CONTROL_BYTES)
    if not body.strip():
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The body is not JSON: {error}", hint="send {} or nothing") from error
    if not isinstance(document, dict):
        raise InputError("The body is not a JSON object", hint="send {} or nothing")
    return document
