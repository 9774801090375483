"""ModelRepository: the bundles that the server offers, each opened when first asked for and again when it changes.

A model may have several versions, each a bundle of its own; the highest one answers where no version is asked for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import MODEL_FORMATS, Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from edge_infer.errors import (
    BundleError,
    EdgeInferError,
    InputError,
    ModelNotFound,
    did_you_mean,
    listed,
)
from edge_infer.platform import host
from edge_infer.server.errors import PathNotFound
from edge_infer.server.execution.chain_model import load_chain_model
from edge_infer.server.execution.loaded_model import LoadedModel, load_model
from edge_infer.server.execution.routing import DEFAULT_POOL
from edge_infer.server.execution.text_model import TextLimits, load_text_model
from edge_infer.server.execution.version_order import version_order
from edge_infer.server.execution.workers import WorkerPool
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.tasks.sources.huggingface import FILES as HUB_FILES
from edge_infer.tasks.sources.opened import is_hub_folder, model_file, opened, written_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: What a bundle offers beside the files that its manifest names.
UNNAMED = (MANIFEST_NAME, "quality.json")
_READERS = 2


class ServedModel:
    """One bundle, folder of the Hub, or bare model file, and the session that runs it.

    Args:
        name: Its name in URLs.
        path: A folder, a `.zip`, or a model file.
        device: What to run it on, as `edge_infer.load` takes it.
        limits: How its requests are batched.
        fast_variant: The id of a variant for when requests pile up; empty for none.
        variant: The id of the variant that runs; empty to choose.
        text: How it runs where it generates text.

    Attributes:
        is_unloaded: Whether it was unloaded, and is not loaded again by asking for it.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        device: str = "auto",
        limits: BatchLimits | None = None,
        fast_variant: str = "",
        variant: str = "",
        text: TextLimits | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.is_unloaded = False
        self._device = device
        self._limits = limits or BatchLimits()
        self._fast_variant = fast_variant
        self._variant = variant
        self._text = text or TextLimits()
        self._opening = Lock()
        self._loading = Lock()  # apart, so that files are sent while the model loads
        self._stamp: tuple[int, ...] = ()
        self._bundle: Bundle | None = None
        self._made = b""  # the manifest of a folder of the Hub
        self._loaded: dict[str, LoadedModel] = {}  # by the pool that runs it

    @property
    def is_bare(self) -> bool:
        """Whether it is a model file without a manifest."""
        return self.path.suffix in MODEL_FORMATS

    @property
    def is_of_hub(self) -> bool:
        """Whether it is a folder of the Hugging Face Hub, whose manifest is made when it is opened."""
        return is_hub_folder(self.path)

    @property
    def url(self) -> str:
        """The path for `edge_infer.load`, below the path that the server answers under."""
        from urllib.parse import quote

        base = f"/models/{quote(self.name)}"
        return f"{base}/{quote(self.path.name)}" if self.is_bare else base

    def bundle(self) -> Bundle:
        """Open the bundle, or again where it changed on disk.

        Raises:
            BundleError: It is none any more.
        """
        with self._opening:
            try:
                stamp = self._stamp_now()
            except OSError:
                raise BundleError(f"The bundle of model `{self.name}` is gone", hint="convert it again") from None
            if self._bundle is None or stamp != self._stamp:
                self._bundle, self._stamp = open_model(self.path), stamp
                self._made = written_manifest(self._bundle) if self.is_of_hub else b""
            return self._bundle

    def _stamp_now(self) -> tuple[int, ...]:
        if self.is_of_hub:
            read = [Path(model_file(str(self.path))), *(self.path / name for name in HUB_FILES)]
            return tuple(fact for place in read if place.is_file() for fact in _stamp_of(place))
        return _stamp_of(self.path / MANIFEST_NAME if self.path.is_dir() else self.path)

    def stamp(self) -> tuple[int, ...]:
        """Return what changes when the bundle does; empty where it is gone."""
        try:
            return self._stamp_now()
        except OSError:
            return ()

    def is_stale(self, pool: str = DEFAULT_POOL) -> bool:
        """Tell whether the bundle changed since it was loaded; one that is gone did not."""
        loaded = self._loaded.get(pool)
        try:
            return loaded is not None and (
                loaded.session.bundle is not self._bundle or self._stamp_now() != self._stamp
            )
        except OSError:
            return False

    def loaded(self, pool: str = DEFAULT_POOL, device: str = "", memory_limit_mb: int = 0) -> LoadedModel:
        """Return the model ready to run: loaded when first asked for, and again when the bundle changed.

        Args:
            pool: The workers that will run it.
            device: What to run it on; empty for the server's own.
            memory_limit_mb: The most memory of the device that models with a bound take together; 0 for no bound.

        Raises:
            BundleError: The files are wrong.
            OutOfMemory: It does not fit into that.
            BackendError: No engine can run it here, or its golden examples do not come out.
        """
        with self._loading:
            bundle = self.bundle()
            model = self._loaded.get(pool)
            if model is None or model.session.bundle is not bundle:
                # Requests that are under way keep the old one, which is closed when they end.
                if bundle.manifest.chain is not None:
                    model = load_chain_model(self.name, bundle, device or self._device, self._limits)
                elif bundle.manifest.generate is not None:
                    model = load_text_model(self.name, bundle, self._limits, self._text, variant=self._variant)
                else:
                    model = load_model(
                        self.name,
                        bundle,
                        device or self._device,
                        self._limits,
                        variant=self._variant,
                        fast_variant=self._fast_variant,
                        memory_limit_mb=memory_limit_mb,
                    )
                model.pool = pool
                self._loaded[pool] = model
            return model

    def forget(self) -> None:
        """Load anew next time; it does not wait for a load that is under way."""
        self._loaded = {}

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the sessions; where the model loads for longer than this, it is left open."""
        if not self._loading.acquire(timeout=timeout_s):
            return
        try:
            models, self._loaded = self._loaded, {}
            for model in models.values():
                model.close()
        finally:
            self._loading.release()

    def read_unnamed(self, path: str) -> bytes:
        """Return the bytes of `manifest.json` or `quality.json`, which the manifest does not name."""
        import zipfile

        absent = PathNotFound(f"Model `{self.name}` has no file `{path}`", path=path)
        if self.is_of_hub:
            if path == MANIFEST_NAME:
                self.bundle()
                return self._made
            raise absent
        if self.path.is_dir():
            place = self.path / path
            if not place.is_file() or not place.resolve().is_relative_to(self.path.resolve()):
                raise absent
            with place.open("rb") as file:
                return file.read(MAX_MANIFEST_BYTES)
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(path) as file:
                return file.read(MAX_MANIFEST_BYTES)
        except KeyError:
            raise absent from None


class ModelRepository:
    """The models that are served, by name.

    Args:
        models: Where each lies; several places are several versions.
        device: What to run them on.
        limits: How requests are batched.
        fast_variants: The id of the variant for when requests pile up, by model; `*` for all others.
        variants: The same of the variant that runs; where there is none, it is chosen.
        text: How models run that generate text.

    Attributes:
        device: What models run on that no pool says otherwise of.
        loaders: The threads that models are loaded in.
        readers: The threads that manifests are read in to choose a version, which wait for no model that loads.
    """

    def __init__(
        self,
        models: Mapping[str, Path | Sequence[Path]],
        device: str = "auto",
        limits: BatchLimits | None = None,
        fast_variants: Mapping[str, str] | None = None,
        variants: Mapping[str, str] | None = None,
        text: TextLimits | None = None,
    ) -> None:
        fast, chosen = fast_variants or {}, variants or {}
        self.device = device
        self._models = {
            name: [
                ServedModel(
                    name,
                    path,
                    device,
                    limits,
                    fast.get(name, fast.get("*", "")),
                    chosen.get(name, chosen.get("*", "")),
                    text,
                )
                for path in _as_list(paths)
            ]
            for name, paths in models.items()
        }
        self.loaders = WorkerPool(max(2, host.available_cpus()), "edge-infer loader")
        self.readers = WorkerPool(_READERS, "edge-infer reader")

    def names(self) -> list[str]:
        """List the names of the models."""
        return list(self._models)

    def versions(self, name: str) -> list[ServedModel]:
        """Return the versions of a model.

        Raises:
            ModelNotFound: There is no such model.
        """
        versions = self._models.get(name)
        if versions is None:
            names = self.names()
            raise ModelNotFound(
                f"Model `{name[:128]}` is not served; there is {listed(names)}",
                hint=did_you_mean(name[:128], names) or "GET /models/ lists what is served",
                model=name[:128],
                allowed=names,
            )
        return versions

    def get(self, name: str) -> ServedModel:
        """Return the highest version of a model.

        Raises:
            ModelNotFound: There is none.
        """
        return self.find(name)

    def find(self, name: str, version: str | None = None, without: str | None = None) -> ServedModel:
        """Return a version of a model, the highest one if none is asked for; it may read manifests.

        Args:
            name: The model.
            version: The version; None for the highest.
            without: A version that does not count as the highest: one that is being tried.

        Raises:
            ModelNotFound: There is no such model or version.
            BundleError: It is the model's only version, and broken.
        """
        candidates = self.versions(name)
        if len(candidates) == 1 and version is None:
            return candidates[0]
        found: dict[str, ServedModel] = {}
        failure: EdgeInferError | None = None
        for model in candidates:
            try:
                found[model.bundle().manifest.version] = model
            except EdgeInferError as error:
                failure = error
        if not found and failure is not None:
            raise failure
        if version is None:
            usable = {key: model for key, model in found.items() if not model.is_unloaded and key != without} or found
            return usable[max(usable, key=version_order)]
        if version not in found:
            raise ModelNotFound(
                f"Model `{name}` has no version `{version[:128]}`, it has {listed(sorted(found, key=version_order))}",
                hint=f"use /v2/models/{name}",
                model=name,
                version=version[:128],
            )
        return found[version]

    def close(self, timeout_s: float = 5.0) -> None:
        """Close all sessions; loads that are under way have so long to end, then they are left behind."""
        deadline = monotonic() + timeout_s
        for pool in (self.loaders, self.readers):
            pool.drop()
            pool.close(max(0.0, deadline - monotonic()))
        for versions in self._models.values():
            for model in versions:
                with suppress(EdgeInferError):
                    model.close(max(0.0, deadline - monotonic()))


def _as_list(paths: Path | Sequence[Path]) -> list[Path]:
    return [paths] if isinstance(paths, Path) else list(paths)


def open_model(path: Path) -> Bundle:
    """Open a bundle, a bare model file, or a folder of the Hub with what its files say.

    Raises:
        EdgeInferError: It is none of them, or the folder asks for what no step does.
    """
    return opened(path) if is_hub_folder(path) else Bundle.open(path)


def _stamp_of(place: Path) -> tuple[int, ...]:
    status = place.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def name_models(paths: list[Path]) -> dict[str, list[Path]]:
    """Find the name of each bundle: its manifest's, or the file's own for a bare model. Equal names are versions.

    Raises:
        BundleError: One is not a bundle.
        InputError: Two have one name and one version.
    """
    models: dict[str, list[Path]] = {}
    seen: dict[tuple[str, str], Path] = {}
    for path in paths:
        manifest = open_model(path).manifest
        key = (manifest.name, manifest.version)
        if key in seen:
            raise InputError(
                f"Two bundles are called `{key[0]}` and have the version `{key[1]}`: `{seen[key]}` and `{path}`",
                hint="serve one of them, or convert one again with another --name or --model-version",
                name=key[0],
            )
        seen[key] = path
        models.setdefault(manifest.name, []).append(path)
    return models
