"""The application: the hot path in front, and behind it routes, layers and limits put together."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from edge_infer.errors import BundleError, EdgeInferError
from edge_infer.server.config import Settings, check_device, check_names, check_variants, check_versions
from edge_infer.server.errors import PathNotFound
from edge_infer.server.execution.indexes import ServedIndexes
from edge_infer.server.execution.lifecycle import Engine, default_workers
from edge_infer.server.execution.repository import ModelRepository
from edge_infer.server.execution.text_model import TextLimits
from edge_infer.server.feedback.routes import Feedback
from edge_infer.server.headers import ResponseHeaders, standard_headers
from edge_infer.server.http.fast_path import DirectEndpoint
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.http.turns import Turns
from edge_infer.server.ingestion.admission import ServerContext
from edge_infer.server.ingestion.api_keys import ApiKeys, KeyGuard
from edge_infer.server.ingestion.generate import GenerateEndpoint
from edge_infer.server.ingestion.infer import InferEndpoint
from edge_infer.server.ingestion.infer_steps import EventEndpoint
from edge_infer.server.ingestion.memory_budget import MAX_BODIES_BYTES, BodyMemory
from edge_infer.server.ingestion.model_paths import Targets, route_path
from edge_infer.server.ingestion.origins import parse_origin
from edge_infer.server.ingestion.parsers import MAX_JSON_BYTES, Parsers
from edge_infer.server.ingestion.predict import PredictEndpoint
from edge_infer.server.ingestion.router import StrictRouter
from edge_infer.server.ingestion.search import SearchEndpoint
from edge_infer.server.ingestion.tenant_bounds import TenantBounds
from edge_infer.server.ingestion.websocket_handshake import MAX_IN_FLIGHT, MAX_STREAMS, AsgiSocket, StreamEndpoint
from edge_infer.server.metrics.access_log import AccessLog, logged_stream
from edge_infer.server.metrics.prometheus import Metrics
from edge_infer.server.metrics.recorder import Ledger
from edge_infer.server.metrics.tracing import Spans
from edge_infer.server.responses import Problems, handle_error, handle_http_error
from edge_infer.server.rest import InferenceRoutes
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.server.static.assets import Assets
from edge_infer.server.static.dashboard import DashboardRoutes
from edge_infer.server.static.docs_page import DocumentationRoutes
from edge_infer.server.static.encodings import EncodedFiles
from edge_infer.server.static.indexes import IndexRoutes
from edge_infer.server.static.models import ModelRoutes
from edge_infer.server.static.packages import PackageRoutes
from edge_infer.server.static.pages import PageRoutes, find_web_root
from edge_infer.server.store.routes import HostedStore, StoreRoutes

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from opentelemetry.trace import TracerProvider
    from starlette.types import ASGIApp, Receive, Scope, Send

    from edge_infer.server.feedback.log import FeedbackLog
    from edge_infer.server.ingestion.stream_socket import Socket

#: The headers that scripts of other origins may read.
_EXPOSED = [
    *("Feedback-Id", "Inference-Header-Content-Length", "Model-Variant", "Retry-After", "Server-Timing"),
    *("Tensor-Datatype", "Tensor-Shape", "X-Request-Id"),
]
#: The most bytes of a request's body, unless the caller says otherwise.
MAX_BODY_BYTES = 64 * 2**20


class Limits(NamedTuple):
    """The limits of the server.

    Attributes:
        workers: How many batches run at once; 0 for one per CPU, at most four.
        batch: How requests are batched and how many may wait.
        max_body_bytes: The most bytes that a request may have, packed or not.
        max_json_bytes: The most bytes that the JSON of a request may have.
        max_bodies_bytes: The most bytes that the bodies of all requests take together until they are answered.
        hang_s: After how long a batch that does not end is given up.
        cache_bytes: The room for each model's answers, which are sent again to requests that are identical, byte for
            byte; identical requests in flight then run once. 0 for none.
        cache_ttl_s: How long an answer is kept.
        max_streams: How many WebSockets may be open.
        max_in_flight: How many requests of one WebSocket may be in flight.
        door: What a connection may take before a request is one; kept where `edge_infer.server.http` serves it.
        is_lazy: Whether a model is loaded when it is first asked for, and not at the start. It takes the application's
            lifespan to load them at the start; the server is not ready until each has loaded or failed.
        text: How models run that generate text.
    """

    workers: int = 0
    batch: BatchLimits = BatchLimits()
    max_body_bytes: int = MAX_BODY_BYTES
    max_json_bytes: int = MAX_JSON_BYTES
    max_bodies_bytes: int = MAX_BODIES_BYTES
    hang_s: float = 60.0
    cache_bytes: int = 0
    cache_ttl_s: float = 60.0
    max_streams: int = MAX_STREAMS
    max_in_flight: int = MAX_IN_FLIGHT
    door: DoorLimits = DoorLimits()
    is_lazy: bool = True
    text: TextLimits = TextLimits()


class Application:
    """An ASGI application: any ASGI server runs it.

    Attributes:
        engine: The models that are in memory.
        limits: What it takes; `door` and `max_body_bytes` are among them.
        refusals: Counts by code the requests that no model was given.
        direct: Answers common requests without ASGI, where `edge_infer.server.http` serves the application.
        asgi: Answers the others.
        turns: Decides whose requests begin now; None where there are no tenants.
        lifespan: Starts and ends what the application needs.
    """

    def __init__(
        self,
        engine: Engine,
        endpoint: InferEndpoint,
        events: EventEndpoint,
        streams: StreamEndpoint,
        predictions: PredictEndpoint,
        texts: GenerateEndpoint,
        routes: Starlette,
        lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]],
        limits: Limits,
        turns: Turns | None = None,
        cors_origins: Sequence[str] = (),
        feedback: Feedback | None = None,
    ) -> None:
        self.engine = engine
        self._feedback = feedback
        self.limits = limits
        self.door = limits.door
        self.max_body_bytes = limits.max_body_bytes
        self._endpoint = endpoint
        self._infer_targets = Targets("/infer")
        self.turns = turns
        self.direct = DirectEndpoint(
            endpoint,
            self._infer_targets,
            self.turns,
            is_cached=limits.cache_bytes > 0 or feedback is not None,  # answers get ids in the application
            checks_origin=bool(cors_origins),
        )
        self._events = events
        self._event_targets = Targets("/infer_stream")
        self._predictions = predictions
        self._predict_targets = Targets("/predict")
        self._texts = texts
        self._streams = streams
        self._stream_targets = Targets("/stream")
        self._routes = routes
        self.refusals: Counter[str] = routes.state.refusals
        self.lifespan: Callable[[], AbstractAsyncContextManager[None]] = partial(lifespan, routes)
        self.asgi: ASGIApp = self._answer
        if cors_origins:
            self.asgi = CORSMiddleware(
                self._answer,
                allow_origins=list(cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=_EXPOSED,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.asgi(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = route_path(scope)
            answer = self._texts.route(scope["method"], path)
            if answer is not None:
                await AccessLog(answer)(scope, receive, send)
                return
        if scope["type"] == "http" and scope["method"] == "POST":
            target = self._infer_targets.find(path)
            if target is not None:
                await self._logged(partial(self._endpoint, target=target), target)(scope, receive, send)
                return
            target = self._event_targets.find(path)
            if target is not None:
                await AccessLog(partial(self._events, target=target))(scope, receive, send)
                return
            if path == "/v1/embeddings":
                await AccessLog(self._predictions.embeddings)(scope, receive, send)
                return
            target = self._predict_targets.find(path)
            if target is not None:
                await self._logged(partial(self._predictions, target=target), target)(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            await self.open_stream(scope, AsgiSocket(receive, send, self.direct.context.memory))
            return
        await self._routes(scope, receive, send)

    def _logged(self, app: ASGIApp, target: tuple[str, str | None]) -> ASGIApp:
        """Return what answers for a model, with its line in the log, and an id where feedback is taken."""
        return AccessLog(app if self._feedback is None else self._feedback.marking(app, target[0]))

    async def open_stream(self, scope: Scope, socket: Socket) -> None:
        """Answer the handshake of a WebSocket, and serve it until it ends."""
        path = route_path(scope)
        target = self._stream_targets.find(path)
        with logged_stream(scope):
            if target is None:
                missing = PathNotFound(f"There is no WebSocket at {path}", hint="/v2/models/NAME/stream", path=path)
                await self._streams.refuse(missing, scope, socket)
            else:
                await self._streams(scope, socket, target)

    def drain(self) -> None:
        """Be ready no more and refuse new requests; those that were accepted are finished."""
        self.engine.is_draining = True

    async def finish_streams(self) -> None:
        """Wait until what is in flight on WebSockets was sent, and close them."""
        await self._streams.drain()


def create_app(
    models: Mapping[str, Path | str | Sequence[Path]],
    web_root: Path | None = None,
    *,
    page: Path | None = None,
    isolated: bool = True,
    cache_folder: Path | None = None,
    device: str = "auto",
    limits: Limits | None = None,
    triton_metric_names: bool = False,
    store: HostedStore | None = None,
    settings: Settings | None = None,
    cors_origins: Sequence[str] = (),
    tracer_provider: TracerProvider | None = None,
    indexes: Mapping[str, Path] | None = None,
    feedback: FeedbackLog | None = None,
) -> Application:
    """Make the application.

    Args:
        models: The bundles to serve, by name; several bundles of one name are its versions.
        web_root: The folder that has `src`, `studio`, `demo` and `vendor`; None for the installed one, and where there
            is none, no pages are served.
        page: The folder of a page of your own, which stands at `/` in place of the studio.
        isolated: Whether pages are cross-origin isolated, which threads in a page need.
        cache_folder: Where compressed copies of files outlive the server; None to keep them in memory.
        device: What models run on, as `edge_infer.load` takes it.
        limits: Sizes, times and the number of workers.
        triton_metric_names: Whether `/metrics` has the names of Triton too.
        store: The signed store to host, and where its devices report; None for none.
        settings: Pools, routes, variants and tenants.
        cors_origins: The other servers whose pages may ask, such as `https://shop.example`; `*` for all.
        tracer_provider: OpenTelemetry's; each request is a span then. None for none.
        indexes: The folders of the indexes to search, by name.
        feedback: Keeps what people say of answers; None to take no feedback.

    Raises:
        BundleError: An index is not there, or damaged.
        InputError: The settings name a model, a version, a variant or a tenant that there is not, the device is not
            one of a server, or an origin is none.

    >>> app = create_app({"digits": Path("digits.bundle")})
    """
    limits = limits or Limits()
    if web_root is None:
        with suppress(BundleError):
            web_root = find_web_root()
    places = {name: Path(found) if isinstance(found, str) else found for name, found in models.items()}
    settings = settings or Settings()
    cors_origins = [parse_origin(origin) for origin in cors_origins]
    check_device("--device", device)
    check_names(settings, places)
    check_versions(settings, places)
    check_variants(settings, places)
    keys = ApiKeys(settings.tenants)
    repository = ModelRepository(places, device, limits.batch, settings.fast_variants, settings.variants, limits.text)
    engine = Engine(repository, limits.workers or default_workers(), limits.hang_s, settings.table)
    for name, canary in settings.canaries.items():
        engine.try_version(name, canary)
    context = ServerContext(
        engine,
        Parsers(limits.max_json_bytes),
        keys,
        BodyMemory(
            limits.max_bodies_bytes,
            {one.name: one.bounds.max_held_bytes for one in settings.tenants if one.bounds.max_held_bytes},
        ),
        Ledger(Spans(tracer_provider) if tracer_provider is not None else None),
        TenantBounds(perf_counter),
    )
    headers = [(name.lower().encode(), value.encode()) for name, value in standard_headers(isolated=isolated).items()]
    endpoint = InferEndpoint(
        context, limits.max_body_bytes, headers, cache_bytes=limits.cache_bytes, cache_ttl_s=limits.cache_ttl_s
    )
    events = EventEndpoint(context, limits.max_body_bytes, headers)
    predictions = PredictEndpoint(context, limits.max_body_bytes, headers)
    searched = ServedIndexes(indexes or {})
    searches = SearchEndpoint(context, searched, predictions, limits.max_body_bytes, limits.batch.max_answer_bytes)
    texts = GenerateEndpoint(context, limits.max_body_bytes, headers)
    turns = None if keys.is_open else Turns(keys, context.bounds)
    streams = StreamEndpoint(
        context,
        headers,
        origins=cors_origins,
        max_streams=limits.max_streams,
        max_in_flight=limits.max_in_flight,
        turns=turns,
    )
    metrics = Metrics(
        engine,
        triton_names=triton_metric_names,
        refusals=context.ledger.refusals,
        held=lambda: context.memory.taken,
        indexes=searched,
    )
    assets = Assets(EncodedFiles(cache_folder))
    pages = PageRoutes(web_root, assets, page)
    hosted = store or HostedStore()
    told = None if feedback is None else Feedback(feedback, context)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        if not limits.is_lazy:
            engine.preload()
        try:
            yield
        finally:
            context.parsers.close()
            engine.close()

    routes = Starlette(
        middleware=[
            Middleware(AccessLog),
            Middleware(ResponseHeaders, isolated=isolated),
            Middleware(Problems),
            Middleware(KeyGuard, keys=keys, has_report_token=bool(hosted.token)),
        ],
        exception_handlers={EdgeInferError: handle_error, HTTPException: handle_http_error},
    )
    routes.router = StrictRouter(
        [
            *pages.routes(),
            *ModelRoutes(engine.repository, assets).routes(),
            *IndexRoutes(searched, assets, searches).routes(),
            *PackageRoutes(assets, web_root).routes(),
            *(() if told is None else told.routes()),
            *InferenceRoutes(engine, endpoint, predictions, texts, metrics, keys, cors_origins).routes(),
            *DocumentationRoutes(engine).routes(),
            *StoreRoutes(hosted, assets, lambda: engine.is_draining).routes(),
            *DashboardRoutes(engine, streams, assets, keys).routes(),
            *pages.own_routes(),
        ],
        lifespan=lifespan,
    )
    routes.state.refusals = context.ledger.refusals
    return Application(
        engine, endpoint, events, streams, predictions, texts, routes, lifespan, limits, turns, cors_origins, told
    )
