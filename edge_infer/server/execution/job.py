"""Job: a batch on its way through a worker."""

from __future__ import annotations

import logging
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import ExecutionError
from edge_infer.server.execution.run_batch import run_batch

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from edge_infer.errors import DeviceLost
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.run_batch import Result
    from edge_infer.server.scheduling.request import Batch

log = logging.getLogger(__name__)


class Job:
    """A batch, and what runs it.

    Args:
        model: Whose requests they are.
        batch: The requests.

    Attributes:
        variant: The id of the variant that ran, where there are two.
        begun: When a worker began it, in seconds of `perf_counter`; infinity until then.
        compute_s: How long it ran, once it has.
        has_ended: Whether a worker is through with it.
        watchdog: The timer that gives it up.
    """

    __slots__ = ("_chosen", "batch", "begun", "compute_s", "has_ended", "model", "variant", "watchdog")

    def __init__(self, model: LoadedModel, batch: Batch) -> None:
        self.model = model
        self.batch = batch
        self._chosen = model.session, ""
        self.variant = ""
        self.begun = inf
        self.compute_s = 0.0
        self.has_ended = False
        self.watchdog: TimerHandle | None = None

    def choose(self, waiting: float, now: float) -> None:
        """Choose the variant that runs it, on the event loop; again as long as it has not begun.

        Args:
            waiting: How many batches of the model wait behind it, for each worker.
            now: The time.
        """
        self._chosen = self.model.choose(self.batch, waiting, now)

    def run(self, lost: DeviceLost | None) -> list[Result]:
        """Run the batch on this thread; never raises.

        Args:
            lost: The result of all requests where the device has failed already.
        """
        size = len(self.batch.requests)
        self.begun = perf_counter()
        session, self.variant = self._chosen
        try:
            results: list[Result] = [lost] * size if lost is not None else run_batch(session, self.batch)
        except BaseException as error:
            log.exception("A batch of %s failed in an unknown way", self.model.name)
            failure = ExecutionError(f"The engine failed: {type(error).__name__}", hint="see the log")
            results = [failure] * size
        self.compute_s = perf_counter() - self.begun
        self.has_ended = True
        return results
