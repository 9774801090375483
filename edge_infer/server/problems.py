"""The one table from error class to HTTP status, and the body of every error answer.

    {"error": "<what is wrong>", "code": "...", "hint": "<what to do>", "details": {...}}

`error` is text because clients of the Open Inference Protocol print it.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from edge_infer import errors

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)


class PathNotFound(errors.ServingError):
    """The server has nothing at this path."""

    code = "not_found"


class MethodNotAllowed(errors.ServingError):
    """The path does not take this method."""

    code = "method_not_allowed"


class UnsupportedMediaType(errors.ServingError):
    """The request's body is in a form that the server does not read."""

    code = "unsupported_media_type"


class TooManyHeaders(errors.ServingError):
    """The request's headers are over the limit."""

    code = "headers_too_large"


class RequestTooSlow(errors.ServingError):
    """The request did not come in time."""

    code = "request_timeout"


class OriginRefused(errors.ServingError):
    """The page that asks is of another server, which is not allowed."""

    code = "origin_refused"


class NotAdmin(errors.ServingError):
    """The tenant may not change what all tenants share."""

    code = "not_admin"


class ShuttingDown(errors.ServingError):
    """The server is stopping and takes no more requests."""

    code = "shutting_down"


class InternalError(errors.ServingError):
    """A fault of the server; its log has the traceback."""

    code = "internal_error"


#: The nearest class in an error's line of ancestors counts.
STATUSES: dict[type[errors.EdgeInferError], int] = {
    errors.EdgeInferError: 500,
    errors.InputError: 400,
    errors.Unauthorized: 401,
    OriginRefused: 403,
    NotAdmin: 403,
    errors.ModelNotFound: 404,
    PathNotFound: 404,
    MethodNotAllowed: 405,
    RequestTooSlow: 408,
    errors.PayloadTooLarge: 413,
    UnsupportedMediaType: 415,
    errors.ExecutionError: 500,
    errors.OutOfMemory: 503,
    errors.DeviceLost: 503,
    InternalError: 500,
    errors.UnsupportedError: 501,
    errors.SyncError: 502,
    errors.BackendUnavailable: 503,
    errors.OverShare: 429,
    TooManyHeaders: 431,
    errors.QueueFull: 503,
    errors.ServingError: 503,
    errors.DeadlineExceeded: 504,
}
_RETRY_AFTER_S = 1
_COME_BACK = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


def status_of(error: errors.EdgeInferError) -> int:
    """Return the HTTP status of an error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def _body(error: errors.EdgeInferError) -> bytes:
    return json.dumps(error.to_json(), ensure_ascii=False, default=str).encode("utf-8", "replace")


def problem(error: errors.EdgeInferError, headers: dict[str, str] | None = None) -> Response:
    """Make the answer to a request that failed."""
    status = status_of(error)
    headers = {"Cache-Control": "no-store", **(headers or {})}
    if status in _COME_BACK:
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    elif status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(_body(error), status, headers, "application/json")


def problem_parts(error: errors.EdgeInferError) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Return status, body and headers of the answer to a request that failed, for the hot path."""
    status = status_of(error)
    headers = [(b"content-type", b"application/json")]
    if status in _COME_BACK:
        headers.append((b"retry-after", b"%d" % _RETRY_AFTER_S))
    elif status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, errors.ServingError):
        log.error("%s", error)
    return status, _body(error), headers


async def handle_error(_request: Request, error: Exception) -> Response:
    """Answer an error that edge-infer raised on purpose."""
    assert isinstance(error, errors.EdgeInferError)
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
        return problem(MethodNotAllowed(message, hint=f"use {allowed}", method=request.method), headers)
    return problem(PathNotFound(f"There is nothing at {path}", hint="GET /models/ lists what is served", path=path))


class Problems:
    """The outermost layer: what nobody expected becomes an answer of 500 and a line in the log."""

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
        except errors.EdgeInferError as expected:
            if scope["type"] != "http" or started:
                raise
            await problem(expected)(scope, receive, send)
        except Exception:
            if scope["type"] != "http" or started:
                raise
            log.exception("The server failed")
            error = InternalError("The server failed", hint="its log has the traceback; please report it")
            await problem(error)(scope, receive, send)
