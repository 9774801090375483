"""Responses of the routes: JSON documents, errors, and how long a client may keep them."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from edge_infer import errors
from edge_infer.server.errors import MethodNotAllowed, PathNotFound, body_of, expected, headers_of, status_of
from edge_infer.server.metrics.access_log import note

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

JSON = "application/json"
#: Routes of OpenAI, which clients ask elsewhere where their base URL is wrong.
_OPENAI = ("/chat/completions", "/completions", "/embeddings")
#: For what is true only now.
NO_STORE = {"Cache-Control": "no-store"}
#: For what may be kept, and is asked for again each time.
NO_CACHE = {"Cache-Control": "no-cache"}


def json_answer(document: Any, headers: dict[str, str], media_type: str = JSON) -> Response:
    """Make a response of a JSON document."""
    return Response(json.dumps(document, ensure_ascii=False).encode(), 200, headers, media_type)


def problem(error: errors.EdgeInferError, headers: dict[str, str] | None = None) -> Response:
    """Make the answer to a request that failed."""
    status = status_of(error)
    headers = {"cache-control": "no-store", **(headers or {}), **headers_of(status)}
    return Response(body_of(error), status, headers)


def _counted(scope: Scope, error: errors.EdgeInferError) -> errors.EdgeInferError:
    """Count an error that no model's statistics have, in `app.state.refusals`, and name it in the log."""
    scope["app"].state.refusals[error.code] += 1
    note(scope, code=error.code)
    return error


async def handle_error(request: Request, error: Exception) -> Response:
    """Answer an error that edge-infer raised on purpose."""
    assert isinstance(error, errors.EdgeInferError)
    _counted(request.scope, error)
    if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s", error)
    return problem(error)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Answer what Starlette's router refuses: an unknown path, or a method that a path does not take."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    path = request.url.path
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = headers.get("Allow", "")
        message = f"{path} does not take {request.method}"
        not_taken = MethodNotAllowed(message, hint=f"use {allowed}", method=request.method)
        return problem(_counted(request.scope, not_taken), headers)
    route = next((one for one in _OPENAI if path.rstrip("/").endswith(one)), "")
    hint = f"POST /v1{route}; a client's base URL ends with /v1" if route else "GET /models/ lists what is served"
    missing = PathNotFound(f"There is nothing at {path}", hint=hint, path=path)
    return problem(_counted(request.scope, missing))


class Problems:
    """A layer: what nobody expected becomes an answer of 500 and a line in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Exception as error:
            if scope["type"] != "http" or started:
                raise
            await problem(_counted(scope, expected(error)))(scope, receive, send)
