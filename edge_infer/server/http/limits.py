"""Limits of a connection before its request is complete."""

from __future__ import annotations

from typing import NamedTuple


class DoorLimits(NamedTuple):
    """The limits of a connection.

    Attributes:
        max_connections: How many connections there may be.
        max_header_bytes: How long the path and the names and values of a request's headers may be together.
        header_timeout_s: How long they may take to come.
        body_timeout_s: How long nothing of a body may come.
        min_body_rate: The slowest body, in bytes a second, but for its first `body_timeout_s`; and the slowest reading
            of answers where memory is short.
        read_timeout_s: How long its client may read nothing of an answer.
        keep_alive_s: How long an idle connection is kept; longer than the 60 s of common load balancers, so that they
            hang up first.
    """

    max_connections: int = 16384
    max_header_bytes: int = 32 * 2**10
    header_timeout_s: float = 15.0
    body_timeout_s: float = 30.0
    min_body_rate: float = 10_000.0
    read_timeout_s: float = 60.0
    keep_alive_s: float = 75.0
