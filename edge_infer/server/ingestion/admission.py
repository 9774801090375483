"""Carry one request for a model through its life: admit, hold the model and the memory, record, let go."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import QueueFull
from edge_infer.server.errors import ShuttingDown, expected
from edge_infer.server.scheduling.shares import ANYONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.api_keys import ApiKeys
    from edge_infer.server.ingestion.memory_budget import BodyMemory
    from edge_infer.server.ingestion.parsers import Parsers
    from edge_infer.server.ingestion.tenant_bounds import TenantBounds
    from edge_infer.server.metrics.recorder import Ledger
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.scheduling.request import Timings
    from edge_infer.server.scheduling.shares import Tenant


class ServerContext(NamedTuple):
    """The state that all requests share: HTTP, WebSocket and server-sent events alike.

    Attributes:
        engine: The models.
        parsers: Reads requests for a model.
        keys: Tells whose key a request has.
        memory: Bounds what the bodies of all requests take together.
        ledger: Takes note of what became of them.
        bounds: Counts what tenants with bounds of their own have under way.
    """

    engine: Engine
    parsers: Parsers
    keys: ApiKeys
    memory: BodyMemory
    ledger: Ledger
    bounds: TenantBounds

    def admit(self, headers: Iterable[tuple[bytes, bytes]]) -> Tenant:
        """Return the tenant of a request.

        Raises:
            ShuttingDown: The server is stopping.
            Unauthorized: The server does not know its key.
        """
        if self.engine.is_draining:
            raise ShuttingDown("The server is stopping", hint="ask another, or come back")
        return self.keys.tenant_of(headers)


class Call:
    """One request for a model, whatever carries it.

    Args:
        context: What it shares with others.
        path: Its path.
        head: What its headers say; None until they are read.
        tenant: Whose it is.
        start: When it came, in seconds of `perf_counter`; None for now.

    Attributes:
        context: As given, as are `path`, `head`, `tenant` and `start`.
        model: The model that it is for, once that is known.
    """

    __slots__ = (
        "_expected",
        "_is_connected",
        "_is_counted",
        "_is_held",
        "_is_rejected",
        "_part",
        "_size",
        "context",
        "head",
        "model",
        "path",
        "start",
        "tenant",
    )
    #: Whether the request has a connection of its own until it is answered, as over HTTP.
    has_connection = True

    def __init__(
        self,
        context: ServerContext,
        path: str,
        head: RequestHead | None = None,
        tenant: Tenant = ANYONE,
        start: float | None = None,
    ) -> None:
        self.context = context
        self.path = path
        self.head = head
        self.tenant = tenant
        self.start = perf_counter() if start is None else start
        self.model: LoadedModel | None = None
        self._size = self._expected = self._part = 0
        self._is_held = self._is_rejected = self._is_connected = self._is_counted = False

    def refusal(self, model: LoadedModel) -> EdgeInferError | None:
        """Return why a model has no room for the request now, or its tenant may not ask; None where all is well."""
        assert self.head is not None
        self.model = model
        return self._over_bounds() or model.dispatcher.refusal(model, self.head.priority, self.tenant)

    def _over_bounds(self) -> EdgeInferError | None:
        """Count the request once for its tenant; return why that may not ask now."""
        if self._is_counted or not self.tenant.name:
            return None
        self._is_counted = True
        bounds = self.context.bounds
        refusal = bounds.check_connections(self.tenant) if self.has_connection else None
        return refusal or bounds.check_rate(self.tenant)

    def _connect(self) -> None:
        if self.has_connection and not self._is_connected:
            self._is_connected = True
            self.context.bounds.connected(self.tenant)

    def hold(self, model: LoadedModel) -> bool:
        """Hold a model until `release`; False where it was replaced meanwhile."""
        self.model = model
        self._is_held = model.dispatcher.hold(model)
        self._connect()
        if self._is_held and self.tenant.name:
            self._part = self.context.bounds.begin(self.tenant, model.batcher.enough(model.dispatcher.workers))
        return self._is_held

    def take(self, size: int) -> None:
        """Take memory for so many bytes more, room or not."""
        self._size += size
        self.context.memory.take(size, self.tenant.name)

    def check_room(self, declared: int) -> None:
        """Refuse a body that is not there yet, where there is no room for it now; nothing is kept free for it.

        Raises:
            QueueFull: There is no room.
            PayloadTooLarge: Its tenant may not send so much.
        """
        if declared > 0:
            refusal = self.context.memory.refusal(declared, self.tenant.name)
            if refusal is not None:
                raise refusal

    def grow(self, size: int) -> None:
        """Take memory for so many bytes more.

        Raises:
            QueueFull: There is no room.
        """
        refusal = self.context.memory.refusal(size, self.tenant.name, self._size)
        if refusal is not None:
            raise refusal
        self.take(size)

    def expect(self, size: int) -> None:
        """Take memory for an answer of so many bytes, in the place of the last one that was expected.

        Raises:
            QueueFull: There is no room.
        """
        self.grow(size - self._expected)
        self._expected = size

    def answered(self, timings: Timings, serialization_s: float, variant: str, start: float | None = None) -> float:
        """Take note of an answer; return the seconds that it took.

        Args:
            timings: Where its time went.
            serialization_s: How long it took to write.
            variant: What ran, where the model has several variants.
            start: When the step began of which it is the answer; None for all of the request.
        """
        model, head = self.model, self.head
        assert model is not None and head is not None
        return self.context.ledger.answered(
            model,
            head,
            self.path,
            self.start if start is None else start,
            timings,
            serialization_s,
            self.tenant.name,
            variant,
        )

    def rejected(self, error: EdgeInferError) -> None:
        """Take note that the request was not taken."""
        self._is_rejected = True
        self._pause(error)
        self.context.ledger.rejected(self.model, error)

    def failed(self, error: Exception) -> EdgeInferError:
        """Take note of what went wrong; return what the client is told."""
        if self._is_rejected:
            return expected(error)
        self._pause(error)
        return self.context.ledger.failed(self.model, self.head, self.path, self.start, error)

    def _pause(self, error: Exception) -> None:
        """Let the tenant pause where there was no room, and not where a model is out of order."""
        if self.tenant.name and isinstance(error, QueueFull):
            self.context.bounds.refused(self.tenant)

    def release(self) -> None:
        """Let go of the model."""
        if self._is_held:
            self._is_held = False
            assert self.model is not None
            self.model.dispatcher.finished(self.model)

    def keep(self, size: int) -> None:
        """Give back all but the memory of an answer of so many bytes: it waits where the last one is not read yet."""
        self.take(size - self._size)
        self._expected = 0
        self._let_go()

    def close(self) -> None:
        """Give back the memory of the body and of the answer, and the model; once more does nothing."""
        self.context.memory.take(-self._size, self.tenant.name)
        self._size = self._expected = 0
        self._let_go()

    def _let_go(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self.context.bounds.disconnected(self.tenant)
        part, self._part = self._part, 0
        self.context.bounds.end(self.tenant, part)
        self.release()
