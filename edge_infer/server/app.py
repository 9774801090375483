"""The application: routes, layers and limits put together."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from edge_infer.errors import BundleError, EdgeInferError
from edge_infer.server.assets import Assets
from edge_infer.server.encodings import EncodedFiles
from edge_infer.server.headers import AccessLog, ResponseHeaders
from edge_infer.server.inference import InferenceRoutes
from edge_infer.server.models import ModelRoutes
from edge_infer.server.packages import PackageRoutes
from edge_infer.server.pages import PageRoutes, find_web_root
from edge_infer.server.problems import Problems, handle_error, handle_http_error
from edge_infer.server.repository import ModelRepository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

#: The most bytes of a request's body, unless the caller says otherwise.
MAX_BODY_BYTES = 64 * 2**20


def create_app(
    models: Mapping[str, Path | str],
    web_root: Path | None = None,
    *,
    isolated: bool = True,
    cache_folder: Path | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    device: str = "auto",
) -> Starlette:
    """Make the application.

    Args:
        models: The bundles to serve, by name.
        web_root: The folder that has `src`, `demo` and `vendor`; None for the installed one, and where there is none,
            no pages are served.
        isolated: Whether pages are cross-origin isolated, which threads in a page need.
        cache_folder: Where compressed copies of files outlive the server; None to keep them in memory.
        max_body_bytes: The most bytes that a request may have.
        device: What models run on, as `edge_infer.load` takes it.

    >>> app = create_app({"digits": Path("digits.bundle")})
    """
    if web_root is None:
        with suppress(BundleError):
            web_root = find_web_root()
    repository = ModelRepository({name: Path(path) for name, path in models.items()}, device)
    assets = Assets(EncodedFiles(cache_folder))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            repository.close()

    return Starlette(
        routes=[
            *PageRoutes(web_root, assets).routes(),
            *ModelRoutes(repository, assets).routes(),
            *PackageRoutes(assets).routes(),
            *InferenceRoutes(repository, max_body_bytes).routes(),
        ],
        middleware=[
            Middleware(AccessLog),
            Middleware(ResponseHeaders, isolated=isolated),
            Middleware(Problems),
        ],
        exception_handlers={EdgeInferError: handle_error, HTTPException: handle_http_error},
        lifespan=lifespan,
    )
