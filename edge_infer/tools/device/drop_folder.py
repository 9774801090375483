"""The drop folder for models (USB stick, rsync, a copy by hand): a complete and valid bundle becomes the current one.

incoming/             copy a bundle here: a folder or a .zip
current               a link to the version to serve: replaced by one atomic rename, never missing
versions/<revision>   what was taken: the current version and the one before it
refused/              what failed, each with a .txt that says why

A copy that is still being written is left alone: an entry is looked at once it has not changed between two looks.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from edge_infer.errors import BundleError, EdgeInferError
from edge_infer.platform.atomic_write import write_file
from edge_infer.platform.hashing import sha256
from edge_infer.runtime.loader import trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The current version, and the one to go back to.
_KEPT_VERSIONS = 2


class Taken(NamedTuple):
    """The outcome of an entry: taken as the current version, or refused with a reason."""

    name: str
    revision: str
    path: Path
    reason: str = ""

    @property
    def is_current(self) -> bool:
        """Whether it is the current version now."""
        return not self.reason


class DropFolder:
    """Takes what is dropped into a folder.

    Args:
        folder: Where it lies; made where it is not.
        try_bundle: Loads and tests a bundle, raises where it is not right; by default it runs the golden examples.
    """

    def __init__(self, folder: str | os.PathLike[str], try_bundle: Callable[[Path], None] = trial) -> None:
        self.folder = Path(folder)
        self._try = try_bundle
        self._seen: dict[str, tuple[tuple[str, int, int], ...]] = {}
        for name in ("incoming", "versions", "refused"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def current(self) -> Path:
        """The link to the current version, which `serve` and `load` take."""
        return self.folder / "current"

    def look(self) -> list[Taken]:
        """Take what has not changed since the last look; return what became of each, in the order of their names.

        Raises:
            OSError: The folder cannot be changed: full, read-only.
        """
        done = []
        entries = {
            path.name: _stamp(path)
            for path in sorted((self.folder / "incoming").iterdir())
            if not path.name.startswith(".")  # rsync and browsers write to hidden names first
        }
        for name, stamp in entries.items():
            if self._seen.get(name) == stamp:
                done.append(self._take(self.folder / "incoming" / name))
        taken = {one.name for one in done}
        self._seen = {name: stamp for name, stamp in entries.items() if name not in taken}
        return done

    def _take(self, path: Path) -> Taken:
        try:
            bundle = Bundle.open(path)
            if bundle.is_bare:
                raise BundleError(
                    f"`{path.name}` is a model file, which cannot prove itself; expected a bundle",
                    hint=f"edge-infer convert {path.name} -o {path.stem}.bundle",
                )
            for file in bundle.manifest.files:
                bundle.read(file)
            self._try(path)
            version = self.folder / "versions" / bundle.revision
            if not version.exists():
                self._keep(path, bundle, version)
        except EdgeInferError as error:
            return self._refuse(path, error)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return self._refuse(path, BundleError(f"`{path.name}` is a link that leads in a circle"))
        _remove(path)
        self._point_to(version)
        self._forget_old(version)
        return Taken(path.name, bundle.revision, version)

    def _keep(self, path: Path, bundle: Bundle, version: Path) -> None:
        """Move a folder among the versions; of a zip, or where there are links, write the files that it names.

        Each is checked once more then. What a link leads to may be changed later, or taken away with its stick.
        """
        if path.is_dir() and not any(one.is_symlink() for one in (path, *path.rglob("*"))):
            path.rename(version)
            return
        new = self.folder / "versions" / ".new"
        _remove(new)
        contents = {MANIFEST_NAME: bundle.read_note(MANIFEST_NAME, MAX_MANIFEST_BYTES)}
        if sha256(contents[MANIFEST_NAME]) != bundle.revision:
            raise BundleError(f"`{path.name}` was changed while it was taken", hint="copy it here again")
        for name in (*contents, *bundle.manifest.files):
            place = new.joinpath(*name.split("/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents[name] if name in contents else bundle.read(name))
        new.rename(version)

    def _refuse(self, path: Path, error: EdgeInferError) -> Taken:
        target = self.folder / "refused" / path.name
        _remove(target)
        path.rename(target)
        write_file(target.with_name(target.name + ".txt"), f"{error}\n".encode())
        return Taken(path.name, "", target, error.message)

    def _point_to(self, version: Path) -> None:
        """Make a version the current one: at no moment, and after no power cut, is there none or half of one."""
        os.sync()
        link = self.folder / ".current.new"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("versions") / version.name)
        os.utime(version)  # the newest is the last taken, whenever it was made
        link.replace(self.current)
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _forget_old(self, current: Path) -> None:
        others = sorted(
            (path for path in (self.folder / "versions").iterdir() if path != current),
            key=lambda path: path.stat().st_mtime_ns,
        )
        for path in others[: max(0, len(others) - _KEPT_VERSIONS + 1)]:
            _remove(path)


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Describe an entry so that any change of it shows: names, sizes and times of all its files.

    One that cannot be looked at, such as a link in a circle, is its own unchanging stamp: opening it says why.
    """
    try:
        return tuple((str(one.relative_to(path)), status.st_size, status.st_mtime_ns) for one, status in _files(path))
    except OSError as error:
        return ((str(error), 0, 0),)


def _files(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for one in [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]:
        with suppress(FileNotFoundError):  # it went away between two steps
            yield one, one.stat()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
