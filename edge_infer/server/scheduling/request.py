"""Request and Batch: what waits, and what runs together."""

from __future__ import annotations

import logging
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import DeadlineExceeded
from edge_infer.server.scheduling.shares import ANYONE, Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from edge_infer.errors import EdgeInferError
    from edge_infer.tensors.tensor import Array

    #: Runs inputs for the outputs that are wanted, None for all: a step of a stream.
    Step = Callable[[Mapping[str, Array], Sequence[str] | None], dict[str, Array]]

log = logging.getLogger(__name__)
#: Priorities run from 1, the most urgent, to 255; 0 asks for the default, as in Triton's schedule policy extension.
HIGHEST_PRIORITY = 1
LOWEST_PRIORITY = 255
DEFAULT_PRIORITY = 128
#: Which variant a request wants where its model has a fast one: the better one, the fast one, or the better one as long
#: as it answers in time. The first is what a request gets that does not say.
QUALITIES = ("auto", "best", "fast")


class Timings(NamedTuple):
    """Where the time of an answered request went, in seconds.

    Attributes:
        queue: From its arrival until a worker was free.
        batch_wait: From there until its batch began: waiting for others to join.
        compute: Running the batch.
        batch_size: The rows of that batch.
    """

    queue: float
    batch_wait: float
    compute: float
    batch_size: int


class Answer(NamedTuple):
    """The answer to a request: its outputs by name, the time of each stage, and the variant that ran.

    The variant is named where the model has several that take turns.
    """

    outputs: Mapping[str, Array]
    timings: Timings
    variant: str = ""


class Request:
    """One request that waits for a model.

    Args:
        inputs: Its tensors by name.
        outputs: The outputs wanted, or None for all.
        rows: How many rows of a batch it brings.
        key: Only requests of equal keys run together; None for one that runs alone.
        arrived: When, in seconds of the scheduler's clock.
        priority: 1 is the most urgent, 255 the least, 0 the default.
        deadline: When its answer is of no use any more.
        finish: Called once with the answer or the error.
        is_gone: Tells whether the client left; asked when a batch is formed.
        tenant: Whose request it is.
        run: Runs it alone instead of the model's session: a step of a stream with hidden state.
        quality: One of `QUALITIES`; empty for the first.

    Attributes:
        is_answered: Whether it has its answer or its error.
        turn: When it would be its turn if all were equally urgent: its arrival, or later where its tenant has many.
    """

    __slots__ = (
        "arrived",
        "deadline",
        "finish",
        "inputs",
        "is_answered",
        "is_gone",
        "key",
        "outputs",
        "priority",
        "quality",
        "rows",
        "run",
        "tenant",
        "turn",
    )

    def __init__(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str] | None,
        *,
        rows: int = 1,
        key: Hashable = None,
        arrived: float,
        finish: Callable[[Answer | EdgeInferError], None],
        priority: int = 0,
        deadline: float = inf,
        is_gone: Callable[[], bool] | None = None,
        tenant: Tenant = ANYONE,
        run: Step | None = None,
        quality: str = "",
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.rows = rows
        self.key = key
        self.arrived = arrived
        self.finish = finish
        self.priority = priority or DEFAULT_PRIORITY
        self.deadline = deadline
        self.is_answered = False
        self.is_gone = is_gone
        self.tenant = tenant
        self.run = run
        self.quality = quality or QUALITIES[0]
        self.turn = arrived

    def answer(self, result: Answer | EdgeInferError) -> None:
        """Give it its answer or its error; only the first counts. It never raises: others wait for theirs."""
        if self.is_answered:
            return
        self.is_answered = True
        try:
            self.finish(result)
        except Exception:
            with suppress(Exception):  # it may be the log that fails
                log.exception("The answer to a request was lost")

    def too_late(self) -> DeadlineExceeded:
        """Make the error for an answer that would come after the deadline."""
        return too_late(self.deadline - self.arrived)


def too_late(timeout_s: float) -> DeadlineExceeded:
    """Make the error for an answer that would come after a request's timeout."""
    timeout_ms = round(timeout_s * 1000, 3)
    return DeadlineExceeded(
        f"No answer within {timeout_ms:.10g} ms, the timeout of the request",
        hint="raise `parameters.timeout` (microseconds) or `X-Timeout-Ms`, or send fewer requests at once",
        timeout_ms=timeout_ms,
    )


class Batch(NamedTuple):
    """Requests that run together.

    Attributes:
        requests: At least one; more only where their keys are equal.
        rows: The sum of their rows.
        free_since: Since when a worker was free for it; infinity where none is yet.
        refuses_nan: Whether an output that is not a number is a failure.
    """

    requests: Sequence[Request]
    rows: int
    free_since: float
    refuses_nan: bool = False

    @property
    def deadline(self) -> float:
        """When the first of its requests wants its answer; infinity where none says."""
        return min(request.deadline for request in self.requests)

    def timings(self, request: Request, begun: float, compute_s: float) -> Timings:
        """Tell where the time of one of its requests went.

        Args:
            request: Which.
            begun: When a worker began the batch.
            compute_s: How long it ran.
        """
        free = min(max(self.free_since, request.arrived), begun)
        return Timings(free - request.arrived, begun - free, compute_s, self.rows)
