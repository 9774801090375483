"""A plugin of the suite: its servers, which turn in a loop while a client runs, wait for a request instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from http.server import HTTPServer


@pytest.fixture(autouse=True)
def patience(server: HTTPServer, static_server: HTTPServer) -> None:
    """Look whether the client has ended a hundred times a second, and not as often as the processor can."""
    server.timeout = static_server.timeout = 0.01
