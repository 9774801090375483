"""Entry: how a request gets to its model, and how it leaves it again, whatever came of it."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.server.errors import ClientLeft, ShuttingDown, expected
from edge_infer.server.headers import REFUSED
from edge_infer.server.ingestion.memory_budget import BodyShare
from edge_infer.server.metrics.access_log import note
from edge_infer.server.protocol.head import RequestHead
from edge_infer.server.scheduling.shares import ANYONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Scope

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.api_keys import ApiKeys
    from edge_infer.server.ingestion.memory_budget import BodyMemory
    from edge_infer.server.ingestion.parsers import Parsers
    from edge_infer.server.metrics.recorder import Ledger
    from edge_infer.server.scheduling.request import Timings
    from edge_infer.server.scheduling.shares import Tenant


class Desk(NamedTuple):
    """What all ways to ask a model share.

    Attributes:
        engine: The models.
        parsers: Reads requests for a model.
        keys: Tells who asks.
        memory: Bounds what the bodies of all requests take together.
        ledger: Takes note of what became of them.
    """

    engine: Engine
    parsers: Parsers
    keys: ApiKeys
    memory: BodyMemory
    ledger: Ledger

    def admit(self, headers: Iterable[tuple[bytes, bytes]]) -> Tenant:
        """Return who asks.

        Raises:
            ShuttingDown: The server is stopping.
            Unauthorized: It is nobody that the server knows.
        """
        if self.engine.is_draining:
            raise ShuttingDown("The server is stopping", hint="ask another, or come back")
        return self.keys.tenant_of(headers)


class Entry:
    """One request over ASGI.

    Args:
        desk: What it shares with others.
        scope: ASGI's.

    Attributes:
        start: When it came, in seconds of `perf_counter`.
        path: What it asks for.
        tenant: Who asks.
        share: Counts the memory of its body.
    """

    def __init__(self, desk: Desk, scope: Scope) -> None:
        self.start = perf_counter()
        self.path: str = scope["path"]
        self.tenant = ANYONE
        self.share = BodyShare(desk.memory)
        self._desk = desk
        self._scope = scope
        self._head: RequestHead | None = None
        self._model: LoadedModel | None = None
        self._is_rejected = False

    async def open(self, target: tuple[str, str | None]) -> tuple[LoadedModel, RequestHead]:
        """Let the request in: return its model, which is held until `close`, and what its headers say.

        Args:
            target: The model and its version.

        Raises:
            EdgeInferError: There is no such model, no room for the request, or another reason not to take it.
        """
        desk, scope = self._desk, self._scope
        self.tenant = desk.admit(scope["headers"])
        note(scope, tenant=self.tenant.name)
        self._head = head = RequestHead(scope["headers"])
        engine = desk.engine
        model = engine.current(*target, self.tenant.name)
        while True:
            if model is None:
                model = await engine.get(*target, self.tenant.name)
            note(scope, model=model.name, version=model.version)
            refusal = model.dispatcher.refusal(model, head.priority, self.tenant)
            if refusal is not None:
                self._is_rejected = True
                desk.ledger.rejected(model, refusal)
                raise refusal
            if model.dispatcher.hold(model):
                self._model = model
                return model, head
            model = None  # it was replaced meanwhile

    def answered(self, timings: Timings, serialization_s: float, variant: str, start: float | None = None) -> float:
        """Take note of an answer; return the seconds that it took.

        Args:
            timings: Where its time went.
            serialization_s: How long it took to write.
            variant: What ran, where the model has several variants.
            start: When the step began of which it is the answer; None for all of the request.
        """
        model, head = self._model, self._head
        assert model is not None and head is not None
        start = self.start if start is None else start
        return self._desk.ledger.answered(
            model, head, self.path, start, timings, serialization_s, self.tenant.name, variant
        )

    def failed(self, error: Exception) -> EdgeInferError:
        """Take note of what went wrong; return what the client is told."""
        if self._is_rejected:
            told = expected(error)
        else:
            told = self._desk.ledger.failed(self._model, self._head, self.path, self.start, error)
        note(self._scope, code=told.code)
        return told

    def left(self) -> None:
        """Take note of a client that left before its body was there, unless it was hung up on."""
        if REFUSED not in self._scope:
            self.failed(ClientLeft("The client left before its body was there"))

    def close(self) -> None:
        """Give back the body's memory and the model."""
        self.share.give_back()
        if self._model is not None:
            self._model.dispatcher.finished(self._model)
