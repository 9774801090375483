"""ModelRepository: the bundles that the server offers, each opened when first asked for and again when it changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING

from edge_infer import platform
from edge_infer.bundle import MODEL_FORMATS, Bundle
from edge_infer.errors import BundleError, InputError, IntegrityError, ModelNotFound, did_you_mean, listed
from edge_infer.loading import load
from edge_infer.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from edge_infer.server.assets import Asset
from edge_infer.server.problems import PathNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edge_infer.session import Session

#: What a bundle offers beside the files that its manifest names.
_UNNAMED = (MANIFEST_NAME, "quality.json")


class ServedModel:
    """One bundle, or bare model file, and the session that runs it.

    Args:
        name: Its name in URLs.
        path: A folder, a `.zip`, or a model file.
        device: What to run it on, as `edge_infer.load` takes it.
    """

    def __init__(self, name: str, path: Path, device: str = "auto") -> None:
        self.name = name
        self.path = path
        self._device = device
        self._opening = Lock()
        self._loading = Lock()  # apart, so that files are sent while the model loads
        self._stamp: tuple[int, ...] = ()
        self._bundle: Bundle | None = None
        self._session: Session | None = None

    @property
    def is_bare(self) -> bool:
        """Whether it is a model file without a manifest."""
        return self.path.suffix in MODEL_FORMATS

    @property
    def url(self) -> str:
        """What `edge_infer.load` takes, from the server's root."""
        from urllib.parse import quote

        base = f"/models/{quote(self.name)}"
        return f"{base}/{quote(self.path.name)}" if self.is_bare else base

    def bundle(self) -> Bundle:
        """Open the bundle, or again where it changed on disk.

        Raises:
            BundleError: It is none any more.
        """
        place = self.path / MANIFEST_NAME if self.path.is_dir() else self.path
        with self._opening:
            try:
                status = place.stat()
            except OSError:
                raise BundleError(f"The bundle of model `{self.name}` is gone", hint="convert it again") from None
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._bundle is None or stamp != self._stamp:
                self._bundle, self._stamp = Bundle.open(self.path), stamp
            return self._bundle

    def session(self) -> Session:
        """Return the session, loaded when first asked for and again when the bundle changed.

        Raises:
            BundleError: The files are wrong.
            BackendError: No engine can run it here.
        """
        with self._loading:
            bundle = self.bundle()
            if self._session is None or self._session.bundle is not bundle:
                # Runs that are under way keep the old session, which goes when they end.
                self._session = load(bundle, device=self._device, arrays="tensor")
            return self._session

    def close(self) -> None:
        """Close the session."""
        with self._loading:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def file(self, path: str, open_file: Callable[[Path], Asset]) -> Asset:
        """Open a file of the bundle.

        Args:
            path: Its path inside the bundle.
            open_file: Opens a file on disk.

        Raises:
            PathNotFound: The manifest names no such file.
            IntegrityError: The file is not the one that the manifest names.
        """
        bundle = self.bundle()
        name = path.rpartition("/")[2]
        if path in _UNNAMED and not self.is_bare:
            return Asset.of_bytes(name, self._read_unnamed(path))
        entry = bundle.manifest.files.get(path)
        if entry is None:
            known = [*([] if self.is_bare else _UNNAMED), *bundle.manifest.files]
            raise PathNotFound(
                f"Model `{self.name}` has no file `{path[:200]}`",
                hint=did_you_mean(path[:200], known) or f"it has {listed(known[:20])}",
                path=path[:200],
            )
        if not self.path.is_dir() and not self.is_bare:
            return Asset.of_bytes(name, bundle.read(path), entry.sha256)
        root = self.path.parent if self.is_bare else self.path
        place = root.joinpath(*path.split("/"))
        if not place.resolve().is_relative_to(root.resolve()):
            raise BundleError(f"`{path}` is a link that leaves the bundle `{self.name}`", path=path)
        asset = open_file(place)
        if asset.sha256 != entry.sha256:
            asset.close()
            raise IntegrityError(
                f"`{path}` of model `{self.name}` has sha256 {asset.sha256}, the manifest says {entry.sha256}",
                hint="the file was changed or cut short: copy or convert the bundle again",
                path=path,
                expected=entry.sha256,
                got=asset.sha256,
            )
        return asset

    def _read_unnamed(self, path: str) -> bytes:
        """Return the bytes of `manifest.json` or `quality.json`, which the manifest does not name."""
        import zipfile

        absent = PathNotFound(f"Model `{self.name}` has no file `{path}`", path=path)
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
        models: Where each lies.
        device: What to run them on.

    Attributes:
        workers: The threads that inference runs in: apart from those that serve files, so that neither waits.
    """

    def __init__(self, models: Mapping[str, Path], device: str = "auto") -> None:
        self._models = {name: ServedModel(name, path, device) for name, path in models.items()}
        self.workers = ThreadPoolExecutor(max(2, platform.available_cpus()), "edge-infer")

    def names(self) -> list[str]:
        """List the names of the models."""
        return list(self._models)

    def get(self, name: str) -> ServedModel:
        """Return the model of this name.

        Raises:
            ModelNotFound: There is none.
        """
        model = self._models.get(name)
        if model is None:
            names = self.names()
            raise ModelNotFound(
                f"Model `{name[:128]}` is not served; there is {listed(names)}",
                hint=did_you_mean(name[:128], names) or "GET /models/ lists what is served",
                model=name[:128],
                allowed=names,
            )
        return model

    def close(self) -> None:
        """Let running inferences finish and close all sessions."""
        self.workers.shutdown(cancel_futures=True)
        for model in self._models.values():
            model.close()


def name_models(paths: list[Path]) -> dict[str, Path]:
    """Find the name of each bundle: its manifest's, or the file's own for a bare model.

    Raises:
        BundleError: One is no bundle.
        InputError: Two have one name.
    """
    models: dict[str, Path] = {}
    for path in paths:
        name = Bundle.open(path).manifest.name
        if name in models:
            raise InputError(
                f"Two bundles are called `{name}`: `{models[name]}` and `{path}`",
                hint="serve one of them, or convert one under another name",
                name=name,
            )
        models[name] = path
    return models
