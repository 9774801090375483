"""Refusals before any application sees the request: the answer, and its line in the log."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import httptools

from edge_infer.errors import InputError, QueueFull
from edge_infer.server.errors import RequestTooSlow, status_of
from edge_infer.server.headers import echoed
from edge_infer.server.metrics.access_log import access, facts_of, log_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edge_infer.errors import EdgeInferError

NO_ROOM = QueueFull(
    "The memory for requests is full, and this body arrives too slowly to keep its place in it",
    hint="come back after `Retry-After`, or send it faster",
)
NO_PATH = InputError("The target of the request is not a path", hint="GET /health")
#: How much of the path of a refused request is logged.
_MAX_LOGGED = 1024


class Refusal(NamedTuple):
    """An answer, ready to be sent.

    Attributes:
        status: Its status.
        size: The bytes of its body.
        data: All of it.
    """

    status: int
    size: int
    data: bytes


def too_slow(what: str) -> RequestTooSlow:
    """Make the error for a part of a request that does not come in time."""
    return RequestTooSlow(f"The request's {what} took too long", hint="send it in one piece")


def refusal_of(error: EdgeInferError) -> Refusal:
    """Write the answer to what is refused; the connection ends with it."""
    status = status_of(error)
    body = json.dumps(error.to_json()).encode()
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: application/json",
        "connection: close",
        *(["retry-after: 1"] if status == HTTPStatus.SERVICE_UNAVAILABLE else []),
        f"content-length: {len(body)}",
    ]
    return Refusal(status, len(body), "\r\n".join([*lines, "", ""]).encode() + body)


def line_of(
    method: bytes, url: bytes, headers: Iterable[tuple[bytes, bytes]], start: float, code: str
) -> Callable[[int, int], None]:
    """Return what logs a refusal, given its status and size.

    Args:
        method: Of the request.
        url: What it asks for, as far as it came.
        headers: As far as they came.
        start: When it came, in seconds of `perf_counter`.
        code: That of the error.
    """
    if not access.isEnabledFor(logging.INFO):
        return lambda *_: None
    path = "-"
    if url:
        with suppress(httptools.HttpParserInvalidURLError):
            path = unquote((httptools.parse_url(url).path or b"-")[:_MAX_LOGGED].decode("latin-1"))
    facts = facts_of(echoed(headers), None, "", code)
    return partial(log_access, method.decode("ascii") if url else "-", path, start=start, facts=facts)
