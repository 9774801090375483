"""The router: Starlette's, strict about the two ends of a path that it is lenient about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Router

from edge_infer.server.errors import PathNotFound
from edge_infer.server.ingestion.model_paths import route_path

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class StrictRouter(Router):
    """Answers a path by its route, as Starlette does, but for a line break at its end, and for POST a slash."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            PathNotFound: The path ends in a line break, which the patterns of routes overlook, or a POST in `/`.
        """
        if scope["type"] == "http":
            path = route_path(scope)
            if path.endswith("\n"):
                raise PathNotFound("There is nothing at a path that ends in a line break", hint="leave %0A out")
            shorter = path.rstrip("/")
            # Few clients send a body again where a redirect says; of `/v1` other hints are known.
            if scope["method"] == "POST" and path != shorter != "" and not path.startswith("/v1/"):
                raise PathNotFound(f"There is nothing at {path}", hint=f"POST {shorter}", path=path)
        await super().app(scope, receive, send)
