"""Models that a server takes from a store: pulled and tried at its start, followed while it runs."""

from __future__ import annotations

import json
import logging
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BackendError, SyncError, UnsupportedError
from edge_infer.runtime.loader import trial
from edge_infer.runtime.options import LoadOptions
from edge_infer.sync.cache import folder_of
from edge_infer.sync.client import pull, split_address
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.follow import Server, follow, server_of
from edge_infer.sync.source import open_source
from edge_infer.sync.trust import MAX_ROOT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.repository import ModelRepository
    from edge_infer.sync.client import Pulled

log = logging.getLogger(__name__)
_MAX_METADATA_BYTES = 5_000_000
#: How often a store in a folder is looked at, in seconds; one behind a URL at most so often, or when it tells.
LOOK_EVERY_S = 5.0
LOOK_AWAY_EVERY_S = 60.0
#: How long pulls that are under way are waited for at the end, in seconds.
STOP_S = 10.0


def is_store(location: str) -> bool:
    """Tell whether a folder or URL is a store."""
    try:
        open_source(location).read("tuf/1.root.json", MAX_ROOT_BYTES)
    except SyncError:
        return False
    return True


def models_of(store: str) -> list[str]:
    """List what a store says it has. Nothing is proven by that: each pull proves its model."""
    source = open_source(store)

    def number(path: str, entry: str) -> int:
        return int(json.loads(source.read(path, _MAX_METADATA_BYTES))["signed"]["meta"][entry]["version"])

    try:
        snapshot = number("tuf/timestamp.json", "snapshot.json")
        targets = number(f"tuf/{snapshot}.snapshot.json", "targets.json")
        return sorted(json.loads(source.read(f"tuf/{targets}.targets.json", _MAX_METADATA_BYTES))["signed"]["targets"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SyncError(
            f"`{store}` is not a store: {error}", hint="edge-infer store keys init STORE --keys DIR"
        ) from error


class _Model(NamedTuple):
    address: str
    name: str
    device: DeviceStore
    server: Server | None
    is_asked: bool  # by its name, and not with all that its store has


class Followed:
    """The models of stores that a server runs.

    Args:
        addresses: STORE or STORE/MODEL, folders or URLs.
        device: What models are tried on.
        token: What the stores' servers want to be shown with reports.
        root: Below which the weights are kept; None for the user's cache folder.
    """

    def __init__(
        self, addresses: list[str], *, device: str = "auto", token: str = "", root: Path | None = None
    ) -> None:
        self._run_on = device
        self._models: list[_Model] = []
        self._threads: list[Thread] = []
        self._stop = Event()
        self._wakes: list[Event] = []
        for address in addresses:
            plain = address.removeprefix("edge+").rstrip("/")
            is_whole = is_store(plain)
            names = [f"{plain}/{name}" for name in models_of(plain)] if is_whole else [plain]
            for one in names:
                store, name = split_address(one)
                folder = folder_of(one) if root is None else root / name
                kept = DeviceStore(folder, patience_s=STOP_S)
                url = server_of(store)
                told = Server(url, kept, name, token=token, kind="server") if url else None
                self._models.append(_Model(one, name, kept, told, is_asked=not is_whole))

    def bring(self) -> dict[str, Path]:
        """Pull every model; return where the active bundle of each lies, by name. Indexes of whole stores are left out.

        Raises:
            UnsupportedError: A model that was asked for by its name is an index.
            SyncError: A model cannot be had, and no version of it lies here.
        """
        found = {}
        for model in list(self._models):
            try:
                self._pull(model)
            except (SyncError, BackendError, OSError) as error:
                if not model.is_asked and isinstance(error, UnsupportedError) and error.details.get("is_index"):
                    log.warning("%s is an index, and not served; %s", model.address, error.hint)
                    self._models.remove(model)
                    continue
                if model.device.record().active is None:
                    if isinstance(error, OSError):
                        raise SyncError(
                            f"{model.address} cannot be kept in `{model.device.folder}`: {error}",
                            hint="make room there",
                        ) from error
                    raise
                log.warning("%s: %s; the version of the last time is served", model.address, error)
            found[model.name] = model.device.active()
        return found

    def start(self, repository: ModelRepository) -> None:
        """Follow every model in a thread of its own; the repository takes new versions as they come."""
        for model in self._models:
            self._wakes.append(wake := Event())
            thread = Thread(target=self._follow, args=(model, repository, wake), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End following; a pull that hangs is left behind, its folder is whole at any moment."""
        deadline = monotonic() + STOP_S
        self._stop.set()
        for wake in self._wakes:
            wake.set()
        for thread in self._threads:
            thread.join(max(deadline - monotonic(), 0))

    def _follow(self, model: _Model, repository: ModelRepository, wake: Event) -> None:
        def look() -> Pulled:
            pulled = self._pull(model)
            served = repository.versions(model.name)[0]
            if served.path != pulled.path:  # brought by this process, or by another one that shares the folder
                served.path = pulled.path
                log.info("%s: version %s is served, by %s", model.address, pulled.version, pulled.method)
            return pulled

        def failed(error: EdgeInferError) -> None:
            log.warning("%s: %s", model.address, error.message)

        follow(
            look,
            model.server,
            interval_s=LOOK_EVERY_S if model.server is None else LOOK_AWAY_EVERY_S,
            stop=self._stop,
            wake=wake,
            on_error=failed,
        )

    def _pull(self, model: _Model) -> Pulled:
        store, name = split_address(model.address)
        is_halted: Callable[[int, int], bool] = lambda _sequence, _stage: False  # noqa: E731
        if model.server is not None:
            is_halted = model.server.is_halted
        return pull(store, name, model.device, lambda path: trial(path, LoadOptions(self._run_on)), is_halted=is_halted)
