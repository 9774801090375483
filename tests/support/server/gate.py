"""A gate that holds every batch, and the state of the queue behind it."""

from __future__ import annotations

from threading import Event
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING, Any

from edge_infer.server.app import Limits
from edge_infer.server.execution.run_batch import run_batch
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.client import Client
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from edge_infer.server.http.in_thread import ServerThread


class Gate:
    """Holds every batch until it is opened, and remembers their sizes."""

    def __init__(self) -> None:
        self.open, self.entered = Event(), Event()
        self.sizes: list[int] = []
        self.values: list[float] = []

    def __call__(self, session: Any, batch: Any) -> Any:
        self.sizes.append(len(batch.requests))
        self.values += [float(request.inputs["x"][0, 0]) for request in batch.requests]
        self.entered.set()
        assert self.open.wait(60)
        return run_batch(session, batch)


def limits(**batch: Any) -> Limits:
    return Limits(workers=1, batch=BatchLimits(**{"max_wait_ms": 1e6, **batch}))


def queued(server: ServerThread, **headers: str) -> int:
    """Return how many requests wait, as `/metrics` says."""
    depth = Client(server.url)("/metrics", "GET", None, **headers).body.decode()
    line = next(line for line in depth.splitlines() if line.startswith("edge_infer_queue_depth{"))
    return int(float(line.rpartition(" ")[2]))


def wait_until_queued(server: ServerThread, count: int, **headers: str) -> None:
    wait_until(lambda: queued(server, **headers) >= count)


def workers_alive() -> int:
    return sum(thread.name.startswith("edge-infer worker") for thread in enumerate_threads())
