"""Engine: which version of which model takes requests now. Loads, swaps after proof, drains, unloads."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from edge_infer import platform
from edge_infer.errors import EdgeInferError, ModelNotFound
from edge_infer.server.execution.dispatcher import Dispatcher

if TYPE_CHECKING:
    from edge_infer.server.execution.loaded import LoadedModel
    from edge_infer.server.repository import ModelRepository, ServedModel

log = logging.getLogger(__name__)
_MAX_WORKERS = 4
#: How long the answer to "which version is the highest" is trusted: finding it out reads manifests.
_CHOICE_S = 0.5


def default_workers() -> int:
    """Return how many batches run at once: one per CPU, at most four."""
    return max(1, min(_MAX_WORKERS, platform.available_cpus()))


class Engine:
    """The models that are in memory. All its methods belong to the event loop's thread.

    Args:
        repository: The models that may be loaded.
        workers: How many batches run at once.
        hang_s: After how long a batch is given up.

    Attributes:
        is_draining: Whether the server is about to stop: what was accepted is finished, nothing new is.
    """

    def __init__(self, repository: ModelRepository, workers: int, hang_s: float = 60.0) -> None:
        self.repository = repository
        self.dispatcher = Dispatcher(workers, hang_s)
        self.is_draining = False
        self._active: dict[ServedModel, LoadedModel] = {}
        self._loading: dict[ServedModel, asyncio.Task[LoadedModel]] = {}
        self._chosen: dict[tuple[str, str | None], ServedModel] = {}
        self._chosen_until = 0.0

    def active(self) -> list[LoadedModel]:
        """List the models that take requests."""
        return list(self._active.values())

    def is_loading(self, served: ServedModel) -> bool:
        """Tell whether a model is being loaded now."""
        return served in self._loading

    def peek(self, served: ServedModel) -> LoadedModel | None:
        """Return a model if it takes requests, and load nothing."""
        return self._active.get(served)

    async def get(self, name: str, version: str | None = None) -> LoadedModel:
        """Return the model that takes requests, loaded when first asked for.

        One that changed on disk goes on until its successor is loaded and proven.

        Raises:
            ModelNotFound: There is no such model or version, or it was unloaded.
            BundleError: The files are wrong.
            BackendError: No engine can run it here.
        """
        model = self.current(name, version)
        if model is not None:
            return model
        served = await self.find(name, version)
        if served.is_unloaded:
            raise _unloaded(name)
        model = self._active.get(served)
        if model is None:
            model = await self.load(served)
        self._chosen[name, version] = served
        return self._watched(served, model)

    def current(self, name: str, version: str | None = None) -> LoadedModel | None:
        """Return the model that takes requests where that is known without waiting for anything, else None."""
        now = monotonic()
        if now > self._chosen_until:
            self._chosen.clear()
            self._chosen_until = now + _CHOICE_S
        served = self._chosen.get((name, version))
        model = self._active.get(served) if served is not None else None
        return None if served is None or model is None else self._watched(served, model)

    def _watched(self, served: ServedModel, model: LoadedModel) -> LoadedModel:
        """Begin to load the model's successor where it changed on disk; return the model."""
        if served.is_stale() and served not in self._loading:
            self._load_soon(served).add_done_callback(_log_failure)
        return model

    async def find(self, name: str, version: str | None) -> ServedModel:
        """Find a model, reading manifests in a thread where a version has to be chosen.

        Raises:
            ModelNotFound: There is no such model or version.
        """
        versions = self.repository.versions(name)
        if len(versions) == 1 and version is None:
            return versions[0]
        if len(versions) == 1 and (active := self._active.get(versions[0])) and active.version == version:
            return versions[0]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.repository.workers, self.repository.find, name, version)

    async def load(self, served: ServedModel) -> LoadedModel:
        """Load a model, or its successor where it changed, and let it take requests.

        However many ask, it is loaded once.
        """
        return await asyncio.shield(self._load_soon(served))

    def _load_soon(self, served: ServedModel) -> asyncio.Task[LoadedModel]:
        task = self._loading.get(served)
        if task is None:
            task = self._loading[served] = asyncio.create_task(self._load(served))
        return task

    async def _load(self, served: ServedModel) -> LoadedModel:
        try:
            loop = asyncio.get_running_loop()
            while (model := await loop.run_in_executor(self.repository.workers, served.loaded)).is_retired:
                served.forget()  # it was unloaded and loaded again meanwhile
            if served.is_unloaded:
                served.forget()
                model.session.close()
                raise _unloaded(served.name)
            old = self._active.get(served)
            self._chosen.clear()
            if old is not model:
                self._active[served] = model
                self.dispatcher.add(model)
                if old is not None:
                    self.dispatcher.retire(old)
            return model
        finally:
            del self._loading[served]

    def unload(self, served: ServedModel) -> None:
        """Let a model finish what it has and give back its memory; new requests are refused."""
        served.is_unloaded = True
        served.forget()
        self._chosen.clear()
        model = self._active.pop(served, None)
        if model is not None:
            self.dispatcher.retire(model)

    def close(self) -> None:
        """Stop: refuse what waits, end what runs, close everything."""
        for task in list(self._loading.values()):
            task.cancel()
        self.dispatcher.close()
        self.repository.close()


def _unloaded(name: str) -> ModelNotFound:
    return ModelNotFound(f"Model `{name}` is unloaded", hint=f"POST /v2/repository/models/{name}/load", model=name)


def _log_failure(task: asyncio.Task[LoadedModel]) -> None:
    """Say why a changed model was not taken; its predecessor goes on."""
    if not task.cancelled() and (error := task.exception()) is not None:
        if not isinstance(error, EdgeInferError):
            log.error("A changed model was not loaded", exc_info=error)
        else:
            log.error("A changed model was not loaded, the old one goes on: %s", error)
