"""Record what became of each request, once: in its model's statistics, for a tracer, and by code."""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.server.errors import expected, status_of

if TYPE_CHECKING:
    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.metrics.tracing import Spans
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.scheduling.request import Timings


class Ledger:
    """The entries.

    Args:
        spans: Tells a tracer of each request that ran; None for none.

    Attributes:
        refusals: Counts by code the requests that no model was given.
    """

    def __init__(self, spans: Spans | None = None) -> None:
        self._spans = spans
        self.refusals: Counter[str] = Counter()

    def answered(
        self,
        model: LoadedModel,
        head: RequestHead,
        path: str,
        start: float,
        timings: Timings,
        serialization_s: float,
        tenant: str,
        variant: str,
    ) -> float:
        """Enter a request that was answered just now.

        Args:
            model: What answered it.
            head: Its headers.
            path: What was asked for.
            start: When it came, in seconds of `perf_counter`.
            timings: Where its time went.
            serialization_s: How long its answer took to write.
            tenant: Who asked, where there are tenants.
            variant: What ran, where the model has several variants.

        Returns:
            The seconds that it took in all.
        """
        total_s = perf_counter() - start
        model.statistics.answered(timings, serialization_s, total_s, tenant)
        if self._spans is not None:
            self._spans.answered(model, path, head, start, timings, serialization_s, tenant, variant)
        return total_s

    def failed(
        self, model: LoadedModel | None, head: RequestHead | None, path: str, start: float, error: Exception
    ) -> EdgeInferError:
        """Enter a request that failed just now, with a model or before it had one; return what its client is told."""
        told = expected(error)
        if model is None:
            self.refusals[told.code] += 1
        else:
            model.statistics.failed(told.code, perf_counter() - start)
            if self._spans is not None:
                self._spans.failed(model, path, head, start, told, status_of(told))
        return told

    def rejected(self, model: LoadedModel | None, error: EdgeInferError) -> None:
        """Enter a request that was not taken: there was no room for it, or no model for any."""
        if model is None:
            self.refusals[error.code] += 1
        else:
            model.statistics.rejected(error.code)
