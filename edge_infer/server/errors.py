"""The server's own errors, the one table from error class to HTTP status, and the body of every error answer.

    {"error": "<what is wrong>", "code": "...", "hint": "<what to do>", "details": {...}}

`error` is text because clients of the Open Inference Protocol print it.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus

from edge_infer import errors

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


class UpgradeRequired(errors.ServingError):
    """The path is that of a WebSocket, and the request does not open one."""

    code = "upgrade_required"


class TooManyHeaders(errors.ServingError):
    """The request's headers are over the limit."""

    code = "headers_too_large"


class RangeNotSatisfiable(errors.InputError):
    """The range begins after the file's end."""

    code = "range_not_satisfiable"


class RequestTooSlow(errors.ServingError):
    """The request did not come in time."""

    code = "request_timeout"


class OriginRefused(errors.ServingError):
    """The page that asks is of another server, which is not allowed."""

    code = "origin_refused"


class NotAdmin(errors.ServingError):
    """The tenant may not change what all tenants share."""

    code = "not_admin"


class PriorityRefused(errors.ServingError):
    """The request is more urgent than its tenant may be."""

    code = "priority_refused"


class ShuttingDown(errors.ServingError):
    """The server is stopping and takes no more requests."""

    code = "shutting_down"


class ModelHangs(errors.ServingError):
    """So many batches of the model hang that it gets no more threads until one comes back."""

    code = "model_hangs"


class ClientLeft(errors.ServingError):
    """The client left before its request ran; nobody reads this."""

    code = "client_left"


class StorageFailed(errors.ServingError):
    """The server's disk does not keep what it was sent: it is full, or fails."""

    code = "storage_failed"


class InternalError(errors.ServingError):
    """A fault of the server; its log has the traceback."""

    code = "internal_error"


#: The nearest class in an error's line of ancestors counts; 0 is that of an answer which is not sent.
STATUSES: dict[type[errors.EdgeInferError], int] = {
    ClientLeft: 0,
    errors.EdgeInferError: 500,
    errors.InputError: 400,
    errors.Unauthorized: 401,
    OriginRefused: 403,
    NotAdmin: 403,
    PriorityRefused: 403,
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
    UpgradeRequired: 426,
    errors.OverShare: 429,
    TooManyHeaders: 431,
    errors.QueueFull: 503,
    errors.ServingError: 503,
    errors.DeadlineExceeded: 504,
    StorageFailed: 507,
}
_RETRY_AFTER_S = 1
_COME_BACK = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


def status_of(error: errors.EdgeInferError) -> int:
    """Return the HTTP status of an error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def expected(error: Exception) -> errors.EdgeInferError:
    """Return an error as its client is told it; of one that nobody expected the log has the traceback."""
    if isinstance(error, errors.EdgeInferError):
        return error
    log.error("The server failed", exc_info=error)
    return InternalError("The server failed", hint="its log has the traceback; please report it")


def body_of(error: errors.EdgeInferError) -> bytes:
    """Return the body of the answer to a request that failed."""
    return json.dumps(error.to_json(), ensure_ascii=False).encode("utf-8", "replace")


def headers_of(status: int) -> dict[str, str]:
    """Return the headers of the answer to a request that failed."""
    headers = {"content-type": "application/json"}
    if status in _COME_BACK:
        headers["retry-after"] = str(_RETRY_AFTER_S)
    elif status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    elif status == HTTPStatus.UPGRADE_REQUIRED:
        headers["upgrade"] = "websocket"
    return headers


def problem_parts(error: errors.EdgeInferError) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Return status, body and headers of the answer to a request that failed, for the hot path."""
    status = status_of(error)
    headers = [(name.encode(), value.encode()) for name, value in headers_of(status).items()]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, errors.ServingError):
        log.error("%s", error)
    return status, body_of(error) if status else b"", headers
