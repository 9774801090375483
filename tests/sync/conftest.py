"""A store with versions of a small model, and a server that hosts it, well or badly."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from edge_infer.sync.repository import Repository
from tests.support.sync.host import Host
from tests.support.sync.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "store", tmp_path / "keys", tmp_path / "bundles")
    Repository(made.folder).create(made.keys)
    return made


@pytest.fixture
def host(publisher: Publisher) -> Iterator[Host]:
    made = Host(publisher.folder)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()
