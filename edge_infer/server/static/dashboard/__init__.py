"""`/dashboard`: a page that shows how the server is doing now, and the counts that it draws."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

import edge_infer
from edge_infer.server.metrics.memory import resident_bytes
from edge_infer.server.responses import NO_STORE, json_answer

if TYPE_CHECKING:
    from collections.abc import Sized

    from starlette.requests import Request
    from starlette.responses import Response

    from edge_infer.server.execution.lifecycle import Engine
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.ingestion.api_keys import ApiKeys
    from edge_infer.server.static.assets import Assets

_FOLDER = Path(__file__).parent
_PAGE = "dashboard.html"
FILES = ("dashboard.js", "theme.js", "chart.js", "look.css", "dashboard.css")


class DashboardRoutes:
    """The page, its files, and what it asks for every second.

    Args:
        engine: The models.
        streams: The WebSockets that are open.
        assets: Answers for files.
        keys: Tells who may read the counts of all tenants.
    """

    def __init__(self, engine: Engine, streams: Sized, assets: Assets, keys: ApiKeys) -> None:
        self._engine = engine
        self._keys = keys
        self._streams = streams
        self._assets = assets

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/dashboard", self.page),
            Route("/dashboard/state.json", self.state),
            *(Route(f"/dashboard/{name}", self.file) for name in FILES),
        ]

    async def page(self, request: Request) -> Response:
        """Send the page."""
        return await self._assets.answer(request, lambda: self._assets.open(_FOLDER / _PAGE))

    async def file(self, request: Request) -> Response:
        """Send one of its files."""
        name = request.url.path.rpartition("/")[2]
        return await self._assets.answer(request, lambda: self._assets.open(_FOLDER / name))

    async def state(self, request: Request) -> Response:
        """Send the counts since the server started; the page draws their differences."""
        self._keys.check_metrics(request.scope["headers"])
        pools = {
            name: {"workers": dispatcher.workers, "busy": dispatcher.scheduler.running}
            for name, dispatcher in self._engine.dispatchers.items()
        }
        document = {
            "version": edge_infer.__version__,
            "time": monotonic(),
            "draining": self._engine.is_draining,
            "resident_bytes": resident_bytes(),
            "streams": len(self._streams),
            "pools": pools,
            "models": [_counts(model) for model in self._engine.active()],
        }
        return json_answer(document, NO_STORE)


def _counts(model: LoadedModel) -> dict[str, Any]:
    counts = model.statistics
    return {
        "name": model.name,
        "version": model.version,
        "pool": model.pool,
        "workers": model.dispatcher.workers,
        "variant": model.variant_in_use,
        "is_fast": model.variant_in_use != model.variant,
        "device": model.session.report().device,
        "requests": counts.requests,
        "failures": sum(counts.failures.values()),
        "rejections": sum(counts.rejections.values()),
        "cache_hits": counts.cache_hits,
        "rows": counts.batch_rows.sum,
        "batches": counts.batch_rows.count,
        "max_rows": model.batcher.max_batch_size,
        "queue": len(model.batcher),
        "max_queue": model.batcher.limits.max_queue_size,
        "in_flight": model.in_flight,
        "bounds": counts.total.bounds,
        "total": counts.total.counts,
        "compute_s": counts.compute.sum,
        "queue_s": counts.queue.sum + counts.batch_wait.sum,
        "total_s": counts.total.sum,
    }
