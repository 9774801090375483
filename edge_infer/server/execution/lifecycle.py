"""Engine: which version of which model takes requests now. Loads, swaps after proof, drains, unloads."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.errors import EdgeInferError, ModelNotFound
from edge_infer.platform import host
from edge_infer.server.execution.dispatcher import Dispatcher
from edge_infer.server.execution.routing import RoutingTable
from edge_infer.server.execution.text_model import TextModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.server.execution.canary import Canary
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.repository import ModelRepository, ServedModel
    from edge_infer.server.execution.text_runner import TextRunner

log = logging.getLogger(__name__)
_MAX_WORKERS = 4
#: How long the answer to "which version is the highest" is trusted: finding it out reads manifests.
_CHOICE_S = 0.5
#: How often the bundles of the models in memory are looked at for changes.
_LOOK_EVERY_S = 0.5
#: After how long a load that failed is tried again though no file changed: memory may be free, a file in its place.
_RETRY_S = 10.0
#: How long threads that compute or load have to end, all together, when the server ends.
CLOSE_S = 5.0


def default_workers() -> int:
    """Return how many batches run at once: one per CPU, at most four."""
    return max(1, min(_MAX_WORKERS, host.available_cpus()))


def _dispatcher(device: str, wanted: int, workers: int, hang_s: float) -> Dispatcher:
    """Make the dispatcher of a pool.

    A GPU computes one batch while the tensors of another are copied, and is not shared by a third. On a CPU an urgent
    request shares the cores with what runs.
    """
    if _is_gpu(device):
        return Dispatcher(wanted or min(2, workers), hang_s)
    return Dispatcher(wanted or workers, hang_s, spare=1)


def _is_gpu(device: str) -> bool:
    """Tell whether models run on a GPU: `auto` takes one where an engine has it, as `edge_infer.load` does."""
    if device != "auto":
        return device.partition(":")[0] == "cuda"
    return any("cuda" in get_backend(name).availability().devices for name in backend_names())


class _Place(NamedTuple):
    """A version of a model, and the pool that runs it."""

    served: ServedModel
    pool: str


class _Failure(NamedTuple):
    """A load that failed, so that not every request tries it again."""

    error: Exception
    stamp: tuple[int, ...]
    until: float

    def holds(self, served: ServedModel) -> bool:
        """Tell whether it would fail again: the files are the same, and little time has passed."""
        return monotonic() < self.until and served.stamp() == self.stamp


class Engine:
    """The models that are in memory. All its methods belong to the event loop's thread.

    Args:
        repository: The models that may be loaded.
        workers: How many batches run at once in a pool that does not say.
        hang_s: After how long a batch is given up.
        table: The pools, and which requests each runs.

    Attributes:
        is_draining: Whether the server is about to stop: what was accepted is finished, nothing new is.
        dispatchers: What runs requests, by pool.
        canaries: The versions that are being tried, by model.
        preloading: The task of `preload`, where it was called.
        starting: The models that it has not yet loaded, nor failed to.
    """

    def __init__(
        self, repository: ModelRepository, workers: int, hang_s: float = 60.0, table: RoutingTable | None = None
    ) -> None:
        self.repository = repository
        self._hang_s = hang_s
        self.table = table or RoutingTable()
        self.dispatchers = {
            name: _dispatcher(pool.device or repository.device, pool.workers, workers, hang_s)
            for name, pool in self.table.pools.items()
        }
        self.canaries: dict[str, Canary] = {}
        self.is_draining = False
        self.starting: set[str] = set()
        self.preloading: asyncio.Task[None] | None = None
        self._active: dict[_Place, LoadedModel] = {}
        self._loading: dict[_Place, asyncio.Task[LoadedModel]] = {}
        self._failures: dict[_Place, _Failure] = {}
        self._chosen: dict[tuple[str, str | None, str], _Place] = {}
        self._chosen_until = 0.0
        self._next_look: asyncio.TimerHandle | None = None
        self._runners: WeakSet[TextRunner] = WeakSet()

    def active(self) -> list[LoadedModel]:
        """List the models that take requests."""
        return list(self._active.values())

    def is_loading(self, served: ServedModel) -> bool:
        """Tell whether a model is being loaded now."""
        return any(place.served is served for place in self._loading)

    def why_not(self, served: ServedModel) -> str:
        """Say why a model takes no requests now."""
        failure = next((one for place, one in self._failures.items() if place.served is served), None)
        return "not loaded yet: the first request loads it" if failure is None else str(failure.error)

    def failed(self) -> dict[str, str]:
        """Return the models whose newest bundle could not be loaded, each with the code of its error."""
        return {
            place.served.name: getattr(failure.error, "code", "internal_error")
            for place, failure in self._failures.items()
        }

    def peek(self, served: ServedModel) -> LoadedModel | None:
        """Return a model if it takes requests in some pool, and load nothing."""
        return next((model for place, model in self._active.items() if place.served is served), None)

    async def get(self, name: str, version: str | None = None, tenant: str = "") -> LoadedModel:
        """Return the model that takes requests, loaded when first asked for.

        One that changed on disk goes on until its successor is loaded and proven.

        Args:
            name: The model.
            version: Its version; None for the highest, or for the one that is being tried, by its part.
            tenant: Whose request it is; it may choose the pool.

        Raises:
            ModelNotFound: There is no such model or version, or it was unloaded.
            BundleError: The files are wrong.
            BackendError: No engine can run it here.
        """
        if version is None and (canary := self.canaries.get(name)) is not None and canary.takes_next():
            try:
                model = await self.settled(name, canary.version, tenant)
            except EdgeInferError as error:
                if canary.failure != str(error):  # else it is what another request was told
                    canary.failure = str(error)
                    log.error("Version %s of %s is being tried and cannot be had: %s", canary.version, name, error)
            else:
                canary.failure = ""
                return model
        return await self.settled(name, version, tenant)

    async def settled(self, name: str, version: str | None = None, tenant: str = "") -> LoadedModel:
        """Return the model as `get` does, but without a version never the one that is being tried.

        For who only asks about a model: the turns of a canary are for requests.
        """
        model = self._known(name, version, tenant)
        if model is not None:
            return model
        served = await self.find(name, version)
        if served.is_unloaded:
            raise _unloaded(name)
        place = _Place(served, self.table.pool_of(name, version, tenant))
        model = self._active.get(place)
        if model is None:
            failure = self._failure(place)
            if failure is not None:
                raise failure.with_traceback(None)
            model = await asyncio.shield(self._load_soon(place))
        self._chosen[name, version, tenant] = place
        return model

    def current(self, name: str, version: str | None = None, tenant: str = "") -> LoadedModel | None:
        """Return the model that takes requests where that is known without waiting for anything, else None."""
        if version is None and name in self.canaries:
            return None  # `get` throws the dice, once a request
        return self._known(name, version, tenant)

    def _known(self, name: str, version: str | None, tenant: str) -> LoadedModel | None:
        now = monotonic()
        if now > self._chosen_until:
            self._chosen.clear()
            self._chosen_until = now + _CHOICE_S
        place = self._chosen.get((name, version, tenant))
        return self._active.get(place) if place is not None else None

    def _look(self) -> None:
        """Begin to load the successors of models that changed on disk, now and from now on."""
        if self.is_draining:
            return
        for place in self._active:
            if place not in self._loading and place.served.is_stale(place.pool) and self._failure(place) is None:
                self._load_soon(place).add_done_callback(_log_failure)
        self._look_later()

    def _look_later(self) -> None:
        """Look again in a moment, while models are in memory; a loop that ends forgets it."""
        if self._next_look is not None:
            self._next_look.cancel()
        if self._active:
            self._next_look = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look)

    def _failure(self, place: _Place) -> Exception | None:
        """Return why a load failed, where trying it again would fail too."""
        failure = self._failures.get(place)
        return failure.error if failure is not None and failure.holds(place.served) else None

    async def find(self, name: str, version: str | None) -> ServedModel:
        """Find a model, reading manifests in a thread where a version has to be chosen.

        Raises:
            ModelNotFound: There is no such model or version.
        """
        versions = self.repository.versions(name)
        if len(versions) == 1 and version is None:
            return versions[0]
        if len(versions) == 1 and (active := self.peek(versions[0])) and active.version == version:
            return versions[0]
        canary = self.canaries.get(name) if version is None else None
        without = canary.version if canary is not None else None
        return await self.repository.readers.call(self.repository.find, name, version, without)

    def preload(self) -> asyncio.Task[None]:
        """Begin to load the version of each model that answers, so that no request waits for it.

        One after the other: loading measures, and two at once would measure one another. What a request asks for
        meanwhile is loaded beside it. A model that cannot be loaded is logged.
        """
        self.starting = set(self.repository.names())
        self.preloading = asyncio.create_task(self._preload())
        return self.preloading

    async def _preload(self) -> None:
        tenants = ["", *(route.tenant for route in self.table.routes if route.tenant)]
        for name in self.repository.names():
            canary = self.canaries.get(name)
            for version in (None,) if canary is None else (None, canary.version):
                by_pool = {self.table.pool_of(name, version, tenant): tenant for tenant in tenants}
                for tenant in by_pool.values():
                    what = f"Model {name}" if version is None else f"Version {version} of {name}, which is being tried,"
                    try:
                        await self.settled(name, version, tenant)
                    except EdgeInferError as error:
                        log.error("%s was not loaded: %s", what, error)
                    except Exception:
                        log.exception("%s was not loaded", what)
            self.starting.discard(name)

    async def load(self, versions: Sequence[ServedModel]) -> None:
        """Load models, or their successors where they changed, and let them take requests in every pool they are in.

        However many ask, each is loaded once. One that cannot be loaded keeps no other from it; its error comes after.
        """
        failure: Exception | None = None
        for served in versions:
            pools = {place.pool for place in self._active if place.served is served}
            pools.add(self.table.pool_of(served.name, None, ""))
            for pool in sorted(pools):
                try:
                    await asyncio.shield(self._load_soon(_Place(served, pool)))
                except Exception as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _load_soon(self, place: _Place) -> asyncio.Task[LoadedModel]:
        task = self._loading.get(place)
        if task is None:
            task = self._loading[place] = asyncio.create_task(self._load(place))
        return task

    async def _load(self, place: _Place) -> LoadedModel:
        served, pool = place
        device, limit = self.table.pools[pool].device, self.table.pools[pool].memory_limit_mb
        stamp = served.stamp()
        self._failures.pop(place, None)
        try:
            while (model := await self.repository.loaders.call(served.loaded, pool, device, limit)).is_retired:
                served.forget()  # it was unloaded and loaded again meanwhile
            if served.is_unloaded:
                served.forget()
                model.close()
                raise _unloaded(served.name)
            old = self._active.get(place)
            self._chosen.clear()
            if old is not model:
                if model.fast_reason:
                    log.warning("The fast variant of %s is not used: %s", served.name, model.fast_reason)
                if isinstance(model, TextModel):
                    model.dispatcher = model.runner
                    model.runner.add(model, asyncio.get_running_loop(), self._hang_s)
                    self._runners.add(model.runner)
                else:
                    model.dispatcher = self.dispatchers[pool]
                    self.dispatchers[pool].add(model)
                self._active[place] = model
                if old is not None:
                    old.dispatcher.retire(old)
                self._look_later()
            return model
        except Exception as error:
            if not served.is_unloaded:
                self._failures[place] = _Failure(error, stamp, monotonic() + _RETRY_S)
            raise
        finally:
            del self._loading[place]

    def unload(self, served: ServedModel) -> None:
        """Let a model finish what it has and give back its memory; new requests are refused."""
        served.is_unloaded = True
        served.forget()
        self._chosen.clear()
        for place in [place for place in self._active if place.served is served]:
            model = self._active.pop(place)
            model.dispatcher.retire(model)

    def try_version(self, name: str, canary: Canary | None) -> None:
        """Let a version take a part of the requests that name none; None ends the trial."""
        if canary is None:
            self.canaries.pop(name, None)
        else:
            self.canaries[name] = canary
        self._chosen.clear()

    def each_worker(self, function: Callable[[], None]) -> None:
        """Let each thread that runs models, where it is free, call a function."""
        for dispatcher in self.dispatchers.values():
            dispatcher.each_worker(function)

    def close(self) -> None:
        """Stop: end what runs and close everything; threads that take longer than `CLOSE_S` are left behind."""
        deadline = monotonic() + CLOSE_S
        if self._next_look is not None:
            self._next_look.cancel()
        for task in (self.preloading, *self._loading.values()):
            if task is not None:
                task.cancel()
        for dispatcher in self.dispatchers.values():
            dispatcher.close(max(0.0, deadline - monotonic()))
        for runner in tuple(self._runners):
            runner.close(max(0.0, deadline - monotonic()))
        self.repository.close(max(0.0, deadline - monotonic()))


def _unloaded(name: str) -> ModelNotFound:
    return ModelNotFound(f"Model `{name}` is unloaded", hint=f"POST /v2/repository/models/{name}/load", model=name)


def _log_failure(task: asyncio.Task[LoadedModel]) -> None:
    """Say why a changed model was not taken; its predecessor goes on."""
    if not task.cancelled() and (error := task.exception()) is not None:
        if not isinstance(error, EdgeInferError):
            log.error("A changed model was not loaded", exc_info=error)
        else:
            log.error("A changed model was not loaded, the old one goes on: %s", error)
